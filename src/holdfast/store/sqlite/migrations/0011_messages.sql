-- Messages of people to tasks.

-- A message is given to the agent of one run. It goes with its task.
CREATE TABLE messages (
    task_id    TEXT NOT NULL REFERENCES tasks (id),
    number     INTEGER NOT NULL,                       -- 1 for the task's first
    text       TEXT NOT NULL,                          -- as it was written: an agent works by it, like a prompt
    by         TEXT NOT NULL,
    created_at REAL NOT NULL,
    run_id     TEXT,                                   -- the run whose agent it is given to; null: it waits
    PRIMARY KEY (task_id, number)
) STRICT, WITHOUT ROWID;
