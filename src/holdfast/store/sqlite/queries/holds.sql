-- Dispatch that is held back for a provider, for an account or after a mass death, until a probe succeeds.

-- name: all
-- With the current state of each probe: a probe whose task no longer runs makes room for another one without a write.
SELECT h.*, t.state AS probe_state FROM holds h LEFT JOIN tasks t ON t.id = h.probe_task ORDER BY h.scope, h.name

-- name: get
SELECT h.*, t.state AS probe_state FROM holds h LEFT JOIN tasks t ON t.id = h.probe_task
WHERE h.scope = :scope AND h.name = :held

-- name: keep
INSERT OR REPLACE INTO holds (scope, name, since, until, decided, reason, failures, rounds, probe_task, probe_since)
VALUES (:scope, :held, :since, :until, :decided, :reason, :failures, :rounds, :probe_task, :probe_since)

-- name: drop
DELETE FROM holds WHERE scope = :scope AND name = :held

-- name: free
UPDATE holds SET probe_task = NULL, probe_since = NULL WHERE probe_task = :task_id

-- name: crowd
-- Agents that work under an account and began after :since.
SELECT count(*) FROM runs WHERE state IN ('intended', 'started', 'stopping') AND agent = :agent AND account = :account
  AND intended_at > :since

-- name: account_of
-- The account of a task's newest run.
SELECT account FROM runs WHERE task_id = :task_id ORDER BY number DESC LIMIT 1

-- name: waits_for_provider
-- Tasks that wait for this provider only, and not for another task.
SELECT t.id FROM tasks t
WHERE t.state = 'queued' AND json_extract(t.settings, '$.provider') = :provider
  AND NOT EXISTS (SELECT 1 FROM needs JOIN tasks n ON n.id = needs.needs_id
                  WHERE needs.task_id = t.id AND n.state != 'completed')
ORDER BY t.seq

-- name: paused_by_outage
SELECT id FROM tasks WHERE state = 'paused' AND pause_reason = 'outage'
  AND json_extract(settings, '$.provider') = :provider ORDER BY seq

-- name: pause
UPDATE tasks SET state = 'paused', pause_reason = 'outage', resume_after = NULL, not_before = NULL, reason = :reason,
    updated_at = :now
WHERE id = :id AND state = 'queued'

-- name: note_death
INSERT OR IGNORE INTO deaths (run_id, task_id, at, noted) VALUES (:run_id, :task_id, :at, :noted)

-- name: forget_deaths
DELETE FROM deaths WHERE at < :before OR at > :after

-- name: deaths
SELECT run_id, task_id, at, noted, is_mass FROM deaths WHERE at BETWEEN :first AND :last ORDER BY at

-- name: death
SELECT run_id, task_id, at, noted, is_mass FROM deaths WHERE run_id = :run_id

-- name: is_of_many
UPDATE deaths SET is_mass = 1 WHERE run_id = :run_id AND is_mass = 0

-- name: give_back
-- Deletes what a death that was part of a mass death had cost its task.
DELETE FROM spends WHERE run_id = :run_id AND budget IN ('crash', 'lost', 'runs')

-- name: uncount_crash
-- The crash was recorded before its mass death was known.
UPDATE crashes SET recent = max(recent - 1, 0), decision = :decision WHERE run_id = :run_id AND restarted

-- name: alive
SELECT task_id FROM runs WHERE state IN ('started', 'stopping')

-- name: ended_since
-- Runs that ended in any way. The agents are listed so that the index is used, agent by agent.
SELECT DISTINCT task_id FROM runs WHERE ended_at IS NOT NULL AND agent IN (SELECT value FROM json_each(:agents))
  AND ended_at >= :since AND started_at IS NOT NULL
