-- name: last_gate
-- The newest answer of a gate in the task's current generation.
(SELECT json_object('command', gate ->> '$.command', 'passed', json(iif(gate ->> '$.passed', 'true', 'false')), 'how', gate ->> '$.how')
    FROM results WHERE results.task_id = t.id AND results.generation = t.generation AND gate IS NOT NULL
    ORDER BY results.number DESC LIMIT 1)

-- name: truth
-- What the work of an ended task came to, from the results of its current generation and their runs.
CASE WHEN t.state IN ('completed', 'failed', 'cancelled') THEN
    (SELECT json_object('changed', (SELECT r.changed FROM results r WHERE r.task_id = t.id
                            AND r.generation = t.generation AND r.member = '' ORDER BY r.number DESC LIMIT 1),
                        'refused', sum(ru.refused ->> '$.count'), 'first', json_group_array(ru.refused -> '$.first'))
     FROM results re JOIN runs ru ON ru.id = re.run_id
     WHERE re.task_id = t.id AND re.generation = t.generation AND ru.refused IS NOT NULL) END

-- name: merged_into
-- The branch that the work of a completed task was merged into since its end. Null: no merge is recorded.
CASE WHEN t.state = 'completed' THEN
    (SELECT e.data ->> '$.into' FROM events e
     WHERE e.task_id = t.id AND e.kind = 'branch.merged' AND e.at >= t.ended_at ORDER BY e.seq DESC LIMIT 1) END

-- name: unfinished
-- Read from the indexes of waiting, running and paused tasks alone: `state IN (…)` would read every task.
SELECT rowid FROM tasks WHERE state = 'queued' UNION ALL SELECT rowid FROM tasks WHERE state = 'running'
UNION ALL SELECT rowid FROM tasks WHERE state = 'paused'

-- name: listed
SELECT id, state, agent, prompt, branch, resume_attempts, pause_reason, resume_after, outcome, reason, failure_reason,
       priority, strategy, not_before, created_at, updated_at, ended_at, base_commit, session_id, seq, settings, parent_id,
       (SELECT path FROM repos WHERE repos.id = t.repo_id) AS repo,
       (SELECT json_array(count(*), sum(tokens), sum(cost_usd)) FROM runs WHERE runs.task_id = t.id) AS runs,
       coalesce(account, (SELECT r.account FROM runs r WHERE r.task_id = t.id ORDER BY number DESC LIMIT 1)) AS account,
       account AS bound, worker, progress, {last_gate} AS gate, {truth} AS truth, {merged_into} AS merged_into
FROM tasks t

-- name: tasks
{listed} ORDER BY seq

-- name: active_tasks
-- Unfinished tasks, and tasks that failed since :recent.
{listed} WHERE t.rowid IN ({unfinished} UNION ALL SELECT rowid FROM tasks WHERE state = 'failed' AND ended_at > :recent)
ORDER BY seq

-- name: tasks_of
{listed} WHERE t.id IN (SELECT value FROM json_each(:ids)) ORDER BY seq

-- name: task
SELECT id, state, agent, prompt, branch, resume_attempts, pause_reason, resume_after, outcome, reason, failure_reason,
       priority, strategy, not_before, created_at, updated_at, ended_at, base_commit, base_ref, session_id, seq, settings,
       parent_id, generation, fence, owner, repo_id, account, account AS bound, worker, progress, {last_gate} AS gate, {truth} AS truth,
       (SELECT path FROM repos WHERE repos.id = t.repo_id) AS repo
FROM tasks t WHERE id = :id

-- name: states_of
SELECT id, state FROM tasks WHERE id IN (SELECT value FROM json_each(:ids))

