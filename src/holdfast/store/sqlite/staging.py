"""The SQLite side of store/staging.py."""

from __future__ import annotations

import apsw

from holdfast.store.sqlite.events import SqliteEvents


class SqliteStaging:
    def __init__(self, connection: apsw.Connection, events: SqliteEvents) -> None:
        self._connection = connection
        self._events = events
