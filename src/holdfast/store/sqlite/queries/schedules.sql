-- Schedules: the cursor and state of each, and one row per occurrence.

-- name: columns
s.repo, s.name, s.file, s.listed, s.definition, s.word, s.word_by, s.cursor, s.last_fire, s.last_fired_at, s.last_task,
s.crowded, s.replacing, s.trouble, s.failures, s.tried_at, s.next_try, t.state AS last_task_state,
(SELECT json_group_array(w.fire_time) FROM occurrences w
 WHERE w.repo = s.repo AND w.name = s.name AND w.state = 'waiting') AS waiting

-- name: all
SELECT {columns} FROM schedules s LEFT JOIN tasks t ON t.id = s.last_task WHERE s.listed = 1 ORDER BY s.name, s.repo

-- name: get
SELECT {columns} FROM schedules s LEFT JOIN tasks t ON t.id = s.last_task WHERE s.repo = :repo AND s.name = :schedule

-- name: open_task
-- The first of several tasks of a schedule that have not ended.
SELECT o.task_id AS last_task, x.state AS last_task_state FROM occurrences o JOIN tasks x ON x.id = o.task_id
WHERE o.repo = :repo AND o.name = :schedule AND x.state NOT IN ('completed', 'failed', 'cancelled')
ORDER BY o.decided_at, o.task_id LIMIT 1

-- name: of_file
SELECT repo, name FROM schedules WHERE file = :file AND listed = 1

-- name: files
SELECT DISTINCT file FROM schedules WHERE listed = 1 ORDER BY file

-- name: insert
INSERT INTO schedules (repo, name, file, listed, definition, cursor) VALUES (:repo, :schedule, :file, 1, :definition, :now)

-- name: define
UPDATE schedules SET file = :file, listed = 1, definition = :definition, failures = 0, tried_at = NULL, next_try = NULL
WHERE repo = :repo AND name = :schedule

-- name: leave_out
UPDATE schedules SET listed = 0 WHERE repo = :repo AND name = :schedule AND listed = 1

-- name: begin
UPDATE schedules SET cursor = :now, trouble = NULL, failures = 0, tried_at = NULL, next_try = NULL
WHERE repo = :repo AND name = :schedule

-- name: say
UPDATE schedules SET word = :word, word_by = :by WHERE repo = :repo AND name = :schedule

-- name: move
UPDATE schedules SET cursor = :cursor WHERE repo = :repo AND name = :schedule AND cursor = :before AND listed = 1

-- name: admit
INSERT INTO occurrences (repo, name, hand, fire_time, state, why, decided_at)
SELECT :repo, :schedule, 0, :fire_time, :state, :why, :now
WHERE NOT EXISTS (
    SELECT 1 FROM occurrence_spans p
    WHERE p.repo = :repo AND p.name = :schedule AND p.began <= :fire_time AND p.ended >= :fire_time)
ON CONFLICT DO NOTHING

-- name: waiting
SELECT fire_time FROM occurrences WHERE repo = :repo AND name = :schedule AND state = 'waiting' ORDER BY fire_time

-- name: owed
SELECT count(*) FROM occurrences o JOIN schedules s ON s.repo = o.repo AND s.name = o.name
LEFT JOIN tasks t ON t.id = s.last_task
WHERE o.state = 'waiting' AND s.listed = 1 AND s.trouble IS NULL
  AND (t.state IS NULL OR t.state IN ('completed', 'failed', 'cancelled'))
  AND NOT (s.crowded AND EXISTS (
      SELECT 1 FROM occurrences p JOIN tasks x ON x.id = p.task_id
      WHERE p.repo = s.repo AND p.name = s.name AND x.state NOT IN ('completed', 'failed', 'cancelled')))

-- name: decide
UPDATE occurrences SET state = :state, task_id = :task, why = :why, decided_at = :now
WHERE repo = :repo AND name = :schedule AND hand = 0 AND fire_time = :fire_time AND state = 'waiting'

-- name: drop_waiting
UPDATE occurrences SET state = 'skipped', why = :why, decided_at = :now
WHERE repo = :repo AND name = :schedule AND state = 'waiting'

-- name: by_hand
INSERT INTO occurrences (repo, name, hand, fire_time, state, task_id, why, decided_at)
SELECT :repo, :schedule, 1 + coalesce(max(hand), 0), :now, 'fired', :task, :why, :now
FROM occurrences WHERE repo = :repo AND name = :schedule

-- name: fired
UPDATE schedules SET last_fire = :fire_time, last_fired_at = :now, last_task = :task, crowded = :crowded, replacing = NULL,
    trouble = NULL, failures = 0, tried_at = NULL, next_try = NULL
WHERE repo = :repo AND name = :schedule

-- name: replacing
UPDATE schedules SET replacing = :task WHERE repo = :repo AND name = :schedule

-- name: refused
UPDATE schedules SET trouble = :why, failures = failures + 1, tried_at = :now, next_try = :next
WHERE repo = :repo AND name = :schedule

-- name: old_ones
-- An occurrence whose task has not ended is kept: the next occurrence waits for that task, or is skipped because of it.
SELECT hand, fire_time FROM occurrences o
WHERE repo = :repo AND name = :schedule AND state != 'waiting' AND NOT EXISTS (
    SELECT 1 FROM tasks x WHERE x.id = o.task_id AND x.state NOT IN ('completed', 'failed', 'cancelled'))
ORDER BY fire_time DESC LIMIT -1 OFFSET :keep

-- name: forget
DELETE FROM occurrences WHERE repo = :repo AND name = :schedule AND hand = :hand AND fire_time = :fire_time

-- name: spans
SELECT began, ended FROM occurrence_spans WHERE repo = :repo AND name = :schedule ORDER BY began

-- name: clear_spans
DELETE FROM occurrence_spans WHERE repo = :repo AND name = :schedule

-- name: add_span
INSERT INTO occurrence_spans (repo, name, began, ended) VALUES (:repo, :schedule, :began, :ended)