-- name: slim
-- A task as a list of thousands shows it. Money and tokens come from `usage`, where each run is counted once.
-- `open_runs`: the runs whose output files the screen checks.
SELECT t.id, t.seq, t.state, t.agent, substr(t.prompt, 1, 300) AS prompt, t.branch, substr(t.reason, 1, 500) AS reason, t.outcome,
       t.failure_reason, t.pause_reason, t.resume_after, t.resume_attempts, t.not_before, t.priority, t.strategy, t.parent_id,
       t.created_at, t.updated_at, t.ended_at, t.worker, t.account, t.progress, t.repo_id,
       t.settings ->> '$.labels' AS labels, t.settings ->> '$.provider' AS provider, t.settings ->> '$.workflow' AS workflow,
       t.settings -> '$.stages' AS stages,
       CASE WHEN t.state = 'paused' THEN t.settings ->> '$.max_resumes' END AS max_resumes,
       (SELECT path FROM repos WHERE repos.id = t.repo_id) AS repo,
       (SELECT count(*) FROM runs WHERE runs.task_id = t.id) AS runs,
       (SELECT json_array(sum(input + output), sum(cost_usd)) FROM usage WHERE usage.task_id = t.id) AS took,
       CASE WHEN t.state = 'running' THEN (SELECT json_group_array(r.id) FROM runs r
            WHERE r.task_id = t.id AND r.state IN ('started', 'stopping')) END AS open_runs,
       CASE WHEN t.state = 'running' THEN (SELECT json_array(r.state, r.started_at, r.stop_why, r.reports -> '$.progress') FROM runs r
            WHERE r.task_id = t.id ORDER BY r.number DESC LIMIT 1) END AS last_run,
       CASE WHEN t.state = 'queued' THEN (SELECT json_group_object(n.id, n.state) FROM needs JOIN tasks n ON n.id = needs.needs_id
            WHERE needs.task_id = t.id AND n.state != 'completed') END AS needs,
       CASE WHEN t.state = 'queued' THEN (SELECT min(l.issue) FROM links l
            WHERE l.task_id = t.id AND l.state != 'claimed') END AS issue,
       (SELECT w.state FROM workspaces w WHERE w.task_id = t.id AND w.state IN ('intended', 'ready', 'preserved')) AS workspace,
       {truth} AS truth, {merged_into} AS merged_into
FROM tasks t

-- name: slim_all
{slim} ORDER BY t.seq DESC LIMIT :most

-- name: slim_active
-- Unfinished tasks, tasks that failed since :recent, and tasks that ended in another way since :just.
{slim} WHERE t.rowid IN ({unfinished}
    UNION ALL SELECT rowid FROM tasks WHERE state = 'failed' AND ended_at > :recent
    UNION ALL SELECT rowid FROM tasks WHERE state = 'completed' AND ended_at > :just
    UNION ALL SELECT rowid FROM tasks WHERE state = 'cancelled' AND ended_at > :just)
ORDER BY t.rowid

-- name: slim_of
{slim} WHERE t.id IN (SELECT value FROM json_each(:ids))

-- name: touched
-- Tasks that recent events are about. `whole`: all tasks have to be read again.
SELECT DISTINCT task_id AS task, kind IN ('retention.completed', 'repo.forgotten', 'store.restored') AS whole
FROM events WHERE seq > :after AND seq <= :until

-- name: children
SELECT id, state, outcome, substr(prompt, 1, 200) AS prompt FROM tasks WHERE parent_id = :id ORDER BY seq

-- name: living_below
WITH RECURSIVE below(id) AS (
    SELECT id FROM tasks WHERE parent_id = :id
    UNION
    SELECT t.id FROM tasks t JOIN below ON t.parent_id = below.id)
SELECT t.id, t.state FROM below JOIN tasks t ON t.id = below.id
WHERE t.state IN ('queued', 'running', 'paused') ORDER BY t.seq

-- name: to_start_from
-- Tasks with unfinished subtasks that will start from the parent's branch and have not started yet.
SELECT DISTINCT parent_id AS id FROM tasks
WHERE parent_id IS NOT NULL AND base_commit IS NULL AND state IN ('queued', 'running', 'paused')
  AND json_extract(settings, '$.base_from_parent')

-- name: ids_like
SELECT id FROM tasks WHERE id >= :prefix AND id < :prefix || '~' ORDER BY id LIMIT 12

-- name: id_neighbours
-- The ids before and behind each of :ids: they say how much of an id is enough.
SELECT value AS id, (SELECT max(id) FROM tasks WHERE id < value) AS before, (SELECT min(id) FROM tasks WHERE id > value) AS behind
FROM json_each(:ids)

