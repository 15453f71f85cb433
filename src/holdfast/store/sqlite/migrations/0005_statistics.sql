-- A run's own agent and timeout, and what statistics and adaptive timeouts read: from indexes alone, however long the history.
ALTER TABLE runs ADD COLUMN agent TEXT;
ALTER TABLE runs ADD COLUMN timeout REAL;       -- null: the task's own
ALTER TABLE runs ADD COLUMN timeout_why TEXT;
UPDATE runs SET agent = (SELECT agent FROM tasks WHERE tasks.id = runs.task_id);
CREATE INDEX runs_over ON runs (agent, ended_at, outcome, started_at, number) WHERE ended_at IS NOT NULL;
CREATE INDEX tasks_completed ON tasks (repo_id, agent, ended_at) WHERE state = 'completed';

-- What is left of runs whose task was forgotten: how they ended, per day (UTC) and agent.
CREATE TABLE forgotten_runs (
    day      INTEGER NOT NULL,                  -- days since the epoch
    agent    TEXT NOT NULL,
    outcome  TEXT NOT NULL,
    runs     INTEGER NOT NULL,
    restarts INTEGER NOT NULL,
    timed    INTEGER NOT NULL,                  -- those that were started, and so have a duration
    seconds  REAL NOT NULL,                     -- of those, added up
    PRIMARY KEY (day, agent, outcome)
) STRICT, WITHOUT ROWID;
