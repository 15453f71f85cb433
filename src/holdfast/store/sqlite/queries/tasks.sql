-- name: task_columns
-- In the order in which rows.task unpacks them.
id, repo_id, prompt, agent, base_ref, strategy, priority, parent_id, not_before, settings, state, fence, owner, generation,
base_commit, branch, resume_attempts, pause_reason, session_id, account, fresh, forced, worker, progress,
(SELECT json_group_array(needs_id) FROM needs WHERE needs.task_id = tasks.id)

-- name: may_start
-- The tasks that may start now. A wait that was decided in the future (the clock was set back since) is over: its end
-- is unknown. A task that waits for the worker that crashed with it (crash.release_claims) is claimed only by that worker.
SELECT t.rowid FROM tasks t
    WHERE t.state = 'queued'
      AND (t.not_before IS NULL OR t.not_before <= :now OR t.updated_at > :now + 60)
      AND NOT EXISTS (
          SELECT 1 FROM needs JOIN tasks n ON n.id = needs.needs_id
          WHERE needs.task_id = t.id AND n.state != 'completed')
      AND NOT EXISTS (SELECT 1 FROM links l WHERE l.task_id = t.id AND l.state != 'claimed')  -- not while its issue is not ours
      AND (t.worker IS NULL OR t.worker = :lane)
      AND NOT (t.strategy = 'none' AND EXISTS (
          SELECT 1 FROM tasks o WHERE o.state = 'running' AND o.strategy = 'none' AND o.repo_id = t.repo_id))

-- name: shut_out
-- True if the task's account is parked or stopped, or all accounts that it could have. Evaluated only while one is.
-- An account that is gone counts as none, unless the task names it: then the task starts, and is refused.
CASE WHEN t.forced THEN 0
     WHEN t.account IS NULL THEN t.agent IN (SELECT value FROM json_each(:agents))
     WHEN t.agent || '/' || t.account IN (SELECT value FROM json_each(:accounts)) THEN 1
     ELSE t.agent IN (SELECT value FROM json_each(:agents))
          AND t.agent || '/' || t.account NOT IN (SELECT value FROM json_each(:still_open))
          AND t.account IS NOT json_extract(t.settings, '$.agent_options.account') END

-- name: turn
-- By priority. Among equals, a task between two stages goes before one that has not begun. The index `tasks_waiting` has
-- the same order.
t.priority DESC, t.progress IS NULL, t.seq

-- name: claimable
{may_start}
    ORDER BY {turn}
    LIMIT 1

-- name: on_terms
-- The conditions of core/dispatch/terms.Terms. Evaluated only while something is held back, or for a worker.
NOT ({shut_out})
      AND (:providers_down = '[]' OR coalesce(json_extract(t.settings, '$.provider'), '') NOT IN (
          SELECT value FROM json_each(:providers_down)))
      AND (:spent_labels = '[]' OR NOT EXISTS (
          SELECT 1 FROM json_each(t.settings, '$.labels') mine
          WHERE mine.key || '=' || mine.value IN (SELECT value FROM json_each(:spent_labels))))
      AND (:full_repos = '[]' OR t.repo_id NOT IN (SELECT value FROM json_each(:full_repos)))
      AND (:lane_agent IS NULL OR t.agent = :lane_agent)
      AND (:lane_account IS NULL OR t.account IS NULL OR t.account = :lane_account)
      AND NOT EXISTS (
          SELECT 1 FROM json_each(:lane_labels) wanted
          WHERE NOT EXISTS (
              SELECT 1 FROM json_each(t.settings, '$.labels') mine
              WHERE mine.key = wanted.key AND mine.value = wanted.value))

-- name: claimable_on_terms
{may_start}
      AND {on_terms}
    ORDER BY {turn}
    LIMIT 1

-- name: something_waits
{claimable}

-- name: something_waits_on_terms
{claimable_on_terms}

-- name: add
INSERT INTO tasks (id, seq, repo_id, prompt, agent, base_ref, strategy, priority, parent_id, not_before, settings,
                   account, state, reason, created_at, updated_at)
