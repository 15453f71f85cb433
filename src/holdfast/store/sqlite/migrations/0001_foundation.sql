-- The first schema. Times are wall-clock seconds since the epoch unless a column says otherwise.

CREATE TABLE repos (
    id            TEXT PRIMARY KEY,
    path          TEXT NOT NULL UNIQUE,
    common_dir    TEXT NOT NULL,
    registered_at REAL NOT NULL
) STRICT;

CREATE TABLE tasks (
    id              TEXT PRIMARY KEY,
    seq             INTEGER NOT NULL UNIQUE,       -- order of acceptance
    repo_id         TEXT NOT NULL REFERENCES repos (id),
    prompt          TEXT NOT NULL,
    agent           TEXT NOT NULL,
    base_ref        TEXT NOT NULL,
    strategy        TEXT NOT NULL,
    priority        INTEGER NOT NULL,
    parent_id       TEXT REFERENCES tasks (id),
    not_before      REAL,
    settings        TEXT NOT NULL,                 -- JSON: the rest of what was asked, resolved at add
    state           TEXT NOT NULL CHECK (state IN ('queued', 'running', 'paused', 'completed', 'failed', 'cancelled')),
    reason          TEXT,                          -- why it is in this state, for people
    outcome         TEXT,                          -- how its last run ended
    failure_reason  TEXT,                          -- a stable word for a failure that we declared
    pause_reason    TEXT,
    resume_after    REAL,
    resume_attempts INTEGER NOT NULL DEFAULT 0,
    generation      INTEGER NOT NULL DEFAULT 0,    -- raised by an operator's retry
    fresh           INTEGER NOT NULL DEFAULT 0,
    session_id      TEXT,
    base_commit     TEXT,
    branch          TEXT,
    fence           INTEGER NOT NULL DEFAULT 0,    -- only rises; every claim and every adoption raises it
    owner           TEXT,                          -- host that runs it; null unless running
    created_at      REAL NOT NULL,
    updated_at      REAL NOT NULL,
    ended_at        REAL,
    CHECK ((state = 'running') = (owner IS NOT NULL)),
    CHECK (state != 'paused' OR pause_reason IS NOT NULL)
) STRICT;

-- History must not slow claims down: only waiting tasks are in this index.
CREATE INDEX tasks_waiting ON tasks (priority DESC, seq) WHERE state = 'queued';
CREATE INDEX tasks_running ON tasks (owner) WHERE state = 'running';
CREATE INDEX tasks_paused ON tasks (resume_after) WHERE state = 'paused';

