"""The SQLite side of store/holding.py: dispatch that is held back until a probe says otherwise."""

from __future__ import annotations

import apsw

from holdfast.store.sqlite.cursor import Cursor
from holdfast.store.sqlite.events import SqliteEvents


class SqliteHolds:
    def __init__(self, connection: apsw.Connection, events: SqliteEvents) -> None:
        self._sql = Cursor(connection, "holds")
        self._events = events
