-- name: known
SELECT i.key, i.task_id, t.state FROM intake i LEFT JOIN tasks t ON t.id = i.task_id
WHERE i.repo_id = :repo_id AND i.key IN (SELECT value FROM json_each(:keys))

-- name: take
INSERT INTO intake (repo_id, key, task_id, at) VALUES (:repo_id, :key, :task_id, :now)
