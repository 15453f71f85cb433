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

-- == workers ==

-- == trackers ==

-- == subtasks ==

