"""The SQLite side of store/crashing.py: the history of crashes."""

from __future__ import annotations

import apsw

from holdfast.store.sqlite.cursor import Cursor
from holdfast.store.sqlite.events import SqliteEvents


class SqliteCrashes:
    def __init__(self, connection: apsw.Connection, events: SqliteEvents) -> None:
        self._sql = Cursor(connection, "crashes")
        self._events = events