CREATE TABLE needs (
    task_id  TEXT NOT NULL REFERENCES tasks (id),
    needs_id TEXT NOT NULL REFERENCES tasks (id),
    PRIMARY KEY (task_id, needs_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX needs_reverse ON needs (needs_id);

CREATE TABLE runs (
    id         TEXT PRIMARY KEY,
    task_id    TEXT NOT NULL REFERENCES tasks (id),
    number     INTEGER NOT NULL,
    fence      INTEGER NOT NULL,
    state      TEXT NOT NULL CHECK (state IN ('intended', 'started', 'stopping', 'ended', 'settled')),
    stop_why   TEXT,
    pid        INTEGER,
    outcome    TEXT,
    reason     TEXT,
    resets_at  REAL,
    session_id TEXT,
    error_tail TEXT,
    cost_usd   REAL,
    tokens     INTEGER,
    intended_at REAL NOT NULL,
    started_at REAL,
    ended_at   REAL,
    settled_at REAL,
    UNIQUE (task_id, number)
) STRICT;
-- One unsettled run per task, whatever happens: the database itself refuses a second agent.
CREATE UNIQUE INDEX runs_open ON runs (task_id) WHERE state != 'settled';

CREATE TABLE workspaces (
    id          TEXT PRIMARY KEY,
    task_id     TEXT NOT NULL REFERENCES tasks (id),
    repo_id     TEXT NOT NULL REFERENCES repos (id),
    strategy    TEXT NOT NULL,
    path        TEXT NOT NULL,
    branch      TEXT,
    base_commit TEXT,
    state       TEXT NOT NULL CHECK (state IN ('intended', 'ready', 'preserved', 'trashed', 'gone')),
    disposition TEXT,                              -- clean | salvage (save first, then clean) | preserve
    reason      TEXT,
    failures    INTEGER NOT NULL DEFAULT 0,        -- cleanups that failed; retried with back-off
    retry_at    REAL,
    created_at  REAL NOT NULL,
    updated_at  REAL NOT NULL
) STRICT;
CREATE UNIQUE INDEX workspaces_current ON workspaces (task_id) WHERE state IN ('intended', 'ready', 'preserved');
CREATE INDEX workspaces_open ON workspaces (state) WHERE state != 'gone';

CREATE TABLE salvages (
    id         TEXT PRIMARY KEY,
    task_id    TEXT NOT NULL REFERENCES tasks (id),
    repo_id    TEXT NOT NULL REFERENCES repos (id),
    workspace_id TEXT NOT NULL REFERENCES workspaces (id),
    ref        TEXT NOT NULL,                      -- in the repo's shadow, never in the user's repository
    commit_id  TEXT NOT NULL,
    base       TEXT,
    files      INTEGER NOT NULL,
    reason     TEXT NOT NULL,
    created_at REAL NOT NULL,
    UNIQUE (repo_id, ref)
) STRICT;
CREATE INDEX salvages_by_task ON salvages (task_id);

CREATE TABLE spends (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    task_id    TEXT NOT NULL REFERENCES tasks (id),
    generation INTEGER NOT NULL,
    budget     TEXT NOT NULL,
    run_id     TEXT,
    wall       REAL NOT NULL,
    boottime   REAL NOT NULL,
    boot_id    TEXT NOT NULL
) STRICT;
CREATE INDEX spends_by_task ON spends (task_id, generation);

CREATE TABLE hosts (
    id          TEXT PRIMARY KEY,                  -- a fresh incarnation per start, never a host name
    state       TEXT NOT NULL CHECK (state IN ('active', 'stopped', 'lost')),
    boot_id     TEXT NOT NULL,
    pid         INTEGER NOT NULL,
    start_ticks INTEGER NOT NULL,
    version     TEXT NOT NULL,
    agents      INTEGER NOT NULL,
    lease_until REAL NOT NULL,                     -- CLOCK_BOOTTIME of boot_id
    started_at  REAL NOT NULL,
    ended_at    REAL
) STRICT;

CREATE TABLE requests (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    kind        TEXT NOT NULL,
    task_id     TEXT REFERENCES tasks (id),
    by          TEXT NOT NULL,
    at          REAL NOT NULL,
    why         TEXT NOT NULL,
    data        TEXT NOT NULL,
    answered_at REAL,
    answer      TEXT
) STRICT;
CREATE INDEX requests_pending ON requests (id) WHERE answered_at IS NULL;

CREATE TABLE events (
    seq       INTEGER PRIMARY KEY AUTOINCREMENT,   -- rises in commit order
    at        REAL NOT NULL,
    level     TEXT NOT NULL,
    component TEXT NOT NULL,
    kind      TEXT NOT NULL,
    task_id   TEXT,
    run_id    TEXT,
    message   TEXT NOT NULL,
    reason    TEXT,
    data      TEXT NOT NULL
) STRICT;
CREATE INDEX events_by_task ON events (task_id, seq) WHERE task_id IS NOT NULL;

CREATE TABLE alerts (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    key      TEXT NOT NULL,                        -- one open alert per episode
    at       REAL NOT NULL,
    level    TEXT NOT NULL,
    task_id  TEXT,
    message  TEXT NOT NULL,
    remedy   TEXT NOT NULL,
    count    INTEGER NOT NULL DEFAULT 1,
    acked_at REAL,
    acked_by TEXT
) STRICT;
CREATE UNIQUE INDEX alerts_open ON alerts (key) WHERE acked_at IS NULL;

-- What a cut-off or cancelled caller really did: its operation id is here if and only if it committed.
CREATE TABLE operations (
    id TEXT PRIMARY KEY,
    at REAL NOT NULL
) STRICT, WITHOUT ROWID;
