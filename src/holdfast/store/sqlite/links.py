"""The SQLite side of store/tracking.py: which task belongs to which issue of an outside tracker."""

from __future__ import annotations

import apsw

from holdfast.store.sqlite.cursor import Cursor
from holdfast.store.sqlite.events import SqliteEvents


class SqliteLinks:
    def __init__(self, connection: apsw.Connection, events: SqliteEvents) -> None:
        self._sql = Cursor(connection, "links")
        self._events = events
