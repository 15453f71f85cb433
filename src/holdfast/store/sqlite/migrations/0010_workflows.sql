-- Schedules, workflows, parallel stages, results, intake.

-- == schedules ==
-- Every schedule that a file has or had. What a file no longer has keeps its row: an operator's word outlives a checkout.
CREATE TABLE schedules (
    repo          TEXT NOT NULL,                       -- path of the checkout that its tasks work on
    name          TEXT NOT NULL,
    file          TEXT NOT NULL,
    listed        INTEGER NOT NULL,                    -- 1: the file has it
    definition    TEXT NOT NULL,                       -- JSON: the last one that was read well
    word          INTEGER,                             -- an operator's: 1 enabled, 0 disabled; null: the file's holds
    word_by       TEXT,
    cursor        REAL NOT NULL,                       -- whatever was due until then is decided
    last_fire     REAL,
    last_fired_at REAL,
    last_task     TEXT,
    crowded       INTEGER NOT NULL DEFAULT 0,          -- 1: when that was fired by hand, another one had not ended
    replacing     TEXT,                                -- the task that was asked to end for the next one
    trouble       TEXT,                                -- why its fire was refused; null: it was not
    failures      INTEGER NOT NULL DEFAULT 0,
    tried_at      REAL,
    next_try      REAL,
    PRIMARY KEY (repo, name)
) STRICT, WITHOUT ROWID;
-- One row per occurrence that was let in, so that none gets a second task, whatever the cursor and the clock say.
CREATE TABLE occurrences (
    repo       TEXT NOT NULL,
    name       TEXT NOT NULL,
    hand       INTEGER NOT NULL,                       -- 0: it came by the clock; else the number of the fire by hand
    fire_time  REAL NOT NULL,
    state      TEXT NOT NULL CHECK (state IN ('waiting', 'fired', 'skipped')),
    task_id    TEXT,
    why        TEXT NOT NULL,
    decided_at REAL NOT NULL,
    PRIMARY KEY (repo, name, hand, fire_time)
) STRICT, WITHOUT ROWID;
CREATE INDEX occurrences_waiting ON occurrences (repo, name, fire_time) WHERE state = 'waiting';
CREATE INDEX occurrences_task ON occurrences (task_id) WHERE task_id IS NOT NULL;
-- Old occurrences by the stretch: none in there gets a task again.
CREATE TABLE occurrence_spans (
    repo     TEXT NOT NULL,
    name     TEXT NOT NULL,
    began    REAL NOT NULL,
    ended    REAL NOT NULL,
    PRIMARY KEY (repo, name, began)
) STRICT, WITHOUT ROWID;

-- == stages ==
ALTER TABLE tasks ADD COLUMN progress TEXT;            -- JSON: where it stands in its workflow; null: at the beginning
ALTER TABLE runs ADD COLUMN stage TEXT;                -- the stage that it was a run of; null: the task has no workflow
DROP INDEX tasks_waiting;
CREATE INDEX tasks_waiting ON tasks (priority DESC, progress IS NULL, seq) WHERE state = 'queued';

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
-- What was taken in from lists of tasks, by its key: each becomes a task once, also when the task is forgotten by now.
CREATE TABLE intake (
    repo_id TEXT NOT NULL REFERENCES repos (id),
    key     TEXT NOT NULL,
    task_id TEXT NOT NULL,                             -- may be forgotten
    at      REAL NOT NULL,
    PRIMARY KEY (repo_id, key)
) STRICT, WITHOUT ROWID;
