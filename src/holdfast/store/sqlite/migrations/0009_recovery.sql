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

-- == workers ==

-- == trackers ==

-- == subtasks ==

