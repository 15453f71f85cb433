"""What most people would write: Python's sqlite3, WAL, synchronous=FULL, a commit per step.

It gets our own schema with the same tables and indexes and writes the same rows and events, in simpler statements than
ours: no lease, no dependencies. Its thousand callers share one connection in one thread, which is its fastest form:
with a connection per caller they would wait for one another's locks, with threads for the interpreter's.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time

from holdfast.core.model import TaskSpec
from holdfast.store.sqlite.engine.statements import migrations
from holdfast.store.sqlite.rows import encode_settings

ADD = """
INSERT INTO tasks (id, seq, repo_id, prompt, agent, base_ref, strategy, priority, settings, state, reason,
                   created_at, updated_at)
VALUES (?, (SELECT coalesce(max(seq), 0) + 1 FROM tasks), ?, ?, ?, 'HEAD', 'worktree', 0, ?, 'queued', 'waiting', ?, ?)
"""
CLAIM = """
UPDATE tasks SET state = 'running', fence = fence + 1, owner = ?, updated_at = ?
WHERE id = (SELECT id FROM tasks WHERE state = 'queued' ORDER BY priority DESC, seq LIMIT 1)
RETURNING id, fence
"""
COMPLETE = """
UPDATE tasks SET state = 'completed', reason = 'done', outcome = 'completed', owner = NULL, updated_at = ?, ended_at = ?
WHERE id = ? AND state = 'running' AND fence = ? AND owner = ?
"""
EVENT = """
INSERT INTO events (at, level, component, kind, task_id, message, reason, data)
VALUES (?, 'info', 'plain', ?, ?, ?, ?, ?)
"""


class PlainStore:
    def __init__(self, path: str, repo: str) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA foreign_keys = ON")
        for _number, script in migrations():
            self._db.executescript(script)
        self._repo = repo
        now = time.time()
        self._db.execute("INSERT INTO repos VALUES (?, ?, ?, ?)", (repo, "/bench", "/bench/.git", now))

    def add(self, spec: TaskSpec) -> None:
        now = time.time()
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute(ADD, (spec.id, self._repo, spec.prompt, spec.agent, encode_settings(spec), now, now))
        self._tell("task.queued", spec.id, f"Task {spec.id} queued.", {"priority": spec.priority})
        self._db.execute("COMMIT")

    def claim(self, owner: str) -> tuple[str, int]:
        self._db.execute("BEGIN IMMEDIATE")
        task, fence = self._db.execute(CLAIM, (owner, time.time())).fetchall()[0]
        self._tell("task.claimed", task, f"Task {task} claimed.", {"host": owner, "fence": fence})
        self._db.execute("COMMIT")
        return task, fence

    def complete(self, task: str, fence: int, owner: str) -> None:
        now = time.time()
        self._db.execute("BEGIN IMMEDIATE")
        changed = self._db.execute(COMPLETE, (now, now, task, fence, owner)).rowcount
        assert changed == 1
        self._tell("task.completed", task, f"Task {task} completed.", {"outcome": "completed", "fence": fence})
        self._db.execute("COMMIT")

    def _tell(self, kind: str, task: str, message: str, data: dict[str, object]) -> None:
        self._db.execute(EVENT, (time.time(), kind, task, message, None, json.dumps(data)))

    def close(self) -> None:
        self._db.close()


async def cycle(store: PlainStore, specs: list[TaskSpec]) -> None:
    """One caller: each step is durable before it continues."""
    for spec in specs:
        store.add(spec)
        await asyncio.sleep(0)
        task, fence = store.claim("bench")
        await asyncio.sleep(0)
        store.complete(task, fence, "bench")
        await asyncio.sleep(0)
