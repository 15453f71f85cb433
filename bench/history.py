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
