-- name: get
SELECT name, state, reason, since, at_once, run_id FROM workers WHERE name = :worker

-- name: all
SELECT name, state, reason, since, at_once, run_id FROM workers ORDER BY name

-- name: insert
INSERT INTO workers (name, state, reason, since) VALUES (:worker, :state, :reason, :now)

-- name: move
UPDATE workers SET state = :state, reason = :reason, since = :now, at_once = :at_once, run_id = :run_id
WHERE name = :worker AND state = :was

-- name: forgive
UPDATE workers SET generation = generation + 1 WHERE name = :worker

-- name: crashes
SELECT c.wall, c.boottime, c.boot_id FROM worker_crashes c JOIN workers w ON w.name = c.worker
WHERE c.worker = :worker AND c.generation = w.generation ORDER BY c.id

-- name: crash_of
SELECT id FROM worker_crashes WHERE run_id = :run_id

-- name: crashed
INSERT INTO worker_crashes (worker, generation, run_id, task_id, wall, boottime, boot_id)
VALUES (:worker, (SELECT generation FROM workers WHERE name = :worker), :run_id, :task_id, :wall, :boottime, :boot_id)

-- name: pardon
DELETE FROM worker_crashes WHERE run_id IN (SELECT value FROM json_each(:run_ids))

-- name: pardoned
SELECT name, state, reason, since, at_once, run_id FROM workers
WHERE state IN ('stopped', 'benched') AND run_id IN (SELECT value FROM json_each(:run_ids)) ORDER BY name

-- name: release
-- Any worker may claim the tasks that were kept for this one. `updated_at` stays: it is the moment when the task's wait
-- was decided.
UPDATE tasks SET worker = NULL WHERE state = 'queued' AND worker = :worker RETURNING id