-- name: completions
-- For shell completion: the newest tasks whose id has this prefix.
SELECT id, state, substr(prompt, 1, 200) AS prompt FROM tasks
WHERE id >= :prefix AND id < :prefix || '~' AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
ORDER BY seq DESC LIMIT 100

-- name: runs
SELECT id, number, pid, state, outcome, reason, stop_why, started_at, ended_at, session_id, cost_usd, tokens, error_tail,
       timeout, timeout_why, claim, reports, account, usage, worker, stage, member, agent, refused
FROM runs WHERE task_id = :id ORDER BY number

-- name: earlier_runs
-- Runs in which an agent worked, since the last fresh start, in order. Without those whose first request was refused.
SELECT * FROM (
    SELECT r.id, r.number, r.agent, r.outcome, r.reason, r.claim ->> '$.message' AS claimed,
           r.reports ->> '$.progress.message' AS progress
    FROM runs r JOIN tasks t ON t.id = r.task_id
    WHERE r.task_id = :id AND r.number < :before AND r.number > max(t.fresh_after, :after) AND r.started_at IS NOT NULL
      AND NOT (r.outcome IN ('rate_limited', 'usage_limited', 'auth', 'billing') AND EXISTS (
          SELECT 1 FROM events e WHERE e.task_id = r.task_id AND e.run_id = r.id AND e.kind = 'run.ended'
            AND json_extract(e.data, '$.answered') = 0))
    ORDER BY r.number DESC LIMIT :limit) ORDER BY number

-- name: workspace
SELECT id, strategy, path, state, branch, base_commit, disposition, reason, expires_at, container
FROM workspaces WHERE task_id = :id
ORDER BY member != '', created_at DESC, rowid DESC LIMIT 1

-- name: needs
SELECT n.needs_id AS id, t.state FROM needs n JOIN tasks t ON t.id = n.needs_id WHERE n.task_id = :id ORDER BY t.seq

-- name: in_its_checkout
-- Running tasks without a workspace of their own that use the same checkout as this one: one at a time per checkout.
SELECT o.id FROM tasks o, tasks me WHERE me.id = :id AND me.strategy = 'none' AND me.state = 'queued'
  AND o.state = 'running' AND o.strategy = 'none' AND o.repo_id = me.repo_id ORDER BY o.seq

-- name: ahead
SELECT count(*) FROM tasks t, tasks me WHERE me.id = :id AND t.state = 'queued' AND t.id != me.id
  AND (-t.priority, t.progress IS NULL, t.seq) < (-me.priority, me.progress IS NULL, me.seq)

-- name: spends
SELECT budget, wall, boottime, boot_id FROM spends WHERE task_id = :id AND generation = :generation ORDER BY id

-- name: workspaces
SELECT w.id, w.task_id AS task, w.strategy, w.path, w.state, w.branch, w.reason, w.disposition, w.created_at, w.updated_at,
       w.failures, w.retry_at, w.expires_at, w.container, t.state AS task_state, r.path AS repo, r.common_dir
FROM workspaces w JOIN tasks t ON t.id = w.task_id JOIN repos r ON r.id = w.repo_id
WHERE :all OR w.state != 'gone' ORDER BY w.created_at

-- name: salvages
-- Dropped salvages are left out, although their commits may exist for a while. `taken_up`: a later workspace of the task
-- began with it (supervisor/workspaces/prepare.py writes the reason).
SELECT s.id, s.task_id AS task, s.ref, s.commit_id AS "commit", s.base, s.files, s.reason, s.created_at, s.repo_id,
       r.path AS repo, s.partial, s.details, s.workspace_id AS workspace, t.state AS task_state,
       EXISTS (SELECT 1 FROM events e WHERE e.task_id = s.task_id AND e.kind = 'workspace.created'
               AND e.reason = 'with the work saved as ' || substr(s.commit_id, 1, 12)) AS taken_up
FROM salvages s JOIN repos r ON r.id = s.repo_id JOIN tasks t ON t.id = s.task_id
WHERE (:task IS NULL OR s.task_id = :task) AND json_extract(s.details, '$.dropped') IS NULL ORDER BY s.created_at, s.rowid

