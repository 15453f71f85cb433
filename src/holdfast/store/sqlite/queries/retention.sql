-- name: window
-- The next few events of any kind: a pass reads the history once, a bounded piece per transaction.
SELECT max(seq) AS last, min(at) AS oldest FROM (SELECT seq, at FROM events WHERE seq > :after ORDER BY seq LIMIT :limit)

-- name: drop_events
-- Three things are never deleted: events of unfinished tasks, the ending of a task that is still recorded, and the event
-- of an open alert.
DELETE FROM events WHERE seq > :after AND seq <= :last AND at < :before
  AND NOT EXISTS (
      SELECT 1 FROM tasks t WHERE t.id = events.task_id
        AND (t.state NOT IN ('completed', 'failed', 'cancelled')
             OR events.kind IN ('task.completed', 'task.failed', 'task.cancelled')))
  AND NOT (kind = 'alert.raised' AND EXISTS (SELECT 1 FROM alerts a WHERE a.key = events.reason AND a.acked_at IS NULL))

-- name: finished_runs
SELECT r.id FROM runs r JOIN tasks t ON t.id = r.task_id
WHERE r.id IN (SELECT value FROM json_each(:ids)) AND r.state = 'settled' AND r.settled_at < :before
  AND t.state IN ('completed', 'failed', 'cancelled')

-- name: lowest
SELECT min(seq) FROM (SELECT seq FROM tasks WHERE seq < :below ORDER BY seq DESC LIMIT :limit)

-- name: forgettable
-- Tasks that finished long ago and lead to nothing any more: no branch, no saved work, no workspace, no other task.
SELECT t.id, t.seq FROM (SELECT * FROM tasks WHERE seq < :below ORDER BY seq DESC LIMIT :limit) t
WHERE t.state IN ('completed', 'failed', 'cancelled') AND t.ended_at < :before AND t.branch IS NULL
  AND NOT EXISTS (SELECT 1 FROM salvages s WHERE s.task_id = t.id)
  AND NOT EXISTS (SELECT 1 FROM checkpoints k WHERE k.task_id = t.id)
  AND NOT EXISTS (SELECT 1 FROM workspaces w WHERE w.task_id = t.id AND w.state != 'gone')
  AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.task_id = t.id AND r.state != 'settled')
  AND NOT EXISTS (SELECT 1 FROM needs n WHERE n.needs_id = t.id)
  AND NOT EXISTS (SELECT 1 FROM links l WHERE l.task_id = t.id AND l.state IN ('intended', 'claimed', 'releasing', 'closing'))
  AND NOT EXISTS (SELECT 1 FROM tasks c WHERE c.parent_id = t.id)
  AND NOT EXISTS (SELECT 1 FROM requests q WHERE q.task_id = t.id AND q.answered_at IS NULL)
  AND NOT EXISTS (SELECT 1 FROM alerts a WHERE a.task_id = t.id AND a.acked_at IS NULL)
ORDER BY t.seq DESC

-- name: runs_of
SELECT id FROM runs WHERE task_id = :id ORDER BY number

-- name: forget_events_of
DELETE FROM events WHERE task_id = :id

-- name: forget_deaths_of
DELETE FROM deaths WHERE task_id = :id

-- name: forget_spends_of
DELETE FROM spends WHERE task_id = :id

-- name: forget_requests_of
DELETE FROM requests WHERE task_id = :id

-- name: forget_alerts_of
DELETE FROM alerts WHERE task_id = :id

-- name: forget_crashes_of
-- Used only when the whole repository is forgotten: otherwise crashes are kept for longer than their task.
DELETE FROM crashes WHERE task_id = :id

-- name: forget_going_back_of
DELETE FROM going_back WHERE task_id = :id

-- name: forget_checkpoints_of
DELETE FROM checkpoints WHERE task_id = :id

-- name: forget_needs_of
DELETE FROM needs WHERE task_id = :id

-- name: total_runs_of
-- Totals by day of how runs ended are kept: reliability is asked for long after the details are of no use.
INSERT INTO forgotten_runs (day, agent, outcome, runs, restarts, timed, seconds)
SELECT CAST(ended_at / 86400 AS INTEGER), agent, outcome, count(*), sum(number > 1), count(started_at),
       coalesce(sum(max(0.0, ended_at - started_at)), 0.0)
