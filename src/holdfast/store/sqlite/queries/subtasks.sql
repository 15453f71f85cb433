-- name: line
-- The first task of a family, found from one of its members upwards. Bounded, even in a damaged store.
WITH RECURSIVE line(id, parent_id, depth) AS (
    SELECT id, parent_id, 0 FROM tasks WHERE id = :id
    UNION
    SELECT t.id, t.parent_id, line.depth + 1 FROM tasks t JOIN line ON t.id = line.parent_id WHERE line.depth < 1000)
SELECT id, depth FROM line ORDER BY depth DESC LIMIT 1

-- name: below
WITH RECURSIVE below(id) AS (
    SELECT id FROM tasks WHERE parent_id = :id
    UNION
    SELECT t.id FROM tasks t JOIN below ON t.parent_id = below.id)

-- name: how_many
{below}
SELECT count(*) FROM below

-- name: living
-- Also subtasks of subtasks that have ended: they belong to the same tree.
{below}
SELECT t.id, t.state FROM below JOIN tasks t ON t.id = below.id
WHERE t.state IN ('queued', 'running', 'paused') ORDER BY t.seq

-- name: parent_of
SELECT parent_id FROM tasks WHERE id = :id

-- name: is_asked_to_end
SELECT 1 FROM requests WHERE task_id = :id AND kind = 'cancel' AND answered_at IS NULL

-- name: spares
-- True if everyone who asked to cancel the task asked to leave its subtasks alone.
SELECT max(coalesce(json_extract(data, '$.subtasks'), 1)) = 0 FROM requests
WHERE task_id = :id AND kind = 'cancel' AND answered_at IS NULL
