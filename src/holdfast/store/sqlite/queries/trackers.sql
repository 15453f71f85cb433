-- Which task belongs to which issue of an outside tracker.

-- name: columns
l.id, l.repo_id, l.issue, l.state, l.assignee, l.task_id, t.state AS task_state, t.not_before, t.branch, t.reason,
t.updated_at

-- name: our_name
SELECT name FROM tracker_name WHERE only = 1

-- name: name_us
INSERT INTO tracker_name (only, name) VALUES (1, :ours) ON CONFLICT (only) DO NOTHING

-- name: intend
-- No link is made while we have the issue or an unfinished task for it. None is made after a task for it failed or was
-- cancelled: that would repeat for ever. Then an operator's `retry` takes the issue again.
INSERT INTO links (repo_id, issue, state, assignee, reason, created_at, updated_at)
SELECT :repo, :issue, 'intended', :assignee, 'it is ready', :now, :now
WHERE NOT EXISTS (
    SELECT 1 FROM links l LEFT JOIN tasks t ON t.id = l.task_id WHERE l.repo_id = :repo AND l.issue = :issue
      AND (l.state IN ('intended', 'claimed', 'releasing', 'closing')
           OR t.state NOT IN ('completed', 'failed', 'cancelled')
           OR (l.state = 'released' AND t.state IN ('failed', 'cancelled'))))
RETURNING id

-- name: intend_again
UPDATE links SET state = 'intended', assignee = :assignee, reason = 'its task waits for it', updated_at = :now
WHERE id = :id AND state = :state
  AND EXISTS (SELECT 1 FROM tasks t WHERE t.id = links.task_id AND t.state = 'queued')
  AND NOT EXISTS (
      SELECT 1 FROM links o LEFT JOIN tasks t ON t.id = o.task_id
      WHERE o.repo_id = links.repo_id AND o.issue = links.issue AND o.id != links.id
        AND (o.state IN ('intended', 'claimed', 'releasing', 'closing')
             OR t.state IN ('running', 'paused') OR (t.state = 'queued' AND o.id < links.id)))

-- name: belongs_to
UPDATE links SET state = 'claimed', task_id = :task, reason = 'ours, by read-back', updated_at = :now
WHERE id = :id AND state = 'intended' AND task_id IS NULL

-- name: move
UPDATE links SET state = :to, reason = :reason, updated_at = :now WHERE id = :id AND state = :state

-- name: drop
DELETE FROM links WHERE id = :id AND state = 'intended' AND task_id IS NULL

-- name: let_go
UPDATE links SET state = 'releasing', reason = :reason, updated_at = :now WHERE task_id = :task AND state = 'claimed'

-- name: of_task
SELECT {columns} FROM links l LEFT JOIN tasks t ON t.id = l.task_id WHERE l.task_id = :task

-- name: get
SELECT {columns} FROM links l LEFT JOIN tasks t ON t.id = l.task_id WHERE l.id = :id

-- name: unsettled
SELECT {columns} FROM links l LEFT JOIN tasks t ON t.id = l.task_id
WHERE l.state IN ('intended', 'claimed', 'releasing', 'closing') OR (l.state IN ('released', 'lost') AND t.state = 'queued')
ORDER BY l.id

-- name: say_waiting
UPDATE tasks SET reason = :reason WHERE id = :task AND state = 'queued'

-- name: busy
SELECT (SELECT count(*) FROM tasks WHERE state = 'running')
     + (SELECT count(*) FROM tasks t WHERE t.state = 'queued'
          AND NOT EXISTS (SELECT 1 FROM links l WHERE l.task_id = t.id AND l.state IN ('releasing', 'released', 'lost')))

-- name: tracker
SELECT kind, trouble, failures FROM trackers WHERE repo_id = :repo

-- name: answered
INSERT INTO trackers (repo_id, kind) VALUES (:repo, :kind)
ON CONFLICT (repo_id) DO UPDATE SET kind = :kind, trouble = NULL, since = NULL, failures = 0, asked_at = NULL, next_at = NULL

-- name: troubled
INSERT INTO trackers (repo_id, kind, trouble, since, failures, asked_at, next_at)
VALUES (:repo, :kind, :why, :now, 1, :now, :next)
ON CONFLICT (repo_id) DO UPDATE SET kind = :kind, trouble = :why, since = coalesce(since, :now), failures = failures + 1,
    asked_at = :now, next_at = :next

-- name: waiting
SELECT repo_id, asked_at, next_at FROM trackers WHERE next_at IS NOT NULL

-- name: ask_at_once
UPDATE trackers SET next_at = NULL
