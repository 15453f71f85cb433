"""The choice of the store's adapter for processes that are not the supervisor.

This is separate from wiring.py, which imports far more: the time of a cold start is measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # imported when called: a reader must not pay for the writer
    from holdfast.store.sqlite.engine.reader import SqliteReader
    from holdfast.store.sqlite.engine.store import SqliteStore


def open_reader(home: str) -> SqliteReader:
    from holdfast.store.sqlite.engine.reader import SqliteReader

    return SqliteReader(home)


def open_store(home: str, *, create: bool) -> SqliteStore:
    from holdfast.base.home import ensure_home
    from holdfast.store.sqlite.engine.store import SqliteStore

    if create:
        ensure_home(home)
    return SqliteStore(home, create=create)
