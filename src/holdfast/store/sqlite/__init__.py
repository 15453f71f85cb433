"""The embedded store: SQLite through apsw, which bundles a version without the WAL-reset corruption bug."""

from holdfast.store.sqlite.store import SqliteStore
from holdfast.store.sqlite.writer import GroupWriter

__all__ = ["GroupWriter", "SqliteStore"]
