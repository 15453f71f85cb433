-- name: keep
UPDATE tasks SET progress = :progress, updated_at = :now
WHERE id = :id AND state = 'running' AND fence = :fence AND owner = :owner

-- name: move
-- The row names the next stage's agent from here on, so that everything that looks at it holds for that one.
UPDATE tasks
SET progress = :progress, agent = :agent, settings = :settings,
    resume_attempts = CASE WHEN :resets_resumes THEN 0 ELSE resume_attempts END, updated_at = :now
WHERE id = :id AND state = 'running' AND fence = :fence AND owner = :owner

-- name: runs_so_far
SELECT count(*) FROM runs WHERE task_id = :id

-- name: approve
-- Compare-and-set: of two people, one is told that it was done. What waits for no account is bound to none; what has no
-- stage left needs no agent, and waits for nobody's (`forced`).
UPDATE tasks
SET state = 'queued', reason = :reason, progress = :progress, agent = :agent, settings = :settings, pause_reason = NULL,
    resume_after = NULL, not_before = NULL, forced = :is_over, updated_at = :now,
    session_id = CASE WHEN :keeps_session THEN session_id END,
    account = CASE WHEN :keeps_session THEN account ELSE :account END
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
-- A retry goes on at the stage that failed: what the stages before it left is still what it stands on.
UPDATE results SET generation = (SELECT generation FROM tasks WHERE id = :id)
WHERE task_id = :id AND generation = (SELECT generation FROM tasks WHERE id = :id) - 1