-- name: checkpoints
SELECT c.number, c.created_at AS at, c.why, c.commit_id AS "commit", coalesce(c.session_id, r.session_id) AS session,
       c.files, c.partial, c.stage, c.run_id AS run, c.output_offset, c.base, c.ref, c.repo_id, c.details
FROM checkpoints c LEFT JOIN runs r ON r.id = c.run_id
WHERE c.task_id = :task AND c.dropped IS NULL ORDER BY c.number

-- name: events
SELECT seq, at, level, component, kind, task_id AS task, run_id AS run, message, reason, data
FROM events WHERE seq > :after AND (:task IS NULL OR task_id = :task) ORDER BY seq LIMIT :limit

-- name: events_of
-- Separate from `events`: for "this task or all" in one statement SQLite could not use the index.
SELECT seq, at, level, component, kind, task_id AS task, run_id AS run, message, reason, data
FROM events WHERE task_id = :task AND seq > :after ORDER BY seq LIMIT :limit

-- name: last_events_of
SELECT * FROM (
    SELECT seq, at, level, component, kind, task_id AS task, run_id AS run, message, reason, data
    FROM events WHERE task_id = :task ORDER BY seq DESC LIMIT :limit) ORDER BY seq

-- name: last_seq
-- The highest number ever given, even if that event was deleted since.
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0) AS seq

-- name: last_events
SELECT * FROM (
    SELECT seq, at, level, component, kind, task_id AS task, run_id AS run, message, reason, data
    FROM events WHERE :task IS NULL OR task_id = :task ORDER BY seq DESC LIMIT :limit) ORDER BY seq

-- name: alerts
SELECT id, key, at, level, task_id AS task, message, remedy, count, details, acked_at, acked_by, acked_why FROM alerts
WHERE :all OR acked_at IS NULL ORDER BY id

-- name: full_repos
-- Repositories whose file system is short of space (supervisor/claims/pressure_gate.py).
SELECT r.path AS repo, a.message FROM alerts a JOIN repos r ON a.key = 'disk:floor:' || r.id WHERE a.acked_at IS NULL

-- name: waiting_repos
SELECT id, path FROM repos r WHERE EXISTS (SELECT 1 FROM tasks t WHERE t.repo_id = r.id AND t.state = 'queued')

-- name: alert
SELECT id, key, at, level, task_id AS task, message, remedy, count, details, acked_at, acked_by, acked_why FROM alerts
WHERE id = :id

-- name: critical_alerts
SELECT id, at FROM alerts WHERE acked_at IS NULL AND level = 'critical' ORDER BY id DESC

-- name: critical_mark
-- A value that changes whenever other critical alerts are open.
SELECT count(*) AS n, total(id) AS ids, total(at) AS moments FROM alerts WHERE acked_at IS NULL AND level = 'critical'

-- name: pressing_alerts
-- Open alerts first, then by level, then the newest first. Sorted without their long columns.
SELECT a.id, a.key, a.at, a.level, a.task_id AS task, a.message, a.remedy, a.count, a.details, a.acked_at, a.acked_by,
       a.acked_why
FROM (SELECT id, row_number() OVER (
          ORDER BY acked_at IS NOT NULL, acked_at DESC,
                   CASE level WHEN 'critical' THEN 0 WHEN 'warning' THEN 1 WHEN 'info' THEN 2 ELSE 3 END, id DESC) AS place
      FROM alerts WHERE :all OR acked_at IS NULL) ranked
JOIN alerts a ON a.id = ranked.id
WHERE ranked.place <= :limit ORDER BY ranked.place

-- name: deaths
SELECT seq, at, kind, task_id AS task, run_id AS run, message, reason, data FROM events
WHERE seq > :after AND seq <= :last AND kind IN ('agent.terminated', 'crash.recorded') ORDER BY seq DESC LIMIT 100

-- name: open_alerts
SELECT level, count(*) AS n FROM alerts WHERE acked_at IS NULL GROUP BY level

-- name: alerts_by_task
SELECT task_id AS task, count(*) AS n FROM alerts WHERE acked_at IS NULL AND task_id IS NOT NULL GROUP BY task_id

