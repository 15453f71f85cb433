-- Recovery: pauses, checkpoints, holds, budgets, crashes, alerts on their way, workers, trackers, subtasks.

-- == pause ==

-- == check ==

-- == holds ==
-- Dispatch that is held back (core/holds.py). Moments as JSON are readings of all clocks.
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