VALUES (:id, (SELECT coalesce(max(seq), 0) + 1 FROM tasks), :repo_id, :prompt, :agent, :base_ref, :strategy, :priority,
        :parent_id, :not_before, :settings, :account, 'queued', :reason, :now, :now)

-- name: add_need
INSERT OR IGNORE INTO needs (task_id, needs_id) VALUES (:task_id, :needs_id)

-- name: get
SELECT {task_columns} FROM tasks WHERE id = :id

-- name: agent_of
SELECT agent FROM tasks WHERE id = :id

-- name: taking
-- One statement: pick, raise the fence, take ownership, and only while our own lease is valid.
UPDATE tasks
SET state = 'running', fence = fence + 1, owner = :host, reason = 'claimed', worker = :lane, pause_reason = NULL, resume_after = NULL,
    not_before = NULL, updated_at = :now
WHERE state = 'queued'
  AND EXISTS (SELECT 1 FROM hosts WHERE id = :host AND state = 'active' AND boot_id = :boot_id AND lease_until > :boottime)

-- name: claim
{taking}
  AND rowid = ({claimable})
RETURNING {task_columns}

-- name: claim_on_terms
-- While something is held back, or for a worker: skips the tasks that may not start on these terms.
{taking}
  AND rowid = ({claimable_on_terms})
RETURNING {task_columns}

-- name: adopt
UPDATE tasks SET fence = fence + 1, owner = :host, updated_at = :now
WHERE id = :id AND state = 'running' AND owner = :from_host AND fence = :fence
  AND EXISTS (SELECT 1 FROM hosts WHERE id = :host AND state = 'active')
  AND EXISTS (SELECT 1 FROM hosts WHERE id = :from_host AND state != 'active')
RETURNING {task_columns}

-- name: set_base
UPDATE tasks SET base_commit = :base_commit, branch = :branch, base_ref = coalesce(:base_ref, base_ref), updated_at = :now
WHERE id = :id AND state = 'running' AND fence = :fence AND owner = :owner

-- name: say
-- The reason of a running task, for people. The caller has checked the fence.
UPDATE tasks SET reason = :reason, updated_at = :now WHERE id = :id AND state = 'running'

-- name: settle
-- One statement: check the fence, check that no other run is open, and set the new state.
UPDATE tasks
SET state = :state, reason = :reason, outcome = :outcome, failure_reason = :failure, pause_reason = :pause_reason,
    resume_after = :resume_after, not_before = :not_before, owner = NULL, worker = CASE WHEN :keeps_worker THEN worker END,
    session_id = CASE WHEN :keeps_session THEN coalesce(nullif(:session_id, ''), session_id) END,
    account = CASE WHEN NOT :keeps_session THEN json_extract(settings, '$.agent_options.account')
                   WHEN :session_id != '' AND :run_id IS NOT NULL
                   THEN coalesce((SELECT account FROM runs WHERE runs.id = :run_id), account)
                   ELSE account END,
    resume_attempts = CASE WHEN :state = 'completed' THEN 0
                           ELSE coalesce(:attempt, max(0, resume_attempts - :returned)) END,
    forced = CASE WHEN :run_id IS NULL AND :state = 'queued' THEN forced ELSE 0 END,
    progress = json_remove(progress, '$.began'),
    updated_at = :now, ended_at = CASE WHEN :state IN ('completed', 'failed', 'cancelled') THEN :now END
WHERE id = :id AND state = 'running' AND fence = :fence AND owner = :owner
  AND (:run_id IS NOT NULL OR NOT EXISTS (SELECT 1 FROM runs WHERE runs.task_id = :id AND runs.state != 'settled'))

-- name: leave_session
-- The session cannot be used any more. The task continues from the content of its workspace.
UPDATE tasks SET session_id = NULL, account = json_extract(settings, '$.agent_options.account'), updated_at = :now
WHERE id = :id AND state = 'running' AND fence = :fence AND owner = :owner

-- name: check_owner
SELECT 1 FROM tasks WHERE id = :id AND state = 'running' AND fence = :fence AND owner = :owner

-- name: set_settings
-- `updated_at` stays: it is the moment when the task's wait was decided.
UPDATE tasks SET settings = :settings
WHERE id = :id AND state IN ('queued', 'running', 'paused')