-- name: crashes
-- A claim is released when the issue of its task is free too: the tracker may not have answered yet.
SELECT id, at, recorded_at, worker, task_id AS task, run_id AS run, agent, outcome, reason, error_text, workspace, branch,
       claim_released AND NOT EXISTS (
           SELECT 1 FROM links l JOIN tasks t ON t.id = l.task_id
           WHERE l.task_id = crashes.task_id AND l.state IN ('claimed', 'releasing') AND t.state <> 'running'
             AND crashes.id = (SELECT max(c.id) FROM crashes c WHERE c.task_id = l.task_id)) AS claim_released,
       restarted, decision, recent, (SELECT l.issue FROM links l WHERE l.task_id = crashes.task_id) AS issue
FROM crashes WHERE (:task IS NULL OR task_id = :task) AND at >= :since ORDER BY id

-- name: host
SELECT id, boot_id, pid, start_ticks, version, agents, lease_until, started_at, held FROM hosts WHERE state = 'active'
ORDER BY started_at DESC LIMIT 1

-- name: last_change_of_host
SELECT kind, reason FROM events WHERE seq > :after AND kind IN ('host.started', 'host.stopped', 'host.lost')
ORDER BY seq DESC LIMIT 1

-- name: accounts
-- Accounts that are parked or stopped.
SELECT agent, name, until, outcome, reason, task_id AS task, at FROM accounts ORDER BY agent, name

-- name: workers
SELECT name, state, reason, since, at_once,
       (SELECT t.id FROM tasks t WHERE t.state = 'running' AND t.worker = workers.name ORDER BY t.seq DESC LIMIT 1) AS task
FROM workers ORDER BY name

-- name: worker_crashes
SELECT c.wall, c.boottime, c.boot_id FROM worker_crashes c JOIN workers w ON w.name = c.worker
WHERE c.worker = :worker AND c.generation = w.generation ORDER BY c.id

-- name: newest_crashes
SELECT id, at, recorded_at, worker, task_id AS task, run_id AS run, agent, outcome, reason, error_text, workspace, branch,
       claim_released AND NOT EXISTS (
           SELECT 1 FROM links l JOIN tasks t ON t.id = l.task_id
           WHERE l.task_id = crashes.task_id AND l.state IN ('claimed', 'releasing') AND t.state <> 'running'
             AND crashes.id = (SELECT max(c.id) FROM crashes c WHERE c.task_id = l.task_id)) AS claim_released,
       restarted, decision, recent, (SELECT l.issue FROM links l WHERE l.task_id = crashes.task_id) AS issue
FROM crashes ORDER BY id DESC LIMIT :limit

-- name: recovered_crashes
-- Crashes that were recovered recently, counted among the newest thousand only: a screen asks often.
SELECT count(*) AS n FROM crashes
WHERE id > (SELECT max(id) FROM crashes) - 1000 AND recorded_at >= :since AND restarted

-- name: crashes_of_staff
SELECT c.worker, c.wall, c.boottime, c.boot_id FROM worker_crashes c JOIN workers w ON w.name = c.worker
WHERE c.generation = w.generation ORDER BY c.id

-- name: crashes_of_worker
-- Newest first.
SELECT id, at, recorded_at, worker, task_id AS task, run_id AS run, agent, outcome, reason, error_text, workspace, branch,
       claim_released AND NOT EXISTS (
           SELECT 1 FROM links l JOIN tasks t ON t.id = l.task_id
           WHERE l.task_id = crashes.task_id AND l.state IN ('claimed', 'releasing') AND t.state <> 'running'
             AND crashes.id = (SELECT max(c.id) FROM crashes c WHERE c.task_id = l.task_id)) AS claim_released,
       restarted, decision, recent, (SELECT l.issue FROM links l WHERE l.task_id = crashes.task_id) AS issue
FROM crashes WHERE worker = :worker ORDER BY id DESC LIMIT :limit

-- name: request
SELECT id, kind, task_id AS task, by, at, why, answered_at, answer FROM requests WHERE id = :id

-- name: answers
SELECT id, answer FROM requests WHERE id IN (SELECT value FROM json_each(:ids)) AND answered_at IS NOT NULL

