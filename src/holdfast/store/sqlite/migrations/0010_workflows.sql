-- Schedules, workflows, parallel stages, results, intake.

-- == schedules ==

-- == stages ==
ALTER TABLE tasks ADD COLUMN progress TEXT;            -- JSON: where it stands in its workflow; null: at the beginning
ALTER TABLE runs ADD COLUMN stage TEXT;                -- the stage that it was a run of; null: the task has no workflow
CREATE INDEX tasks_begun ON tasks (priority DESC, seq) WHERE state = 'queued' AND progress IS NOT NULL;

-- == groups ==
-- Members of a parallel stage: each has its own run, and may have its own workspace. Empty: not of a member.
ALTER TABLE runs ADD COLUMN member TEXT NOT NULL DEFAULT '';
ALTER TABLE workspaces ADD COLUMN member TEXT NOT NULL DEFAULT '';
-- One unsettled run per task and member, whatever happens: the database itself refuses a second agent.
DROP INDEX runs_open;
CREATE UNIQUE INDEX runs_open ON runs (task_id, member) WHERE state != 'settled';
DROP INDEX workspaces_current;
CREATE UNIQUE INDEX workspaces_current ON workspaces (task_id, member) WHERE state IN ('intended', 'ready', 'preserved');

-- == results ==
-- What each stage left behind, in order. It goes with its task.
CREATE TABLE results (
    task_id    TEXT NOT NULL REFERENCES tasks (id),
    number     INTEGER NOT NULL,                       -- 1 for the first
    generation INTEGER NOT NULL,                       -- of the task: a retry since then
    stage      INTEGER NOT NULL,
    name       TEXT NOT NULL,
    visit      INTEGER NOT NULL,
    attempt    INTEGER NOT NULL,
    member     TEXT NOT NULL,
    run_id     TEXT UNIQUE,                            -- recorded once, whoever finds it; null: no agent started
    agent      TEXT NOT NULL,
    outcome    TEXT NOT NULL,
    reason     TEXT NOT NULL,
    ruling     TEXT NOT NULL,
    passed     INTEGER NOT NULL,
    text       TEXT NOT NULL,
    files      TEXT NOT NULL,                          -- JSON: names
    commit_id  TEXT,
    gate       TEXT,                                   -- JSON; null: it has none, or it was not asked
    started_at REAL,
    ended_at   REAL,
    PRIMARY KEY (task_id, number)
) STRICT, WITHOUT ROWID;

-- == intake ==
