-- name: keep
UPDATE tasks SET progress = :progress, updated_at = :now
WHERE id = :id AND state = 'running' AND fence = :fence AND owner = :owner

-- name: move
-- The row names the next stage's agent from here on, so that every reader of the row applies its rules to that agent.
UPDATE tasks
SET progress = :progress, agent = :agent, settings = :settings,
    resume_attempts = CASE WHEN :resets_resumes THEN 0 ELSE resume_attempts END, updated_at = :now
WHERE id = :id AND state = 'running' AND fence = :fence AND owner = :owner

-- name: runs_so_far
SELECT count(*) FROM runs WHERE task_id = :id

-- name: approve
-- Compare-and-set: of two people who approve at the same time, only one succeeds. A task without a session is bound to
-- the account that its settings name, if any. A task without a stage left needs no agent, so it waits for no account
-- (`forced`).
UPDATE tasks
SET state = 'queued', reason = :reason, progress = :progress, agent = :agent, settings = :settings, pause_reason = NULL,
    resume_after = NULL, not_before = NULL, forced = :is_over, updated_at = :now,
    session_id = :session_id, account = :account
WHERE id = :id AND state = 'paused' AND progress IS :before

-- name: return_to
UPDATE tasks
SET progress = :progress, agent = :agent, settings = :settings, session_id = :session_id,
    account = CASE WHEN :session_id IS NULL THEN :account ELSE account END
WHERE id = :id AND state = 'queued'

-- name: retried
UPDATE tasks SET progress = :progress, agent = :agent, settings = :settings,
    account = CASE WHEN :fresh THEN :account ELSE account END
WHERE id = :id

-- name: carry_results
-- A retry continues at the stage that failed: it still builds on the results of the stages before.
UPDATE results SET generation = (SELECT generation FROM tasks WHERE id = :id)
WHERE task_id = :id AND generation = (SELECT generation FROM tasks WHERE id = :id) - 1

-- name: session_of_stage
-- The newest session that a stage can continue in. A session that was lost or full is none.
SELECT session_id, account FROM runs
WHERE task_id = :id AND stage = :stage AND member = '' AND session_id IS NOT NULL
  AND outcome NOT IN ('context_limit', 'session_lost')
  AND number > (SELECT fresh_after FROM tasks WHERE tasks.id = :id) ORDER BY number DESC LIMIT 1

-- name: enter_round
UPDATE tasks SET progress = :progress, agent = :agent, settings = :settings, session_id = :session_id, account = :account
WHERE id = :id