-- name: pending_requests
SELECT id, kind, task_id AS task, by, at, why FROM requests WHERE answered_at IS NULL AND (:task IS NULL OR task_id = :task) ORDER BY id

-- name: counts
SELECT state, count(*) AS n FROM tasks GROUP BY state

-- name: living_counts
-- Each count is read from the index of its state.
SELECT 'queued' AS state, count(*) AS n FROM tasks WHERE state = 'queued'
UNION ALL SELECT 'running', count(*) FROM tasks WHERE state = 'running'
UNION ALL SELECT 'paused', count(*) FROM tasks WHERE state = 'paused'

-- name: unfinished_agents
SELECT agent, count(*) AS n FROM tasks WHERE state IN ('queued', 'running', 'paused') GROUP BY agent

-- name: repos
SELECT id, path, common_dir FROM repos ORDER BY path

-- name: over
-- Ended runs, read from the index `runs_over` alone. `since` is the beginning of a bucket. Width 0: one bucket for all.
SELECT CASE WHEN :width THEN CAST(ended_at / :width AS INTEGER) * :width END AS since, agent, outcome, number,
       max(0.0, ended_at - started_at) AS seconds
FROM runs INDEXED BY runs_over
WHERE ended_at IS NOT NULL AND ended_at >= :after AND (:agent IS NULL OR agent = :agent)

-- name: ends
-- Of runs that were forgotten, totals by day (UTC) are left: they are included for whole days, and not by the hour.
SELECT since, agent, outcome, sum(runs) AS runs, sum(restarts) AS restarts, sum(timed) AS timed, sum(seconds) AS seconds,
       sum(forgotten) AS forgotten
FROM (
    SELECT since, agent, outcome, count(*) AS runs, sum(number > 1) AS restarts, count(seconds) AS timed,
           coalesce(sum(seconds), 0.0) AS seconds, 0 AS forgotten
    FROM ({over}) GROUP BY since, agent, outcome
    UNION ALL
    SELECT CASE WHEN :width THEN day * 86400 END, agent, outcome, runs, restarts, timed, seconds, runs
    FROM forgotten_runs
    WHERE :width != 3600 AND day * 86400 >= :after AND (:agent IS NULL OR agent = :agent))
GROUP BY since, agent, outcome ORDER BY since, agent, runs DESC

-- name: took
-- Tokens and money of runs that are still recorded. Agents in :by_session report the sum of their session in every run.
SELECT since, agent, sum(tokens) AS tokens, sum(input) AS input, sum(output) AS output, sum(cached) AS cached,
       sum(cost_usd) AS cost_usd
FROM (
    SELECT CASE WHEN :width THEN CAST(ended_at / :width AS INTEGER) * :width END AS since, agent, tokens, cost_usd,
           coalesce(usage ->> '$.input', 0) AS input, coalesce(usage ->> '$.output', 0) AS output,
           coalesce(usage ->> '$.cached', 0) AS cached, max(number)
    FROM runs
    WHERE tokens IS NOT NULL AND ended_at >= :after AND (:agent IS NULL OR agent = :agent)
    GROUP BY since, agent,
             CASE WHEN agent IN (SELECT value FROM json_each(:by_session)) THEN coalesce(session_id, id) ELSE id END)
GROUP BY since, agent

-- name: percentiles
-- Nearest rank: the shortest duration that this percentage of the runs does not exceed.
SELECT since, agent, max(CASE WHEN k = (n + 1) / 2 THEN seconds END) AS p50,
       max(CASE WHEN k = (n * 95 + 99) / 100 THEN seconds END) AS p95
FROM (
    SELECT since, agent, seconds, row_number() OVER (PARTITION BY since, agent ORDER BY seconds) AS k,
           count(*) OVER (PARTITION BY since, agent) AS n
    FROM ({over}) WHERE seconds IS NOT NULL)
GROUP BY since, agent

-- name: ended_tasks
-- Tasks that ended in a bucket of time, by agent.
SELECT CASE WHEN :width THEN CAST(ended_at / :width AS INTEGER) * :width END AS since, agent, count(*) AS tasks,
       sum(state = 'completed') AS completed
FROM tasks WHERE state IN ('completed', 'failed', 'cancelled') AND ended_at >= :after AND (:agent IS NULL OR agent = :agent)
GROUP BY since, agent

