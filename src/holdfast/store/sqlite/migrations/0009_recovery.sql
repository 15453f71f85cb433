-- Recovery: pauses, checkpoints, holds, budgets, crashes, alerts on their way, workers, trackers, subtasks.

-- == pause ==

-- == check ==

-- == holds ==

-- == budgets ==

-- == alerts ==

-- == workers ==

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

