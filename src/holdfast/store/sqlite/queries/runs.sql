-- name: intend
INSERT INTO runs (id, task_id, number, fence, state, intended_at, agent, timeout, timeout_why, account, worker, stage, member)
VALUES (:id, :task_id, (SELECT count(*) + 1 FROM runs WHERE task_id = :task_id), :fence, 'intended', :now,
        coalesce(:agent, (SELECT agent FROM tasks WHERE id = :task_id)), :timeout, :timeout_why, :account,
        (SELECT worker FROM tasks WHERE id = :task_id), :stage, :member)

-- name: recent_durations
-- Read along the index, from the newest completed task backwards. A completed task has one completed run.
SELECT r.ended_at - r.started_at FROM tasks t JOIN runs r ON r.task_id = t.id
WHERE t.state = 'completed' AND t.repo_id = :repo_id AND t.agent = :agent
  AND r.outcome = 'completed' AND r.started_at IS NOT NULL
ORDER BY t.ended_at DESC LIMIT :limit

-- name: get
SELECT * FROM runs WHERE id = :id

-- name: open
SELECT * FROM runs WHERE task_id = :task_id AND member = :member AND state != 'settled'

-- name: open_of_task
SELECT * FROM runs WHERE task_id = :task_id AND state != 'settled' ORDER BY number

-- name: has_had
SELECT EXISTS (SELECT 1 FROM runs r JOIN tasks t ON t.id = r.task_id
    WHERE r.task_id = :task_id AND r.stage = :stage AND r.member = :member AND r.number > max(t.fresh_after, :since))

-- name: open_ids
SELECT id FROM runs WHERE state != 'settled'

-- name: started
UPDATE runs SET state = 'started', pid = :pid, started_at = :now WHERE id = :id AND task_id = :task_id AND state = 'intended'

-- name: stopping
UPDATE runs SET state = 'stopping', stop_why = :why, stop_reason = :reason WHERE id = :id AND task_id = :task_id AND state = 'started'

-- name: escalate
-- An operator's request outranks a stop that we decided ourselves. A pause outranks a `down`, and a cancel outranks both
-- (the same order as in core/model.outranks).
-- A run that is only intended records the stop request too: the reason must be on disk before any signal.
UPDATE runs SET stop_why = :why, stop_reason = :reason
WHERE id = :id AND task_id = :task_id AND state IN ('intended', 'stopping') AND stop_why IS NOT :why
  AND (stop_why IS NULL OR :why = 'cancel' OR (:why = 'pause' AND stop_why != 'cancel')
       OR (:why = 'down' AND stop_why NOT IN ('cancel', 'pause')))

-- name: reported
UPDATE runs SET claim = :claim, reports = :reports
WHERE id = :id AND task_id = :task_id AND state IN ('intended', 'started', 'stopping')

-- name: ended
UPDATE runs
SET state = 'ended', outcome = :outcome, reason = :reason, resets_at = :resets_at, session_id = :session_id,
    error_tail = :error_tail, usage = :usage, tokens = :tokens, cost_usd = :cost_usd, refused = :refused,
    ended_at = min(:now, max(coalesce(started_at, :at), :at))
WHERE id = :id AND task_id = :task_id AND state IN ('intended', 'started', 'stopping')

-- name: is_unanswered
-- No row if the model wrote or did something in the run. The event is written in the transaction of its end.
SELECT 1 FROM events e WHERE e.task_id = (SELECT task_id FROM runs WHERE id = :id) AND e.run_id = :id
  AND e.kind = 'run.ended' AND json_extract(e.data, '$.answered') = 0

-- name: settled
UPDATE runs SET state = 'settled', settled_at = :now WHERE id = :id AND task_id = :task_id AND state = 'ended'
RETURNING agent, account, started_at
