-- The outbox: alerts on their way to people.

-- name: put
INSERT INTO notices (key, alert_id, alert_key, transition, level, at, body)
VALUES (:key, :alert_id, :alert_key, :transition, :level, :now, :body) ON CONFLICT (key) DO NOTHING

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
