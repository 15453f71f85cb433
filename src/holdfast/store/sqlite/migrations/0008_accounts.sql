-- Accounts that are not used for a while; and which one a task is bound to.
CREATE TABLE accounts (
    agent TEXT NOT NULL,
    name TEXT NOT NULL,
    until REAL,                                        -- wall time; null: until an operator says so
    outcome TEXT NOT NULL,                             -- of the run that shut it
    reason TEXT NOT NULL,
    task_id TEXT,                                      -- for people; the task may be forgotten since
    at REAL NOT NULL,
    PRIMARY KEY (agent, name)
) WITHOUT ROWID;
ALTER TABLE tasks ADD COLUMN account TEXT;             -- the one that it names, or that of its session; null: any
UPDATE tasks SET account = json_extract(settings, '$.agent_options.account');
