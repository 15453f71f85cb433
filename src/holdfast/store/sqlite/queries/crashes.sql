-- The history of crashes.

-- name: record
INSERT INTO crashes (at, recorded_at, worker, task_id, run_id, agent, outcome, reason, error_text, workspace, branch,
                     claim_released, restarted, decision, recent)
SELECT coalesce(r.ended_at, :now), :now, r.worker, r.task_id, r.id, coalesce(r.agent, t.agent), :outcome, :reason,
       :error_text, (SELECT path FROM workspaces w WHERE w.task_id = t.id AND w.state IN ('intended', 'ready', 'preserved')),
       t.branch, t.owner IS NULL AND t.worker IS NULL, :restarted, :decision, :recent
FROM runs r JOIN tasks t ON t.id = r.task_id WHERE r.id = :run_id
ON CONFLICT (run_id) DO NOTHING
RETURNING id, worker, workspace, branch, claim_released,
          (SELECT l.issue FROM links l WHERE l.task_id = crashes.task_id AND l.state IN ('claimed', 'releasing')) AS issue

-- name: last_salvage
SELECT commit_id FROM salvages WHERE task_id = :task_id AND json_extract(details, '$.dropped') IS NULL
ORDER BY created_at DESC, rowid DESC LIMIT 1

-- name: forget
DELETE FROM crashes WHERE id IN (
    SELECT id FROM crashes WHERE recorded_at < :before OR id <= (SELECT max(id) FROM crashes) - :most ORDER BY id LIMIT :limit)

-- name: of_task
SELECT t.branch, (SELECT path FROM workspaces w WHERE w.task_id = t.id AND w.state IN ('intended', 'ready', 'preserved')) AS workspace
FROM tasks t WHERE t.id = :task_id
