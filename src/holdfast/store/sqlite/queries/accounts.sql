-- name: all
SELECT agent, name, until, outcome, reason, task_id, at FROM accounts ORDER BY agent, name

-- name: get
SELECT agent, name, until, outcome, reason, task_id, at FROM accounts WHERE agent = :agent AND name = :account

-- name: shut
INSERT OR REPLACE INTO accounts (agent, name, until, outcome, reason, task_id, at)
VALUES (:agent, :account, :until, :outcome, :reason, :task_id, :at)

-- name: open
DELETE FROM accounts WHERE agent = :agent AND name = :account

-- name: of_task
-- The account of the task's newest run. A run of another agent had none that matters now.
SELECT CASE WHEN agent = :agent THEN account END FROM runs WHERE task_id = :task_id ORDER BY number DESC LIMIT 1

-- name: paused_under
-- Tasks whose newest run had this account, and which are paused because of it.
SELECT t.id, t.pause_reason FROM tasks t
WHERE t.state = 'paused' AND t.agent = :agent AND t.pause_reason IN ('usage_limit', 'rate_limit', 'auth', 'billing')
  AND :account = (SELECT account FROM runs WHERE runs.task_id = t.id ORDER BY number DESC LIMIT 1)
ORDER BY t.seq

-- name: wait_no_longer
UPDATE tasks SET resume_after = :now, updated_at = :now WHERE id = :id AND state = 'paused' AND resume_after > :now
