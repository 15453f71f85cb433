-- name: tasks
SELECT id, state, agent, prompt, branch, resume_attempts, pause_reason, resume_after, outcome, reason, failure_reason,
       priority, strategy, not_before, created_at, updated_at, ended_at, base_commit, session_id, seq, settings,
       (SELECT path FROM repos WHERE repos.id = tasks.repo_id) AS repo,
       (SELECT count(*) FROM runs WHERE runs.task_id = tasks.id) AS runs
FROM tasks WHERE :all OR state IN ('queued', 'running', 'paused')
   OR (state = 'failed' AND ended_at > :recent)
ORDER BY seq

-- name: task
SELECT id, state, agent, prompt, branch, resume_attempts, pause_reason, resume_after, outcome, reason, failure_reason,
       priority, strategy, not_before, created_at, updated_at, ended_at, base_commit, base_ref, session_id, seq, settings,
       parent_id, generation, fence, owner, repo_id,
       (SELECT path FROM repos WHERE repos.id = tasks.repo_id) AS repo
FROM tasks WHERE id = :id

-- name: ids_like
SELECT id FROM tasks WHERE id >= :prefix AND id < :prefix || '~' ORDER BY id LIMIT 12

-- name: completions
-- For the tab key: the newest that begin so.
SELECT id, state, substr(prompt, 1, 200) AS prompt FROM tasks
WHERE id >= :prefix AND id < :prefix || '~' AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
ORDER BY seq DESC LIMIT 100

-- name: runs
SELECT id, number, pid, state, outcome, reason, stop_why, started_at, ended_at, session_id, cost_usd, tokens, error_tail,
       claim, reports
FROM runs WHERE task_id = :id ORDER BY number

-- name: workspace
SELECT id, strategy, path, state, branch, base_commit, disposition, reason FROM workspaces WHERE task_id = :id
ORDER BY created_at DESC, rowid DESC LIMIT 1

-- name: needs
SELECT n.needs_id AS id, t.state FROM needs n JOIN tasks t ON t.id = n.needs_id WHERE n.task_id = :id ORDER BY t.seq

-- name: ahead
SELECT count(*) FROM tasks t, tasks me WHERE me.id = :id AND t.state = 'queued' AND t.id != me.id
  AND (t.priority > me.priority OR (t.priority = me.priority AND t.seq < me.seq))

-- name: spends
SELECT budget, wall, boottime, boot_id FROM spends WHERE task_id = :id AND generation = :generation ORDER BY id

-- name: workspaces
SELECT w.id, w.task_id AS task, w.strategy, w.path, w.state, w.branch, w.reason, w.disposition, w.created_at, w.updated_at,
       w.failures, w.retry_at, t.state AS task_state, r.path AS repo, r.common_dir
FROM workspaces w JOIN tasks t ON t.id = w.task_id JOIN repos r ON r.id = w.repo_id
WHERE :all OR w.state != 'gone' ORDER BY w.created_at

-- name: salvages
SELECT s.id, s.task_id AS task, s.ref, s.commit_id AS "commit", s.base, s.files, s.reason, s.created_at, s.repo_id, r.path AS repo
FROM salvages s JOIN repos r ON r.id = s.repo_id WHERE :task IS NULL OR s.task_id = :task ORDER BY s.created_at

-- name: events
SELECT seq, at, level, component, kind, task_id AS task, run_id AS run, message, reason, data
FROM events WHERE seq > :after AND (:task IS NULL OR task_id = :task) ORDER BY seq LIMIT :limit

-- name: events_of
-- Not "this task's, or all" in one statement: SQLite could not use the index for that.
SELECT seq, at, level, component, kind, task_id AS task, run_id AS run, message, reason, data
FROM events WHERE task_id = :task AND seq > :after ORDER BY seq LIMIT :limit

-- name: last_events_of
SELECT * FROM (
    SELECT seq, at, level, component, kind, task_id AS task, run_id AS run, message, reason, data
    FROM events WHERE task_id = :task ORDER BY seq DESC LIMIT :limit) ORDER BY seq

-- name: last_seq
-- The highest number ever given, also when that event was forgotten since.
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0) AS seq

-- name: last_events
SELECT * FROM (
    SELECT seq, at, level, component, kind, task_id AS task, run_id AS run, message, reason, data
    FROM events WHERE :task IS NULL OR task_id = :task ORDER BY seq DESC LIMIT :limit) ORDER BY seq

-- name: alerts
SELECT id, key, at, level, task_id AS task, message, remedy, count, acked_at, acked_by FROM alerts
WHERE :all OR acked_at IS NULL ORDER BY id

-- name: host
SELECT id, boot_id, pid, start_ticks, version, agents, lease_until, started_at FROM hosts WHERE state = 'active'
ORDER BY started_at DESC LIMIT 1

-- name: request
SELECT id, kind, task_id AS task, by, at, why, answered_at, answer FROM requests WHERE id = :id

-- name: pending_requests
SELECT id, kind, task_id AS task, by, at, why FROM requests WHERE answered_at IS NULL AND (:task IS NULL OR task_id = :task) ORDER BY id

-- name: counts
SELECT state, count(*) AS n FROM tasks GROUP BY state

-- name: repos
SELECT id, path, common_dir FROM repos ORDER BY path