FROM runs WHERE task_id = :id AND ended_at IS NOT NULL AND agent IS NOT NULL AND outcome IS NOT NULL
GROUP BY 1, 2, 3
ON CONFLICT (day, agent, outcome) DO UPDATE SET runs = runs + excluded.runs, restarts = restarts + excluded.restarts,
    timed = timed + excluded.timed, seconds = seconds + excluded.seconds

-- name: forget_worker_crashes_of
DELETE FROM worker_crashes WHERE task_id = :id

-- name: forget_runs_of
DELETE FROM runs WHERE task_id = :id

-- name: forget_workspaces_of
DELETE FROM workspaces WHERE task_id = :id

-- name: forget_results_of
DELETE FROM results WHERE task_id = :id

-- name: forget_messages_of
DELETE FROM messages WHERE task_id = :id

-- name: forget_intake_of_repo
-- Used only when the whole repository is forgotten: keys that were taken in are kept for longer than their task.
DELETE FROM intake WHERE repo_id = :repo

-- name: forget_links_of
DELETE FROM links WHERE task_id = :id

-- name: forget_links_of_repo
DELETE FROM links WHERE repo_id = :repo

-- name: forget_tracker_of_repo
DELETE FROM trackers WHERE repo_id = :repo

-- name: forget_task
DELETE FROM tasks WHERE id = :id

-- name: drop_requests
DELETE FROM requests WHERE id IN (SELECT id FROM requests WHERE answered_at < :before ORDER BY id LIMIT :limit)

-- name: drop_alerts
DELETE FROM alerts WHERE id IN (SELECT id FROM alerts WHERE acked_at < :before ORDER BY id LIMIT :limit)

-- name: drop_hosts
-- A host that a running task still names as its owner is kept: the next supervisor takes over from that row.
DELETE FROM hosts WHERE id IN (
    SELECT h.id FROM hosts h WHERE h.state != 'active' AND h.ended_at < :before
      AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.state = 'running' AND t.owner = h.id) LIMIT :limit)

-- name: drop_usage
-- A row is kept until its task and the first task of its family are forgotten. It is also kept while a day's spending cap
-- could still count it, even if both are forgotten very soon.
DELETE FROM usage WHERE run_id IN (
    SELECT u.run_id FROM usage u
    WHERE u.wall < :before AND u.wall < (SELECT max(wall) FROM usage) - 172800
      AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.id IN (u.task_id, u.root_id)) LIMIT :limit)

-- name: runs_of_repo
SELECT r.id FROM runs r JOIN tasks t ON t.id = r.task_id WHERE t.repo_id = :repo

-- name: workspaces_of_repo
SELECT id FROM workspaces WHERE repo_id = :repo

-- name: tasks_of_repo
SELECT id FROM tasks WHERE repo_id = :repo

-- name: waiting_for_repo
SELECT t.id FROM tasks t WHERE t.rowid IN (
SELECT rowid FROM tasks WHERE state = 'queued' UNION ALL SELECT rowid FROM tasks WHERE state = 'running'
UNION ALL SELECT rowid FROM tasks WHERE state = 'paused') AND (t.repo_id = :repo OR EXISTS (
    SELECT 1 FROM needs n JOIN tasks o ON o.id = n.needs_id WHERE n.task_id = t.id AND o.repo_id = :repo)) LIMIT 1

-- name: loosen_children_of_repo
UPDATE tasks SET parent_id = NULL WHERE parent_id IN (SELECT id FROM tasks WHERE repo_id = :repo)

-- name: loosen_needs_of_repo
DELETE FROM needs WHERE needs_id IN (SELECT id FROM tasks WHERE repo_id = :repo)

-- name: forget_salvages_of_repo
DELETE FROM salvages WHERE repo_id = :repo

-- name: forget_schedules_of_repo
DELETE FROM schedules WHERE repo = :path

-- name: forget_occurrences_of_repo
DELETE FROM occurrences WHERE repo = :path

-- name: forget_spans_of_repo
DELETE FROM occurrence_spans WHERE repo = :path

-- name: forget_repo
DELETE FROM repos WHERE id = :repo
