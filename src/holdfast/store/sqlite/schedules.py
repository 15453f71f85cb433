"""The SQLite side of store/scheduling.py."""

from __future__ import annotations

import apsw

from holdfast.store.sqlite.events import SqliteEvents


class SqliteSchedules:
    def __init__(self, connection: apsw.Connection, events: SqliteEvents) -> None:
        self._connection = connection
        self._events = events
