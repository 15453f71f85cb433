-- name: intend
INSERT INTO workspaces (id, task_id, repo_id, strategy, path, branch, base_commit, member, state, created_at, updated_at)
VALUES (:id, :task_id, :repo_id, :strategy, :path, :branch, :base_commit, :member, 'intended', :now, :now)

-- name: get
SELECT * FROM workspaces WHERE id = :id

-- name: current
SELECT * FROM workspaces WHERE task_id = :task_id AND member = :member AND state IN ('intended', 'ready', 'preserved')

-- name: all_current
SELECT * FROM workspaces WHERE task_id = :task_id AND state IN ('intended', 'ready', 'preserved') ORDER BY member

-- name: branches_of
SELECT branch FROM workspaces WHERE task_id = :task_id AND member = :member ORDER BY created_at, rowid

-- name: move
UPDATE workspaces
SET state = :state, reason = :reason, updated_at = :now, disposition = CASE WHEN :state = 'ready' THEN NULL ELSE disposition END,
    expires_at = NULL
WHERE id = :id AND state = :expected

-- name: enclosed
UPDATE workspaces SET container = :container WHERE id = :id

-- name: dispose
UPDATE workspaces SET disposition = :disposition, reason = :reason, failures = 0, retry_at = NULL, updated_at = :now
WHERE id = :id AND state IN ('intended', 'ready', 'preserved')

-- name: dispose_of_task
-- A member's workspace that a retry did not use is still preserved. Its work may not be saved, so it is salvaged first.
UPDATE workspaces SET disposition = CASE WHEN member != '' AND state = 'preserved' AND :disposition = 'clean' THEN 'salvage'
                                          ELSE :disposition END, reason = :reason, failures = 0, retry_at = NULL, updated_at = :now
WHERE task_id = :task_id AND state IN ('intended', 'ready', 'preserved')

-- name: cleanup_failed
UPDATE workspaces SET failures = failures + 1, retry_at = :retry_at, reason = :reason, updated_at = :now WHERE id = :id
RETURNING failures

-- name: retry_at_once
UPDATE workspaces SET retry_at = NULL WHERE retry_at IS NOT NULL AND state != 'gone'

-- name: to_clean
-- Dispositions that are decided but not yet carried out. Workspaces of tasks that run or will run again are left out.
-- `!= 'gone'` lets SQLite use the partial index. This query runs at every pass.
SELECT w.* FROM workspaces w JOIN tasks t ON t.id = w.task_id
WHERE w.state != 'gone' AND w.state IN ('intended', 'ready') AND w.disposition IS NOT NULL AND t.state IN ('completed', 'failed', 'cancelled')
  AND (w.retry_at IS NULL OR w.retry_at <= :now)
UNION ALL
SELECT w.* FROM workspaces w JOIN tasks t ON t.id = w.task_id
WHERE w.state != 'gone' AND w.state = 'preserved' AND w.disposition = 'salvage' AND t.state IN ('completed', 'failed', 'cancelled')
  AND (w.retry_at IS NULL OR w.retry_at <= :now)
UNION ALL
SELECT w.* FROM workspaces w WHERE w.state != 'gone' AND w.state = 'trashed' AND (w.retry_at IS NULL OR w.retry_at <= :now)

-- name: preserve
UPDATE workspaces SET state = 'preserved', reason = :reason, expires_at = :expires_at, updated_at = :now
WHERE id = :id AND state = :expected

-- name: stays
-- An operator dropped the workspace, or it expired, but its work cannot be saved: it stays until a person looks at it.
UPDATE workspaces SET disposition = 'preserve', reason = :reason, expires_at = NULL, updated_at = :now
WHERE id = :id AND state = 'preserved'

-- name: save_later
-- Its work could not be saved because of a passing trouble, for example a full disk. The clean-up service tries again.
UPDATE workspaces SET disposition = 'salvage', reason = :reason, failures = failures + 1, retry_at = :retry_at,
    expires_at = NULL, updated_at = :now
WHERE id = :id AND state = 'preserved'

-- name: keep
UPDATE workspaces SET expires_at = :expires_at, reason = :reason, updated_at = :now
WHERE id = :id AND state = 'preserved' AND disposition != 'salvage'

