-- The outbox: alerts on their way to people.

-- name: put
INSERT INTO notices (key, alert_id, alert_key, transition, level, at, body)
VALUES (:key, :alert_id, :alert_key, :transition, :level, :now, :body) ON CONFLICT (key) DO NOTHING

-- name: prompt
SELECT prompt FROM tasks WHERE id = :id

-- name: endings
-- `has_alert`: the transaction of the ending raised an alert of the task, which is told by itself.
SELECT e.seq, e.at, e.kind, e.task_id, coalesce(e.reason, e.message) AS reason, t.prompt,
       EXISTS (SELECT 1 FROM alerts a WHERE a.task_id = e.task_id AND a.at = e.at) AS has_alert
FROM events e INDEXED BY events_of_endings LEFT JOIN tasks t ON t.id = e.task_id
WHERE e.kind IN ('task.failed', 'task.completed', 'task.cancelled', 'task.paused', 'task.resumed')
  AND e.seq > (SELECT seq FROM endings_seen) ORDER BY e.seq LIMIT :limit

-- name: see_endings
UPDATE endings_seen SET seq = :seq WHERE seq < :seq

-- name: recent
SELECT count(*) FILTER (WHERE transition = 'raised' AND planned NOT LIKE 'nobody%'
                          AND json_extract(body, '$.alert.task') IS NOT NULL) AS alerts,
       max(at) FILTER (WHERE transition = 'ended') AS last
FROM (SELECT * FROM notices ORDER BY id DESC LIMIT 1000) WHERE at > :since AND at <= :now

-- name: is_idle
-- Two indexes are looked at: `state IN (…)` would read every task.
SELECT NOT EXISTS (SELECT 1 FROM tasks WHERE state = 'queued') AND NOT EXISTS (SELECT 1 FROM tasks WHERE state = 'running')

-- name: unplanned
SELECT id, key, alert_key, transition, level, body FROM notices WHERE planned IS NULL ORDER BY id LIMIT :limit

-- name: planned
UPDATE notices SET planned = :planned WHERE id = :id AND planned IS NULL

-- name: deliver
INSERT INTO deliveries (notice_id, target, state) VALUES (:id, :target, 'waiting')

-- name: heads
SELECT n.id, n.key, n.alert_key, n.transition, n.level, n.body, d.target, d.attempts, d.delay, d.wall, d.boottime, d.boot_id
FROM (SELECT target, min(notice_id) AS notice_id FROM deliveries WHERE state = 'waiting' GROUP BY target) first
JOIN deliveries d ON d.notice_id = first.notice_id AND d.target = first.target JOIN notices n ON n.id = d.notice_id
ORDER BY d.target

-- name: begin
UPDATE deliveries SET attempts = attempts + 1, delay = :delay, wall = :wall, boottime = :boottime, boot_id = :boot_id
WHERE notice_id = :id AND target = :target AND state = 'waiting' AND attempts = :attempts

-- name: failed
UPDATE deliveries SET delay = :delay, told = :told
WHERE notice_id = :id AND target = :target AND state = 'waiting' AND attempts = :attempts

-- name: over
UPDATE deliveries SET state = :state, told = :told, over_at = :now
WHERE notice_id = :id AND target = :target AND state = 'waiting' AND attempts = :attempts

-- name: waiting
SELECT (SELECT count(*) FROM notices WHERE planned IS NULL) + (SELECT count(*) FROM deliveries WHERE state = 'waiting')

-- name: old
SELECT id FROM notices n WHERE at < :before AND planned IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.notice_id = n.id AND d.state = 'waiting') ORDER BY id LIMIT :limit

-- name: forget_deliveries
DELETE FROM deliveries WHERE notice_id IN (SELECT value FROM json_each(:ids))

-- name: forget
DELETE FROM notices WHERE id IN (SELECT value FROM json_each(:ids))
