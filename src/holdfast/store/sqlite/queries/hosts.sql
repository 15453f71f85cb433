-- name: open
INSERT INTO hosts (id, state, boot_id, pid, start_ticks, version, agents, lease_until, started_at)
VALUES (:id, 'active', :boot_id, :pid, :start_ticks, :version, :agents, :lease_until, :now)

-- name: lose_others
-- Run only by the holder of the home's lock: no other supervisor of this home can be alive.
UPDATE hosts SET state = 'lost', held = NULL, ended_at = :now WHERE state = 'active' AND id != :id RETURNING id, pid, started_at

-- name: drop_old_downs
-- A `down` or `up` that was meant for a supervisor that is gone must not change the next one.
UPDATE requests SET answered_at = :now, answer = :answer WHERE answered_at IS NULL AND kind IN ('down', 'take-over')

-- name: beat
UPDATE hosts SET lease_until = :lease_until WHERE id = :id AND state = 'active'

-- name: is_active
SELECT EXISTS (SELECT 1 FROM hosts WHERE id = :id AND state = 'active')

-- name: close
UPDATE hosts SET state = 'stopped', held = NULL, ended_at = :now WHERE id = :id AND state = 'active'

-- name: hold
UPDATE hosts SET held = :reason WHERE id = :id AND state = 'active'

-- name: release
UPDATE hosts SET held = NULL WHERE id = :id AND state = 'active' AND held IS NOT NULL

-- name: ask
INSERT INTO requests (kind, task_id, by, at, why, data) VALUES (:kind, :task_id, :by, :now, :why, :data) RETURNING id

-- name: pending
SELECT * FROM requests WHERE answered_at IS NULL ORDER BY id

-- name: answer
UPDATE requests SET answered_at = :now, answer = :answer WHERE id = :id AND answered_at IS NULL

-- name: emit
INSERT INTO events (at, level, component, kind, task_id, run_id, message, reason, data)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: raise_alert
INSERT INTO alerts (key, at, level, task_id, message, remedy, details)
VALUES (:key, :now, :level, :task_id, :message, :remedy, :details)
ON CONFLICT (key) WHERE acked_at IS NULL DO UPDATE SET count = count + 1, message = :message, remedy = :remedy
RETURNING *

-- name: ack_alert
UPDATE alerts SET acked_at = :now, acked_by = :by, acked_why = :why WHERE id = :id AND acked_at IS NULL
RETURNING *

-- name: close_alert
UPDATE alerts SET acked_at = :now, acked_by = :by WHERE key = :key AND acked_at IS NULL
RETURNING *

-- name: close_alerts_of_run
UPDATE alerts SET acked_at = :now, acked_by = :by WHERE acked_at IS NULL AND key IN (:stuck, :unended)
RETURNING *

-- name: close_alerts_of_task
-- Alerts that the task stopped, and why: now it continues, or has ended. Alerts about its workspace or a run stay open.
-- A workspace that vanished is of no concern once the task has completed in another one.
UPDATE alerts SET acked_at = :now, acked_by = :by
WHERE acked_at IS NULL AND task_id = :task_id AND (key = :crash OR key >= :prefix AND key < :prefix || '~'
    OR :completed AND key >= 'vanished:' AND key < 'vanished:~')
RETURNING *

-- name: open_alerts
SELECT id, level FROM alerts WHERE acked_at IS NULL ORDER BY id

-- name: remember_operation
INSERT INTO operations (id, at) VALUES (:id, :now)

-- name: operation
SELECT 1 FROM operations WHERE id = :id

-- name: forget_operations
DELETE FROM operations WHERE at < :before