-- name: expired
SELECT w.* FROM workspaces w JOIN tasks t ON t.id = w.task_id
WHERE w.expires_at <= :now AND w.state = 'preserved' AND w.disposition != 'salvage'
  AND t.state IN ('completed', 'failed', 'cancelled')

-- name: expire_from_now
-- Workspaces that were preserved in the future (the clock was set back since): their full time starts again now.
UPDATE workspaces SET expires_at = expires_at - (updated_at - :now), updated_at = :now
WHERE expires_at IS NOT NULL AND state = 'preserved' AND updated_at > :now + 60

-- name: expire
UPDATE workspaces SET disposition = 'salvage', reason = :reason, failures = 0, retry_at = NULL, updated_at = :now
WHERE id = :id AND state = 'preserved' AND disposition != 'salvage' AND expires_at <= :now

-- name: postpone
-- The workspace is in use: new work in it has to be saved, even if its work was saved before.
UPDATE workspaces SET retry_at = :retry_at, disposition = CASE disposition WHEN 'clean' THEN 'salvage' ELSE disposition END
WHERE id = :id AND state IN ('ready', 'preserved')

-- name: freed
UPDATE workspaces SET retry_at = NULL WHERE task_id = :task_id AND failures = 0 AND state IN ('ready', 'preserved')

-- name: running_subtasks
SELECT id FROM tasks WHERE parent_id = :task_id AND state = 'running' ORDER BY seq

-- name: next_expiry
SELECT min(w.expires_at) FROM workspaces w JOIN tasks t ON t.id = w.task_id
WHERE w.expires_at IS NOT NULL AND w.state = 'preserved' AND w.disposition != 'salvage'
  AND t.state IN ('completed', 'failed', 'cancelled')

-- name: next_retry
SELECT min(retry_at) FROM workspaces WHERE state != 'gone' AND retry_at > :now

-- name: open
SELECT * FROM workspaces WHERE state != 'gone' ORDER BY created_at

-- name: add_salvage
INSERT INTO salvages
    (id, task_id, repo_id, workspace_id, ref, commit_id, base, files, reason, created_at, partial, details)
VALUES (:id, :task_id, :repo_id, :workspace_id, :ref, :commit_id, :base, :files, :reason, :now, :partial, :details)
ON CONFLICT (repo_id, ref) DO UPDATE SET commit_id = excluded.commit_id, base = excluded.base, files = excluded.files,
    reason = excluded.reason, created_at = excluded.created_at, partial = excluded.partial, details = excluded.details

-- name: last_salvage
-- The salvage of the task's newest ended workspace. An older salvage is never restored: it is behind later commits.
-- Work that was set aside when the task went back to a checkpoint is not restored either.
SELECT s.* FROM salvages s WHERE json_extract(s.details, '$.dropped') IS NULL
  AND json_extract(s.details, '$.set_aside') IS NULL AND s.workspace_id = (
    SELECT w.id FROM workspaces w WHERE w.task_id = :task_id AND w.member = '' AND w.state IN ('trashed', 'gone')
    ORDER BY w.created_at DESC, w.rowid DESC LIMIT 1)
ORDER BY s.created_at DESC LIMIT 1

-- name: add_repo
INSERT INTO repos (id, path, common_dir, registered_at) VALUES (:id, :path, :common_dir, :now)
ON CONFLICT (path) DO UPDATE SET common_dir = excluded.common_dir

-- name: forget_unused_repo
DELETE FROM repos WHERE path = :path AND NOT EXISTS (SELECT 1 FROM tasks WHERE repo_id = repos.id)

-- name: move_repo
UPDATE repos SET path = :path, common_dir = :common_dir WHERE path = :old

-- name: move_words
-- In the new place the schedules are different ones, as soon as a file there lists them. An operator's choice to enable
-- or disable a schedule moves along.
INSERT INTO schedules (repo, name, file, listed, definition, word, word_by, cursor, last_fire, last_fired_at, last_task, crowded)
SELECT :path, name, file, 0, json_set(definition, '$.repo', :path), word, word_by, cursor, last_fire, last_fired_at, last_task, crowded
FROM schedules WHERE repo = :old
ON CONFLICT (repo, name) DO UPDATE SET word = excluded.word, word_by = excluded.word_by WHERE word IS NULL

-- name: repo
SELECT * FROM repos WHERE id = :id

-- name: repo_by_path
SELECT * FROM repos WHERE path = :path

-- name: repos
SELECT * FROM repos ORDER BY path
