-- Messages of people to tasks, and the rounds of work that they begin.

-- name: columns
number, text, by, created_at, run_id

-- name: of_task
SELECT {columns} FROM messages WHERE task_id = :task_id ORDER BY number

-- name: waiting_count
SELECT count(*) FROM messages WHERE task_id = :task_id AND run_id IS NULL

-- name: add
INSERT INTO messages (task_id, number, text, by, created_at)
VALUES (:task_id, (SELECT coalesce(max(number), 0) + 1 FROM messages WHERE task_id = :task_id), :words, :by, :now)
RETURNING number

-- name: deliver
UPDATE messages SET run_id = :run_id WHERE task_id = :task_id AND run_id IS NULL RETURNING number

-- name: take_back
-- The agent of this run was never started: nobody has read what it was to be given.
UPDATE messages SET run_id = NULL
WHERE task_id = :task_id AND run_id = :run_id AND EXISTS (
    SELECT 1 FROM runs WHERE id = :run_id AND (started_at IS NULL OR outcome = 'launch_error'))
RETURNING number

-- name: last_outcome
-- How the turn before this run ended. Runs whose agent never started are no turns.
SELECT outcome FROM runs
WHERE task_id = :task_id AND id != :run_id AND member = '' AND started_at IS NOT NULL ORDER BY number DESC LIMIT 1

-- name: has_begun
SELECT EXISTS (SELECT 1 FROM runs WHERE task_id = :task_id AND started_at IS NOT NULL)

-- name: reopen
-- Compare-and-set: of two people who send at the same time, one reopens the task and both messages wait.
UPDATE tasks
SET state = 'queued', reason = :reason, outcome = NULL, failure_reason = NULL, pause_reason = NULL, resume_after = NULL,
    not_before = NULL, forced = 0, updated_at = :now, ended_at = NULL
WHERE id = :id AND state = :state AND state IN ('completed', 'failed', 'cancelled', 'paused')

-- name: begin_round
-- Retry budgets and resumes start afresh.
UPDATE tasks SET generation = generation + 1, resume_attempts = 0 WHERE id = :id

-- name: carry_results
-- The new round builds on the results of the rounds before.
UPDATE results SET generation = generation + 1
WHERE task_id = :id AND generation = (SELECT generation FROM tasks WHERE id = :id) - 1

-- name: carry_choice
-- A paused task goes back to the checkpoint that a person chose, as with a resume.
UPDATE going_back SET generation = generation + 1
WHERE task_id = :id AND generation = (SELECT generation FROM tasks WHERE id = :id) - 1

-- name: carry_usage
-- What the rounds before cost counts against the task's budget.
UPDATE usage SET generation = generation + (task_id = :id), root_generation = root_generation + (root_id = :id)
WHERE (task_id = :id AND generation = (SELECT generation FROM tasks WHERE id = :id) - 1)
   OR (root_id = :id AND root_generation = (SELECT generation FROM tasks WHERE id = :id) - 1)