-- name: task_sums
-- Tasks that ended since :after, with the tokens and money of all their runs, by :by. A task counts once for each model.
SELECT name, count(DISTINCT id) AS tasks, count(DISTINCT CASE WHEN state = 'completed' THEN id END) AS completed,
       count(DISTINCT CASE WHEN state = 'failed' THEN id END) AS failed, count(run) AS runs,
       sum(tokens) AS tokens, sum(cost_usd) AS cost_usd
FROM (
    SELECT t.id, t.state, r.id AS run, u.input + u.output AS tokens, u.cost_usd,
           CASE :by WHEN 'agent' THEN t.agent
                    WHEN 'repo' THEN (SELECT path FROM repos WHERE repos.id = t.repo_id)
                    WHEN 'model' THEN r.usage ->> '$.model'
                    ELSE (SELECT value FROM json_each(t.settings, '$.labels') WHERE key = :label) END AS name
    FROM tasks t LEFT JOIN runs r ON r.task_id = t.id LEFT JOIN usage u ON u.run_id = r.id
    WHERE t.state IN ('completed', 'failed', 'cancelled') AND t.ended_at >= :after AND (:agent IS NULL OR t.agent = :agent))
GROUP BY name ORDER BY cost_usd DESC, tokens DESC, tasks DESC, name

-- name: sweep_holdings
SELECT w.*, t.state AS task_state FROM workspaces w JOIN tasks t ON t.id = w.task_id
WHERE w.state != 'gone' ORDER BY w.created_at, w.rowid

-- name: sweep_tasks
SELECT id, state, branch, base_commit FROM tasks WHERE id IN (SELECT value FROM json_each(:ids))

-- name: sweep_runs
SELECT id, state FROM runs WHERE state != 'settled'

-- name: recorded_runs
SELECT id FROM runs

-- name: sweep_fates
SELECT id, state, failures, reason, path FROM workspaces WHERE id IN (SELECT value FROM json_each(:ids))

-- name: links
-- Issues of outside trackers, and their tasks.
SELECT l.id, r.path AS repo, l.issue, l.task_id AS task, l.state, l.assignee, l.reason, l.updated_at AS at, t.state AS task_state
FROM links l JOIN repos r ON r.id = l.repo_id LEFT JOIN tasks t ON t.id = l.task_id ORDER BY l.id

-- name: trackers
SELECT r.path AS repo, k.kind, k.trouble, k.since, k.failures, k.next_at, (SELECT name FROM tracker_name) AS name
FROM trackers k JOIN repos r ON r.id = k.repo_id ORDER BY r.path

-- name: schedules
SELECT s.repo, s.name, s.file, s.definition, s.word, s.word_by, s.cursor, s.last_fire, s.last_fired_at, s.last_task,
    s.trouble, s.failures, s.next_try, t.state AS last_task_state,
    (SELECT json_group_array(o.fire_time) FROM occurrences o
     WHERE o.repo = s.repo AND o.name = s.name AND o.state = 'waiting') AS waiting
FROM schedules s LEFT JOIN tasks t ON t.id = s.last_task WHERE s.listed = 1 ORDER BY s.name, s.repo

-- name: fires
SELECT o.fire_time, o.hand, o.state, o.task_id AS task, t.state AS task_state, o.why, o.decided_at
FROM occurrences o LEFT JOIN tasks t ON t.id = o.task_id
WHERE o.repo = :repo AND o.name = :schedule AND o.state != 'waiting'
ORDER BY o.decided_at DESC, o.fire_time DESC LIMIT :most

-- name: usage_by_generation
SELECT generation, coalesce(sum(input + output), 0) AS tokens, coalesce(sum(cost_usd), 0.0) AS usd,
       count(*) - count(cost_usd) AS unpriced
FROM usage WHERE task_id = :id GROUP BY generation ORDER BY generation

-- name: usage_of_task
-- The same condition as in queries/spending.sql.
SELECT coalesce(sum(input + output), 0) AS tokens, coalesce(sum(cost_usd), 0.0) AS usd,
       count(*) - count(cost_usd) AS unpriced
