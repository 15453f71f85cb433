"""The SQLite side of store/checkpointing.py: whole trees of running and paused tasks, recorded under the fence."""

from __future__ import annotations

import apsw

from holdfast.store.sqlite.cursor import Cursor
from holdfast.store.sqlite.events import SqliteEvents


class SqliteCheckpoints:
    def __init__(self, connection: apsw.Connection, events: SqliteEvents) -> None:
        self._sql = Cursor(connection, "checkpoints")
        self._events = events
