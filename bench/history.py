"""Tasks that finished long ago, with their events, put into a store in bulk: history must not slow anything down."""

from __future__ import annotations

import sqlite3

FINISHED = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :count)
INSERT INTO tasks (id, seq, repo_id, prompt, agent, base_ref, strategy, priority, settings, state, reason, outcome,
                   fence, created_at, updated_at, ended_at)
SELECT 'old' || lower(hex(randomblob(6))), n + (SELECT coalesce(max(seq), 0) FROM tasks), :repo, 'a finished task',
       'command', 'HEAD', 'worktree', 0, :settings, 'completed', 'done', 'completed', 1, :now - n, :now - n, :now - n
FROM numbers
"""
EVENTS = """
INSERT INTO events (at, level, component, kind, task_id, message, reason, data)
SELECT ended_at, 'info', 'supervisor', column1, id, 'Task ' || id || ' ' || column1, 'done', '{"fence":1}'
FROM tasks, (VALUES ('task.queued'), ('task.claimed'), ('task.completed'))
WHERE state = 'completed' AND id LIKE 'old%'
ORDER BY seq
"""


def fill(path: str, repo: str, settings: str, count: int, now: float) -> None:
    """`count` finished tasks and three events for each."""
    with sqlite3.connect(path) as database:
        database.execute(FINISHED, {"count": count, "repo": repo, "settings": settings, "now": now})
        database.execute(EVENTS)
    database.close()


LONG = """
INSERT INTO tasks (id, seq, repo_id, prompt, agent, base_ref, strategy, priority, settings, state, reason, outcome,
                   fence, created_at, updated_at, ended_at)
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :count)
SELECT printf('old%09d', n), n, :repo, 'a finished task', 'command', 'HEAD', 'worktree', 0, :settings, 'completed',
       'done', 'completed', 1, :now - :count + n, :now - :count + n, :now - :count + n
FROM numbers
"""
LONG_RUNS = """
INSERT INTO runs (id, task_id, number, fence, state, outcome, reason, intended_at, started_at, ended_at, settled_at,
                  agent)
SELECT 'run' || id, id, 1, 1, 'settled', 'completed', 'done', ended_at, ended_at, ended_at, ended_at, agent
FROM tasks WHERE id LIKE 'old%' ORDER BY seq
"""
LONG_WORKSPACES = """
INSERT INTO workspaces (id, task_id, repo_id, strategy, path, branch, base_commit, state, created_at, updated_at)
SELECT 'ws' || id, id, repo_id, 'worktree', '/gone/' || id, NULL, NULL, 'gone', created_at, ended_at
FROM tasks WHERE id LIKE 'old%' ORDER BY seq
"""
LONG_EVENTS = """
INSERT INTO events (at, level, component, kind, task_id, message, reason, data)
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :each),
kinds (n, kind) AS (
    SELECT n, CASE n WHEN 1 THEN 'task.queued' WHEN 2 THEN 'task.claimed' WHEN :each THEN 'task.completed'
              ELSE 'agent.progress' END
    FROM numbers
)
SELECT ended_at, 'info', 'supervisor', kind, id, 'done', 'done', '{"fence":1}'
FROM tasks CROSS JOIN kinds WHERE id LIKE 'old%' ORDER BY seq, n
"""


def fill_long(path: str, repo: str, settings: str, count: int, now: float, events_each: int) -> None:
    """Put in `count` finished tasks, one a second until now: each with a run, a removed workspace and its events."""
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode = MEMORY")  # a write-ahead log would be as large as all of it
    database.execute("PRAGMA synchronous = OFF")
    database.execute("PRAGMA cache_size = -400000")
    with database:
        database.execute(LONG, {"count": count, "repo": repo, "settings": settings, "now": now})
        database.execute(LONG_RUNS)
        database.execute(LONG_WORKSPACES)
        database.execute(LONG_EVENTS, {"each": events_each})
    database.execute("PRAGMA journal_mode = WAL")
    database.close()
