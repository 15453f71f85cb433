"""The SQLite side of store/staffing.py: named long-lived workers: wanted or not, benched or not, and their crashes."""

from __future__ import annotations

import apsw

from holdfast.store.sqlite.cursor import Cursor
from holdfast.store.sqlite.events import SqliteEvents


class SqliteWorkers:
    def __init__(self, connection: apsw.Connection, events: SqliteEvents) -> None:
        self._sql = Cursor(connection, "workers")
        self._events = events
