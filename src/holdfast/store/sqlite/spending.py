"""The SQLite side of store/budgeting.py: money and tokens: what was used, by task, label and time."""

from __future__ import annotations

import apsw

from holdfast.store.sqlite.cursor import Cursor
from holdfast.store.sqlite.events import SqliteEvents


class SqliteSpending:
    def __init__(self, connection: apsw.Connection, events: SqliteEvents) -> None:
        self._sql = Cursor(connection, "spending")
        self._events = events
