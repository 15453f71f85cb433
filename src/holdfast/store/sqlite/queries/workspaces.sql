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
-- A member's that a retry had no use for is still preserved: nobody has looked into it since.
UPDATE workspaces SET disposition = CASE WHEN member != '' AND state = 'preserved' AND :disposition = 'clean' THEN 'salvage'
                                          ELSE :disposition END, reason = :reason, failures = 0, retry_at = NULL, updated_at = :now
WHERE task_id = :task_id AND state IN ('intended', 'ready', 'preserved')

-- name: cleanup_failed
UPDATE workspaces SET failures = failures + 1, retry_at = :retry_at, reason = :reason, updated_at = :now WHERE id = :id
RETURNING failures

-- name: retry_at_once
UPDATE workspaces SET retry_at = NULL WHERE retry_at IS NOT NULL AND state != 'gone'

-- name: to_clean
-- Unfinished endings: decided, not yet carried out. A workspace whose task runs or will run again is not here.
-- `!= 'gone'` is what lets SQLite use the index of those that are not: this is asked at every look.
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
-- Somebody asked to drop it, or its time was over, but its work cannot be saved: until somebody looks.
UPDATE workspaces SET disposition = 'preserve', reason = :reason, expires_at = NULL, updated_at = :now
WHERE id = :id AND state = 'preserved'

-- name: keep
UPDATE workspaces SET expires_at = :expires_at, reason = :reason, updated_at = :now
WHERE id = :id AND state = 'preserved' AND disposition != 'salvage'

-- name: expired
SELECT w.* FROM workspaces w JOIN tasks t ON t.id = w.task_id
WHERE w.expires_at <= :now AND w.state = 'preserved' AND w.disposition != 'salvage'
  AND t.state IN ('completed', 'failed', 'cancelled')

-- name: expire_from_now
-- What was preserved in the future (the clock was set back since) stays for as long as it was to stay, from now on.
UPDATE workspaces SET expires_at = expires_at - (updated_at - :now), updated_at = :now
WHERE expires_at IS NOT NULL AND state = 'preserved' AND updated_at > :now + 60

-- name: expire
UPDATE workspaces SET disposition = 'salvage', reason = :reason, failures = 0, retry_at = NULL, updated_at = :now
WHERE id = :id AND state = 'preserved' AND disposition != 'salvage' AND expires_at <= :now

-- name: postpone
-- Somebody is in it: what they do there is to be saved, whatever was saved before.
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
-- What the task's newest ended workspace left. An older salvage is behind what was committed since: never restored; nor
-- what was set aside when the task went back to a checkpoint.
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
-- Its schedules are other ones in the new place, as soon as a file has them there; an operator's word goes with it.
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