-- name: kept_wait
-- A task that waits for a moment continues waiting. But a wait that was decided in the future (the clock was set back
-- since) is over. It is ended here, because with a new `updated_at` it could not be recognized any more.
not_before = CASE WHEN updated_at > :now + 60 THEN NULL ELSE not_before END, updated_at = :now

-- name: cancel_waiting
UPDATE tasks SET state = 'cancelled', reason = :reason, outcome = 'cancelled', not_before = NULL, worker = NULL,
    updated_at = :now, ended_at = :now
WHERE id = :id AND state IN ('queued', 'paused')

-- name: pause_waiting
-- Also a task that a limit paused while the request was on its way: otherwise it would resume without an operator.
UPDATE tasks SET state = 'paused', pause_reason = 'operator', resume_after = :until, reason = :reason, {kept_wait}
WHERE id = :id AND (state = 'queued' OR (state = 'paused' AND pause_reason != 'operator' AND resume_after IS NOT NULL))

-- name: answer_pauses
UPDATE requests SET answered_at = :now, answer = :answer WHERE task_id = :id AND kind = 'pause' AND answered_at IS NULL

-- name: waiting_dependents
SELECT t.id FROM needs JOIN tasks t ON t.id = needs.task_id
WHERE needs.needs_id = :id AND t.state IN ('queued', 'paused')

-- name: retry
UPDATE tasks
SET state = 'queued', reason = :reason, failure_reason = NULL, pause_reason = NULL, resume_after = NULL, not_before = NULL,
    forced = 0,
    resume_attempts = 0, generation = generation + 1, fresh = :fresh,
    fresh_after = CASE WHEN :fresh THEN (SELECT coalesce(max(number), 0) FROM runs WHERE task_id = :id) ELSE fresh_after END,
    updated_at = :now, ended_at = NULL,
    session_id = CASE WHEN :fresh THEN NULL ELSE session_id END,
    account = CASE WHEN :fresh THEN json_extract(settings, '$.agent_options.account') ELSE account END
WHERE id = :id AND state IN ('failed', 'cancelled')

-- name: change
-- Compare-and-set: only a task that does not run. `updated_at` stays: it is the moment when a wait was decided.
UPDATE tasks
SET prompt = :prompt, agent = :agent, priority = :priority, settings = :settings,
    session_id = CASE WHEN :keeps_session THEN session_id END,
    account = CASE WHEN :keeps_session THEN account ELSE :account END,
    progress = CASE WHEN :keeps_progress THEN progress END
WHERE id = :id AND state = :state AND state != 'running'

-- name: forget_choice
-- A fresh start does not go back to a checkpoint, not even if the workspace was lost.
DELETE FROM going_back WHERE task_id = :id

-- name: resume
UPDATE tasks
SET state = 'queued', reason = :reason, resume_attempts = :attempt, pause_reason = NULL, resume_after = NULL,
    forced = :forced, {kept_wait}
WHERE id = :id AND state = 'paused' AND resume_attempts = :earlier

-- name: save_again
-- A person may have worked in the workspace meanwhile: what was saved before going back is no longer everything.
UPDATE going_back SET saved = 0 WHERE task_id = :id AND saved

-- name: resume_refused
-- The pause fields stay as they were (R-RES-04).
UPDATE tasks
SET state = 'failed', reason = :reason, resume_attempts = :attempt, failure_reason = 'max_resume_attempts_exceeded',
    updated_at = :now, ended_at = :now
WHERE id = :id AND state = 'paused' AND resume_attempts = :earlier

-- name: forget_branch
UPDATE tasks SET branch = NULL, updated_at = :now WHERE id = :id AND state IN ('completed', 'failed', 'cancelled')

-- name: fresh_start_made
-- The workspace of a fresh start exists now. From here on an attempt continues in it.
UPDATE tasks SET fresh = 0 WHERE id = :id

-- name: due_to_resume
-- Also tasks that were paused in the future: the clock was set back since, and the pause could last for ever.
SELECT id FROM tasks
WHERE state = 'paused' AND resume_after IS NOT NULL AND (resume_after <= :now OR updated_at > :now + 60)
  AND (:auto OR pause_reason = 'operator')
