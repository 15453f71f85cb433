"""The reader for `ps` and similar commands: read-only, and fast to import. All that they show comes from
queries/views.sql."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw

from holdfast.base.errors import Unavailable
from holdfast.store.sqlite.engine import connection as opening
from holdfast.store.sqlite.engine.statements import Statements

DATABASE = "holdfast.db"


class SqliteReader:
    """A read-only connection to the store of one home."""

    def __init__(self, home: str) -> None:
        self._is_snapshot = False
        self._checked = -1  # the data version at which the schema was last checked
        self.path = os.path.join(home, DATABASE)
        if not os.path.exists(self.path):
            raise Unavailable(
                f"There is no Holdfast store in {home} yet. Start with `holdfast init` in a git repository."
            )
        opening.refuse_network_filesystem(home)
        opening.refuse_emptied(self.path)
        self._open()
        with opening.translate_errors(self.path):
            version = opening.refuse_newer_schema(self._connection, self.path)
            if version == 0:
                raise Unavailable(f"The store {self.path} is not complete yet. Try again; `holdfast up` completes it.")
            if version < opening.newest_version():
                raise Unavailable(
                    f"The store {self.path} is of an older version. `holdfast up` (or any change) brings it up to date."
                )

    def _open(self) -> None:
        self._file = _identity(self.path)
        self._connection = opening.open_connection(self.path, for_reading=True)
        self._views = Statements(self._connection, "views")

    def _reopen_if_immutable(self) -> None:
        """Open the store again if it was opened as immutable, on a full disk: otherwise a follower would never see a
        change."""
        if self._connection.open_flags & apsw.SQLITE_OPEN_URI and not self._is_snapshot:
            self._connection.close()
            self._open()

    def view(self, name: str, **parameters: Any) -> list[dict[str, Any]]:
        self._reopen_if_immutable()
        with opening.translate_errors(self.path):
            return self._views.rows(name, **parameters)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let all views inside the block show the same moment: none of them shows what a supervisor commits
        meanwhile."""
        self._reopen_if_immutable()
        with opening.translate_errors(self.path):
            self._connection.execute("BEGIN")
        self._is_snapshot = True
        try:
            yield
        finally:
            self._is_snapshot = False
            self._connection.execute("ROLLBACK")

    def data_version(self) -> int:
        """Return a number that changes when another connection has committed. Followers poll it."""
        self._reopen_if_immutable()
        with opening.translate_errors(self.path):
            return int(self._connection.execute("PRAGMA data_version").get)

    def is_current(self) -> bool:
        """True if the open file is still the one at its path, with the schema that we know. Callers that keep the
        reader open need this check: the store may have been purged, restored from a backup, or migrated by a newer
        Holdfast. Opening it again shows which."""
        if _identity(self.path) != self._file:
            return False
        version = self.data_version()
        if version != self._checked:  # a migration is a change too
            with opening.translate_errors(self.path):
                if opening.schema_version(self._connection) != opening.newest_version():
                    return False
            self._checked = version
        return True

    def close(self) -> None:
        self._connection.close()


def _identity(path: str) -> tuple[int, int] | None:
    """Return the device and inode of the file, or None if there is no file."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
