-- name: record
INSERT INTO results (task_id, number, generation, stage, name, visit, attempt, member, run_id, agent, outcome, reason,
                     ruling, passed, text, files, changed, commit_id, gate, started_at, ended_at)
VALUES (:task_id, (SELECT coalesce(max(number), 0) + 1 FROM results WHERE task_id = :task_id),
        (SELECT generation FROM tasks WHERE id = :task_id), :stage, :stage_name, :visit, :attempt, :member, :run_id, :agent,
        :outcome, :reason, :ruling, :passed, :text, :files, :changed, :commit_id, :gate,
        coalesce(:started_at, (SELECT started_at FROM runs WHERE id = :run_id)),
        coalesce(:ended_at, (SELECT ended_at FROM runs WHERE id = :run_id)))
ON CONFLICT (run_id) DO NOTHING

-- name: of_run
SELECT * FROM results WHERE run_id = :run_id

-- name: last
SELECT * FROM results WHERE task_id = :task_id ORDER BY number DESC LIMIT 1

-- name: of_task
SELECT r.* FROM results r JOIN tasks t ON t.id = r.task_id
WHERE r.task_id = :task_id AND r.generation = t.generation ORDER BY r.number
