-- Recovery: pauses, checkpoints, holds, budgets, crashes, alerts on their way, workers, trackers, subtasks.

-- == pause ==

-- == check ==

-- == holds ==

-- == budgets ==

-- What each run added, once, whatever its agent told again. It outlives the run and its task: a day costs what it cost.
CREATE TABLE usage (
    run_id     TEXT PRIMARY KEY,
    task_id    TEXT NOT NULL,
    generation INTEGER NOT NULL,
    session_id TEXT,                    -- its agent tells the sum of this session
    labels     TEXT NOT NULL,           -- JSON: ["key=value"]
    input      INTEGER NOT NULL,
    output     INTEGER NOT NULL,
    cost_usd   REAL,                    -- NULL: it told tokens, and no money
    crossed    TEXT NOT NULL DEFAULT '[]',  -- JSON: the shared budgets that this run used up, by key
    wall       REAL NOT NULL,
    boottime   REAL NOT NULL,
    boot_id    TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX usage_of_task ON usage (task_id);
CREATE INDEX usage_at ON usage (wall);
CREATE INDEX usage_of_boot ON usage (boot_id, boottime);

-- What was used under a label in all time: it only grows, whatever is forgotten.
CREATE TABLE label_totals (
    label    TEXT PRIMARY KEY,          -- key=value
    tokens   INTEGER NOT NULL,
    cost_usd REAL NOT NULL,
    unpriced INTEGER NOT NULL
) WITHOUT ROWID;

-- Shared budgets that are spent at present: a row per episode.
CREATE TABLE spent_budgets (
    key     TEXT PRIMARY KEY,           -- day, key=value/day, key=value/total
    label   TEXT,
    reason  TEXT NOT NULL,
    until   REAL,                       -- wall time at which enough of its window has slid away; NULL: it does not slide
    at      REAL NOT NULL
) WITHOUT ROWID;

-- Runs from before there was this ledger. Agents that tell the sum of their session are counted by what each run added.
INSERT INTO usage (run_id, task_id, generation, session_id, labels, input, output, cost_usd, wall, boottime, boot_id)
SELECT r.id, r.task_id,
       coalesce((SELECT max(s.generation) FROM spends s WHERE s.run_id = r.id), t.generation), r.session_id,
       (SELECT json_group_array(l.key || '=' || l.value) FROM json_each(t.settings, '$.labels') l),
       max(0, coalesce(r.usage ->> '$.input', 0) - CASE WHEN r.agent IN ('codex', 'qwen') THEN
           coalesce(lag(r.usage ->> '$.input') OVER told, 0) ELSE 0 END),
       max(0, coalesce(r.usage ->> '$.output', 0) - CASE WHEN r.agent IN ('codex', 'qwen') THEN
           coalesce(lag(r.usage ->> '$.output') OVER told, 0) ELSE 0 END),
       r.cost_usd, r.ended_at, 0, ''
FROM runs r JOIN tasks t ON t.id = r.task_id
WHERE r.usage IS NOT NULL AND r.ended_at IS NOT NULL
WINDOW told AS (PARTITION BY r.task_id, coalesce(r.session_id, r.id) ORDER BY r.number);

-- == alerts ==

-- == workers ==

-- == trackers ==

-- == subtasks ==

