-- Recovery: pauses, checkpoints, holds, budgets, crashes, alerts on their way, workers, trackers, subtasks.

-- == pause ==

ALTER TABLE tasks ADD COLUMN forced INTEGER NOT NULL DEFAULT 0; -- an operator lets its next run have a shut account

-- == check ==
CREATE TABLE checkpoints (
    task_id TEXT NOT NULL REFERENCES tasks (id),
    number INTEGER NOT NULL,                           -- 1 for the first; never used twice while the task is unfinished
    repo_id TEXT NOT NULL REFERENCES repos (id),
    workspace_id TEXT NOT NULL,
    run_id TEXT,
    stage INTEGER NOT NULL DEFAULT 0,
    session_id TEXT,
    output_offset INTEGER NOT NULL DEFAULT 0,          -- how much the run had printed
    ref TEXT NOT NULL,
    commit_id TEXT NOT NULL,                           -- in the shadow repository
    base TEXT,                                         -- the agent's HEAD
    key TEXT NOT NULL,                                 -- the same for the same state
    files INTEGER NOT NULL,
    partial INTEGER NOT NULL DEFAULT 0,
    why TEXT NOT NULL,
    details TEXT NOT NULL DEFAULT '{}',
    created_at REAL NOT NULL,
    dropped TEXT,                                      -- why nobody may ask for it any more; its commit goes next
    PRIMARY KEY (task_id, number)
) WITHOUT ROWID;
CREATE INDEX checkpoints_dropped ON checkpoints (repo_id) WHERE dropped IS NOT NULL;

CREATE TABLE going_back (                              -- which checkpoint the next attempt begins with
    task_id TEXT PRIMARY KEY REFERENCES tasks (id),
    number INTEGER NOT NULL,
    generation INTEGER NOT NULL,                       -- of the task: a retry since then means another start
    by TEXT NOT NULL,
    automatic INTEGER NOT NULL,                        -- its workspace was lost: no commit may be taken off its branch
    saved INTEGER NOT NULL DEFAULT 0,                  -- what lies in its workspace was saved for that
    at REAL NOT NULL
) WITHOUT ROWID;

