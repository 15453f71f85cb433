-- name: expired
-- The work of an unfinished task is kept: its next attempt may begin with it.
SELECT s.* FROM salvages s JOIN tasks t ON t.id = s.task_id
WHERE s.created_at < :before AND json_extract(s.details, '$.dropped') IS NULL
  AND t.state IN ('completed', 'failed', 'cancelled')
ORDER BY s.created_at LIMIT :limit

-- name: get
SELECT s.*, t.state AS task_state FROM salvages s JOIN tasks t ON t.id = s.task_id
WHERE s.id = :id AND json_extract(s.details, '$.dropped') IS NULL

-- name: drop
UPDATE salvages SET details = json_set(details, '$.dropped', :reason)
WHERE id = :id AND json_extract(details, '$.dropped') IS NULL

-- name: dropped
SELECT id, repo_id, ref, commit_id FROM salvages WHERE json_extract(details, '$.dropped') IS NOT NULL
ORDER BY repo_id, created_at

-- name: forget
DELETE FROM salvages WHERE id = :id AND commit_id = :commit AND json_extract(details, '$.dropped') IS NOT NULL