FROM usage WHERE (task_id = :id AND generation = :generation) OR (root_id = :id AND root_generation = :generation)

-- name: first_of_family
WITH RECURSIVE line(id, parent_id, depth) AS (
    SELECT id, parent_id, 0 FROM tasks WHERE id = :id
    UNION
    SELECT t.id, t.parent_id, line.depth + 1 FROM tasks t JOIN line ON t.id = line.parent_id WHERE line.depth < 1000)
SELECT id FROM line ORDER BY depth DESC LIMIT 1

-- name: usage_lately
-- The same condition as in queries/spending.sql.
SELECT wall, boottime, boot_id, input + output AS tokens, cost_usd, labels FROM usage
WHERE boot_id = :boot_id AND boottime > :boottime - :window
UNION ALL
SELECT wall, boottime, boot_id, input + output AS tokens, cost_usd, labels FROM usage
WHERE boot_id != :boot_id AND wall > :wall - :window AND wall <= :wall + :tolerance

-- name: label_total
SELECT tokens, cost_usd AS usd, unpriced FROM label_totals WHERE label = :label

-- name: spent_budgets
SELECT key, label, reason, until, at FROM spent_budgets ORDER BY key

-- name: undelivered
SELECT n.alert_id AS alert, n.key, n.transition, n.level, n.at, d.target, d.state, d.attempts, d.told
FROM deliveries d JOIN notices n ON n.id = d.notice_id WHERE d.state != 'sent' ORDER BY n.id, d.target

-- name: notices
SELECT n.id, n.alert_id AS alert, n.key, n.transition, n.level, n.at, n.planned, d.target, d.state, d.attempts, d.told, d.over_at
FROM notices n LEFT JOIN deliveries d ON d.notice_id = n.id ORDER BY n.id, d.target

-- name: holds
SELECT h.*, t.state AS probe_state FROM holds h LEFT JOIN tasks t ON t.id = h.probe_task ORDER BY h.scope, h.name

-- name: unmet_needs
-- The tasks that a task waits for, directly or through others.
WITH RECURSIVE unmet(id) AS (
    SELECT needs_id FROM needs WHERE task_id = :id
    UNION
    SELECT n.needs_id FROM unmet JOIN needs n ON n.task_id = unmet.id)
SELECT t.id, t.state, t.pause_reason, t.resume_after FROM unmet JOIN tasks t ON t.id = unmet.id
WHERE t.state != 'completed' ORDER BY t.seq

-- name: results
SELECT r.name, r.visit, r.attempt, r.member, r.agent, r.outcome, r.reason, r.ruling, r.passed, r.text, r.files,
       r.changed, r.commit_id AS "commit", r.gate, r.started_at, r.ended_at, r.run_id AS run
FROM results r JOIN tasks t ON t.id = r.task_id
WHERE r.task_id = :id AND r.generation = t.generation ORDER BY r.number

-- name: decisions
-- What people decided about the stages of a task, in the task's current generation or before.
SELECT e.at, e.data, t.settings ->> ('$.stages[' || (e.data ->> '$.stage') || '].name') AS stage,
       t.settings ->> ('$.stages[' || (e.data ->> '$.next') || '].name') AS "to"
FROM events e JOIN tasks t ON t.id = e.task_id WHERE e.task_id = :id AND e.kind = 'task.approved' ORDER BY e.seq

-- name: squashed
-- Branches of tasks whose changes were merged as one commit: no other branch has their own commits.
SELECT task_id AS task, data ->> '$.source' AS source, data ->> '$.into' AS "into", data ->> '$.commit' AS "commit"
FROM events WHERE kind = 'branch.merged' AND data ->> '$.how' = 'squash' ORDER BY seq

-- name: intake
SELECT i.key, i.task_id AS task, t.state FROM repos r JOIN intake i ON i.repo_id = r.id LEFT JOIN tasks t ON t.id = i.task_id
WHERE r.path = :path AND i.key IN (SELECT value FROM json_each(:keys))

-- name: messages
SELECT m.number, m.text, m.by, m.created_at AS at, r.number AS run
FROM messages m LEFT JOIN runs r ON r.id = m.run_id WHERE m.task_id = :id ORDER BY m.number
