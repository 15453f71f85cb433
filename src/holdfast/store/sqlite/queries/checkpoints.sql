-- name: columns
c.task_id, c.number, c.repo_id, c.workspace_id, c.run_id, c.stage, coalesce(c.session_id, r.session_id) AS session_id,
c.output_offset, c.ref, c.commit_id, c.base, c.key, c.files, c.partial, c.why, c.details

-- name: next_number
SELECT coalesce(max(number), 0) + 1 FROM checkpoints WHERE task_id = :task_id

-- name: last
-- The session of an ended run is recorded. That of a running one may not be known yet.
SELECT {columns} FROM checkpoints c LEFT JOIN runs r ON r.id = c.run_id
WHERE c.task_id = :task_id AND c.dropped IS NULL ORDER BY c.number DESC LIMIT 1

-- name: of_workspace
SELECT {columns} FROM checkpoints c LEFT JOIN runs r ON r.id = c.run_id
WHERE c.task_id = :task_id AND c.workspace_id = :workspace_id AND c.dropped IS NULL ORDER BY c.number

-- name: get
SELECT {columns} FROM checkpoints c LEFT JOIN runs r ON r.id = c.run_id
WHERE c.task_id = :task_id AND c.number = :number AND c.dropped IS NULL

-- name: numbers
SELECT number FROM checkpoints WHERE task_id = :task_id AND dropped IS NULL ORDER BY number

-- name: add
INSERT INTO checkpoints (task_id, number, repo_id, workspace_id, run_id, stage, session_id, output_offset, ref, commit_id,
                         base, key, files, partial, why, details, created_at)
VALUES (:task_id, :number, :repo_id, :workspace_id, :run_id, :stage, :session_id, :output_offset, :ref, :commit_id,
        :base, :key, :files, :partial, :why, :details, :now)

-- name: drop_beyond
UPDATE checkpoints SET dropped = 'newer ones are kept'
WHERE task_id = :task_id AND dropped IS NULL
  AND number NOT IN (SELECT number FROM checkpoints WHERE task_id = :task_id AND dropped IS NULL
                     ORDER BY number DESC LIMIT :keep)
  AND number NOT IN (SELECT number FROM going_back WHERE task_id = :task_id)

-- name: choose
INSERT INTO going_back (task_id, number, generation, by, automatic, at)
SELECT :task_id, :number, generation, :by, :automatic, :now FROM tasks WHERE id = :task_id
ON CONFLICT (task_id) DO UPDATE SET number = excluded.number, generation = excluded.generation, by = excluded.by,
    automatic = excluded.automatic, saved = 0, at = excluded.at
WHERE going_back.generation != excluded.generation OR going_back.automatic OR NOT excluded.automatic

-- name: keep_session
-- Nothing is changed if the task begins a new session.
UPDATE tasks SET session_id = :session_id WHERE id = :task_id AND session_id IS NOT NULL AND :session_id IS NOT NULL

-- name: chosen
SELECT {columns}, g.by, g.automatic, g.saved
FROM going_back g JOIN tasks t ON t.id = g.task_id AND (t.generation = g.generation OR g.automatic)
JOIN checkpoints c ON c.task_id = g.task_id AND c.number = g.number AND c.dropped IS NULL
LEFT JOIN runs r ON r.id = c.run_id
WHERE g.task_id = :task_id

-- name: set_aside
UPDATE going_back SET saved = 1 WHERE task_id = :task_id

-- name: unchoose
DELETE FROM going_back WHERE task_id = :task_id AND number = :number

-- name: move
UPDATE checkpoints SET workspace_id = :workspace_id WHERE task_id = :task_id AND number = :number

-- name: wait_for_operator
UPDATE tasks SET resume_after = NULL, reason = :reason, updated_at = :now WHERE id = :task_id AND state = 'paused'

-- name: expire
-- The newest checkpoint of a cancelled task is kept as long as those of a failed one.
-- If the workspace was lost, that checkpoint is all that is left of it.
UPDATE checkpoints SET dropped = 'its task ended'
WHERE dropped IS NULL AND task_id IN (
    SELECT t.id FROM tasks t WHERE t.id = checkpoints.task_id
      AND ((t.state = 'completed' AND t.ended_at < :ended_before)
           OR (t.state = 'cancelled' AND t.ended_at < :ended_before
               AND checkpoints.number < (SELECT max(k.number) FROM checkpoints k WHERE k.task_id = t.id))
           OR (t.state IN ('failed', 'cancelled') AND t.ended_at < :failed_before)))

-- name: expire_choices
DELETE FROM going_back WHERE task_id IN (
    SELECT id FROM tasks WHERE state = 'completed' OR (state = 'cancelled' AND NOT going_back.automatic))

-- name: dropped
SELECT c.task_id, c.number, c.repo_id, c.workspace_id, c.run_id, c.stage, c.session_id, c.output_offset, c.ref,
       c.commit_id, c.base, c.key, c.files, c.partial, c.why, c.details
FROM checkpoints c WHERE c.dropped IS NOT NULL ORDER BY c.repo_id, c.task_id, c.number

-- name: forget
DELETE FROM checkpoints WHERE task_id = :task_id AND number = :number AND commit_id = :commit_id AND dropped IS NOT NULL

-- name: refs
SELECT ref FROM checkpoints WHERE repo_id = :repo_id

-- name: unfinished
-- Read from the indexes of waiting, running and paused tasks alone.
SELECT id FROM tasks WHERE repo_id = :repo_id AND rowid IN (
SELECT rowid FROM tasks WHERE state = 'queued' UNION ALL SELECT rowid FROM tasks WHERE state = 'running'
UNION ALL SELECT rowid FROM tasks WHERE state = 'paused')