ORDER BY resume_after

-- name: next_due
SELECT min(at) FROM (
    SELECT min(not_before) AS at FROM tasks WHERE state = 'queued' AND not_before > :now
    UNION ALL
    SELECT min(resume_after) FROM tasks WHERE state = 'paused' AND resume_after > :now
        AND (:auto OR pause_reason = 'operator')
    UNION ALL
    SELECT min(until) FROM accounts WHERE until > :now)

-- name: running_elsewhere
SELECT {task_columns} FROM tasks INDEXED BY tasks_running WHERE state = 'running' AND owner != :host ORDER BY seq

-- name: running_here
SELECT {task_columns} FROM tasks WHERE state = 'running' AND owner = :host ORDER BY seq

-- name: going_on_count
-- Two counts, each from the index of its state. One `IN` would read every task there ever was.
SELECT (SELECT count(*) FROM tasks WHERE state = 'running')
     + (SELECT count(*) FROM tasks WHERE state = 'paused' AND resume_after IS NOT NULL
            AND (:auto OR pause_reason = 'operator'))

-- name: waiting_count
SELECT count(*) FROM tasks WHERE state = 'queued'

-- name: for_operators_count
-- Queued tasks that only an operator can let start (core/dispatch/terms.ForOperators), each once. Also tasks that wait
-- for a stopped worker, and tasks that need one of all these, or one that is paused until an operator resumes it.
WITH RECURSIVE stuck(id) AS (
    SELECT t.id FROM tasks t WHERE t.state = 'queued'
      AND (({shut_out})
           OR t.worker IN (SELECT name FROM workers WHERE state = 'stopped')
           OR (:spent_labels != '[]' AND EXISTS (
               SELECT 1 FROM json_each(t.settings, '$.labels') mine
               WHERE mine.key || '=' || mine.value IN (SELECT value FROM json_each(:spent_labels))))
           OR (:lanes IS NOT NULL AND t.worker IS NULL AND NOT EXISTS (
               SELECT 1 FROM json_each(:lanes) lane
               WHERE coalesce(lane.value ->> '$.agent', t.agent) = t.agent
                 AND (t.account IS NULL OR coalesce(lane.value ->> '$.account', t.account) = t.account)
                 AND NOT EXISTS (
                     SELECT 1 FROM json_each(lane.value, '$.labels') wanted
                     WHERE NOT EXISTS (
                         SELECT 1 FROM json_each(t.settings, '$.labels') mine
                         WHERE mine.key = wanted.key AND mine.value = wanted.value)))))
    UNION
    SELECT t.id FROM tasks t WHERE t.state = 'paused'
      AND (t.resume_after IS NULL OR NOT (:auto OR t.pause_reason = 'operator'))
    UNION
    SELECT t.id FROM stuck JOIN needs n ON n.needs_id = stuck.id JOIN tasks t ON t.id = n.task_id WHERE t.state = 'queued')
SELECT count(*) FROM stuck JOIN tasks t ON t.id = stuck.id WHERE t.state = 'queued'

-- name: spend
INSERT INTO spends (task_id, generation, budget, run_id, wall, boottime, boot_id)
VALUES (:task_id, (SELECT generation FROM tasks WHERE id = :task_id), :budget, :run_id, :wall, :boottime, :boot_id)

-- name: end_wait
-- Ends a wait for a limit that no counted resume has ended. Otherwise it would continue for ever.
INSERT INTO spends (task_id, generation, budget, wall, boottime, boot_id)
SELECT id, generation, 'waited', :wall, :boottime, :boot_id FROM tasks
WHERE id = :task_id AND 'wait' = (
    SELECT budget FROM spends s WHERE s.task_id = tasks.id AND s.generation = tasks.generation
      AND budget IN ('wait', 'waited', 'resume') ORDER BY s.id DESC LIMIT 1)

-- name: ledger
SELECT budget, wall, boottime, boot_id FROM spends WHERE task_id = :id AND generation = :generation ORDER BY id
