-- Recovery: pauses, checkpoints, holds, budgets, crashes, alerts on their way, workers, trackers, subtasks.

-- == pause ==

-- == check ==

-- == holds ==

-- == budgets ==

-- == alerts ==

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

-- == subtasks ==

