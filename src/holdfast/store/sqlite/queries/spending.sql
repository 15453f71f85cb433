-- name: record
-- Once per run: a second record of the same run changes nothing.
INSERT OR IGNORE INTO usage (run_id, task_id, generation, root_id, root_generation, session_id, labels, input, output,
                             cost_usd, wall, boottime, boot_id)
VALUES (:run_id, :task_id, :generation, :root_id, :root_generation, :session_id, :labels, :input, :output, :cost_usd,
        :wall, :boottime, :boot_id)

-- name: add_to_label
INSERT INTO label_totals (label, tokens, cost_usd, unpriced) VALUES (:label, :tokens, :cost_usd, :unpriced)
ON CONFLICT (label) DO UPDATE SET tokens = tokens + excluded.tokens, cost_usd = cost_usd + excluded.cost_usd,
    unpriced = unpriced + excluded.unpriced

-- name: crosses
UPDATE usage SET crossed = :crossed WHERE run_id = :run_id

-- name: crossed
SELECT crossed FROM usage WHERE run_id = :run_id

-- name: of_task
-- If the task is the first of its family, this includes what its subtasks used, on all levels.
SELECT coalesce(sum(input + output), 0) AS tokens, coalesce(sum(cost_usd), 0.0) AS usd,
       count(*) - count(cost_usd) AS unpriced
FROM usage WHERE (task_id = :task_id AND generation = :generation)
              OR (root_id = :task_id AND root_generation = :generation)

-- name: of_runs_after
SELECT coalesce(sum(u.input + u.output), 0) AS tokens, coalesce(sum(u.cost_usd), 0.0) AS usd,
       count(*) - count(u.cost_usd) AS unpriced
FROM usage u JOIN runs r ON r.id = u.run_id WHERE u.task_id = :task_id AND u.generation = :generation AND r.number > :number

-- name: generation
SELECT generation FROM tasks WHERE id = :id

-- name: of_session
-- The sum of what the session's runs added is what the session had reported, over all generations of the task.
SELECT coalesce(sum(input), 0) AS input, coalesce(sum(output), 0) AS output, sum(cost_usd) AS cost_usd
FROM usage WHERE task_id = :task_id AND session_id = :session_id

-- name: lately
-- Runs of this boot are selected by the boot clock. Runs of an earlier boot are selected by the wall clock, within a
-- tolerance.
SELECT wall, boottime, boot_id, input + output AS tokens, cost_usd, labels FROM usage
WHERE boot_id = :boot_id AND boottime > :boottime - :window
UNION ALL
SELECT wall, boottime, boot_id, input + output AS tokens, cost_usd, labels FROM usage
WHERE boot_id != :boot_id AND wall > :wall - :window AND wall <= :wall + :tolerance

-- name: total_of_label
SELECT tokens, cost_usd AS usd, unpriced FROM label_totals WHERE label = :label

-- name: spent
SELECT key, label, reason, until, at FROM spent_budgets ORDER BY key

-- name: begin
INSERT INTO spent_budgets (key, label, reason, until, at) VALUES (:key, :label, :reason, :until, :at)
ON CONFLICT (key) DO UPDATE SET reason = excluded.reason, until = excluded.until

-- name: end
DELETE FROM spent_budgets WHERE key = :key

-- name: settings
SELECT settings FROM tasks WHERE id = :id

-- name: set_settings
UPDATE tasks SET settings = :settings WHERE id = :id AND (state = 'paused' OR :is_root)
