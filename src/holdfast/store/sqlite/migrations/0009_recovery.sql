-- Recovery: pauses, checkpoints, holds, budgets, crashes, alerts on their way, workers, trackers, subtasks.

-- == pause ==

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

-- == trackers ==

-- == subtasks ==
-- The last run before a fresh start: a hand-over tells nothing of what was thrown away.
ALTER TABLE tasks ADD COLUMN fresh_after INTEGER NOT NULL DEFAULT 0;

