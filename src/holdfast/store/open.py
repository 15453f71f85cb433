"""The choice of the store's adapter for processes that are not the supervisor.

This module is separate from wiring/supervisor.py, which imports far more, because a command has to start fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # imported when called: a reader must not pay for the writer
    from holdfast.store.sqlite.engine.reader import SqliteReader
    from holdfast.store.sqlite.engine.store import SqliteStore


def open_reader(home: str) -> SqliteReader:
    from holdfast.store.sqlite.engine.reader import SqliteReader

    return SqliteReader(home)


def open_store(home: str, *, create: bool, for_reading: bool = False) -> SqliteStore:
    """Open the store. `for_reading`: the caller only reads, so the home may belong to another user (for root)."""
    from holdfast.base.home import ensure_home, refuse_foreign_home
    from holdfast.store.sqlite.engine.store import SqliteStore

    if create:
        ensure_home(home)
    elif not for_reading:
        refuse_foreign_home(home)
    return SqliteStore(home, create=create)