-- == holds ==
-- Dispatch that is held back (core/dispatch/holds.py). Moments as JSON are readings of all clocks.
CREATE TABLE holds (
    scope TEXT NOT NULL CHECK (scope IN ('provider', 'account', 'fleet', 'near')),
    name TEXT NOT NULL,
    since TEXT NOT NULL,                               -- JSON: when it first held back
    until REAL,                                        -- wall time; null: failures are only counted
    decided REAL NOT NULL,
    reason TEXT NOT NULL,
    failures INTEGER NOT NULL,
    rounds INTEGER NOT NULL,
    probe_task TEXT,                                   -- who goes first; its own row says whether it still does
    probe_since TEXT,                                  -- JSON
    PRIMARY KEY (scope, name)
) STRICT, WITHOUT ROWID;
-- Agents that died and nobody asked for it: many at once are one trouble of the machine, not of theirs.
CREATE TABLE deaths (
    run_id TEXT PRIMARY KEY,
    task_id TEXT NOT NULL,
    at REAL NOT NULL,                                  -- wall time of its end
    noted TEXT NOT NULL,                               -- JSON: when we knew
    is_mass INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE INDEX deaths_by_time ON deaths (at);

-- == budgets ==

-- What each run added, once, whatever its agent told again. It outlives the run and its task: a day costs what it cost.
CREATE TABLE usage (
    run_id     TEXT PRIMARY KEY,
    task_id    TEXT NOT NULL,
    generation INTEGER NOT NULL,
    root_id    TEXT NOT NULL,           -- the first task of its family: what subtasks use counts for that one too
    root_generation INTEGER NOT NULL,
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
CREATE INDEX usage_of_family ON usage (root_id);
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
INSERT INTO usage (run_id, task_id, generation, root_id, root_generation, session_id, labels, input, output, cost_usd,
                   wall, boottime, boot_id)
SELECT r.id, r.task_id,
       coalesce((SELECT max(s.generation) FROM spends s WHERE s.run_id = r.id), t.generation), r.task_id,
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

CREATE TABLE crashes (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    at             REAL NOT NULL,                  -- when it died, as far as its keeper knew
    recorded_at    REAL NOT NULL,
    worker         TEXT,                           -- null: no named worker had it
    task_id        TEXT NOT NULL,                  -- no reference: crashes are remembered for longer than tasks
    run_id         TEXT NOT NULL UNIQUE,           -- recorded once, whoever finds it
    agent          TEXT,
    outcome        TEXT NOT NULL,
    reason         TEXT NOT NULL,
    error_text     TEXT NOT NULL,                  -- the end of its standard error
    workspace      TEXT,
    branch         TEXT,
    claim_released INTEGER NOT NULL,
    restarted      INTEGER NOT NULL,               -- what was decided: it runs again by itself
    decision       TEXT NOT NULL,                  -- the same in words
    recent         INTEGER NOT NULL                -- crashes within the window, this one included
) STRICT;
CREATE INDEX crashes_by_task ON crashes (task_id);

ALTER TABLE alerts ADD COLUMN details TEXT NOT NULL DEFAULT '{}';  -- JSON, for people and for notices
ALTER TABLE alerts ADD COLUMN acked_why TEXT;
CREATE INDEX alerts_of_task ON alerts (task_id) WHERE acked_at IS NULL;

-- What became of an alert, on its way to people. No reference: it is sent also when its task is forgotten.
CREATE TABLE notices (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    key        TEXT NOT NULL UNIQUE,               -- the same however often it is sent
    alert_id   INTEGER NOT NULL,
    alert_key  TEXT NOT NULL,
    transition TEXT NOT NULL,                      -- raised | acknowledged | resolved
    level      TEXT NOT NULL,
    at         REAL NOT NULL,
    body       TEXT NOT NULL,                      -- JSON: what is sent
    planned    TEXT                                -- null: not looked at yet; else to whom, or why to nobody
) STRICT;
CREATE INDEX notices_unplanned ON notices (id) WHERE planned IS NULL;

CREATE TABLE deliveries (
    notice_id  INTEGER NOT NULL REFERENCES notices (id),
    target     TEXT NOT NULL,
    state      TEXT NOT NULL CHECK (state IN ('waiting', 'sent', 'given_up')),
    attempts   INTEGER NOT NULL DEFAULT 0,         -- begun: counted before anything is sent
    delay      REAL NOT NULL DEFAULT 0,            -- how long after the last attempt the next one may begin
    wall       REAL,                               -- the last attempt, on the clocks of that boot
    boottime   REAL,
    boot_id    TEXT,
    told       TEXT NOT NULL DEFAULT '',           -- what came of it last
    over_at    REAL,
    PRIMARY KEY (notice_id, target)
) STRICT, WITHOUT ROWID;
CREATE INDEX deliveries_waiting ON deliveries (target, notice_id) WHERE state = 'waiting';

-- == workers ==
CREATE TABLE workers (
    name TEXT PRIMARY KEY,
    state TEXT NOT NULL CHECK (state IN ('ready', 'stopped', 'benched', 'retired')),
    reason TEXT NOT NULL,
    since REAL NOT NULL,                               -- wall time
    at_once INTEGER NOT NULL DEFAULT 0,                -- stopped with --now: the agent at work is ended too
    run_id TEXT,                                       -- whose crash stopped or benched it
    generation INTEGER NOT NULL DEFAULT 0              -- raised when an operator starts it: earlier crashes count no more
) WITHOUT ROWID;
CREATE TABLE worker_crashes (
    id INTEGER PRIMARY KEY,
    worker TEXT NOT NULL,
    generation INTEGER NOT NULL,
    run_id TEXT NOT NULL UNIQUE,
    task_id TEXT NOT NULL,
    wall REAL NOT NULL,
    boottime REAL NOT NULL,
    boot_id TEXT NOT NULL
);
CREATE INDEX worker_crashes_of ON worker_crashes (worker, generation);
CREATE INDEX worker_crashes_of_task ON worker_crashes (task_id);
ALTER TABLE tasks ADD COLUMN worker TEXT;              -- that has it while it runs; or that it waits for
CREATE INDEX tasks_worker ON tasks (worker) WHERE worker IS NOT NULL;
ALTER TABLE runs ADD COLUMN worker TEXT;               -- that it was a run of; null: an anonymous one

-- == trackers ==
-- Issues of an outside tracker that this home took. A row is durable before the tracker is asked for the issue.
CREATE TABLE links (
    id INTEGER PRIMARY KEY,
    repo_id TEXT NOT NULL REFERENCES repos(id),
    issue TEXT NOT NULL,
    task_id TEXT,                                      -- null until it is ours
    state TEXT NOT NULL CHECK (state IN ('intended', 'claimed', 'releasing', 'released', 'closing', 'closed', 'left', 'lost')),
    assignee TEXT NOT NULL,                            -- our name there
    reason TEXT NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL
);
CREATE UNIQUE INDEX links_of_task ON links (task_id) WHERE task_id IS NOT NULL;
CREATE UNIQUE INDEX links_held ON links (repo_id, issue) WHERE state IN ('intended', 'claimed', 'releasing', 'closing');
CREATE INDEX links_of_issue ON links (repo_id, issue);
-- How the tracker of a repository answers.
CREATE TABLE trackers (
    repo_id TEXT PRIMARY KEY REFERENCES repos(id),
    kind TEXT NOT NULL,
    trouble TEXT,                                      -- null: it answers
    since REAL,                                        -- of the trouble
    failures INTEGER NOT NULL DEFAULT 0,
    asked_at REAL,                                     -- when it last failed, or was told to be looked at
    next_at REAL                                       -- not asked before; null: whenever
) WITHOUT ROWID;
CREATE TABLE tracker_name (only INTEGER PRIMARY KEY CHECK (only = 1), name TEXT NOT NULL);

-- == subtasks ==
-- The last run before a fresh start: a hand-over tells nothing of what was thrown away.
ALTER TABLE tasks ADD COLUMN fresh_after INTEGER NOT NULL DEFAULT 0;

