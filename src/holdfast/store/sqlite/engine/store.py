"""The store for short-lived processes: open, one transaction at a time, views, backups."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Callable
from typing import Any, TypeVar

import apsw

from holdfast.base import clock, faults
from holdfast.base.errors import Unavailable
from holdfast.store.sqlite.engine import connection as opening
from holdfast.store.sqlite.engine.disk_reserve import SIZE, free_bytes
from holdfast.store.sqlite.engine.reader import DATABASE
from holdfast.store.sqlite.engine.statements import Statements
from holdfast.store.sqlite.engine.write_queue import WriteQueue
from holdfast.store.sqlite.transaction import SqliteTransaction

T = TypeVar("T")


BACKUPS_KEPT = 3
PATIENCE = 30.0
_OURS = re.compile(r"\d{6}-.*\.db")


class SqliteStore:
    """The store of one home. `home` is Holdfast's own directory. The database is created there unless `create` is
    false."""

    def __init__(self, home: str, *, create: bool = True) -> None:
        self.home = home
        self.path = os.path.join(home, DATABASE)
        if not create and not os.path.exists(self.path):
            raise Unavailable(
                f"There is no Holdfast store in {home} yet. Start with `holdfast init` in a git repository."
            )
        opening.refuse_network_filesystem(home)
        self._turnstile = WriteQueue(os.path.join(home, "turnstile.lock"), PATIENCE)
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(self._turnstile.close)
            # The store is made under the write queue's lock: the switch to WAL fails with "busy" at once,
            # despite the timeout.
            is_new = not os.path.exists(self.path + opening.MADE_SUFFIX)
            with self._turnstile.turn() if is_new else contextlib.nullcontext():
                if not is_new:  # a store that was never complete has nothing to lose yet
                    opening.refuse_unusable(self.path)
                self._connection = opening.open_connection(self.path)
                on_failure.callback(self._connection.close)
                self._migrate(in_turn=is_new)
            on_failure.pop_all()
        self._transaction = SqliteTransaction(self._connection)
        self._views = Statements(self._connection, "views")

    def _migrate(self, *, in_turn: bool) -> None:
        with opening.translate_errors(self.path):
            if opening.refuse_newer_schema(self._connection, self.path) < opening.newest_version():
                with contextlib.nullcontext() if in_turn else self._turnstile.turn():
                    if 0 < opening.schema_version(self._connection) < opening.newest_version():
                        opening.refuse_while_old_supervisor_runs(self._connection, self.path)
                        self.backup(f"before-schema-{opening.newest_version()}")
                    opening.migrate(self._connection, self.path)
        if not os.path.exists(self.path + opening.MADE_SUFFIX):
            faults.effect("store.made")
            os.close(os.open(self.path + opening.MADE_SUFFIX, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))

    def write(self, operation: Callable[[SqliteTransaction], T], operation_id: str | None = None) -> T:
        """Run `operation` in one transaction. When this returns, the result is on disk. When it raises, nothing was
        written."""
        with opening.translate_errors(self.path), self._turnstile.turn():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                result = operation(self._transaction)
                if operation_id is not None:
                    self._transaction.remember_operation(operation_id, clock.now())
                faults.tx("store.commit")
                self._connection.execute("COMMIT")
                faults.passed("store.committed")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            return result

    def was_done(self, operation_id: str) -> bool:
        with opening.translate_errors(self.path):
            return self._transaction.knows_operation(operation_id)

    def view(self, name: str, **parameters: Any) -> list[dict[str, Any]]:
        """Return rows of a view for readers (`queries/views.sql`)."""
        with opening.translate_errors(self.path):
            return self._views.rows(name, **parameters)

    def data_version(self) -> int:
        """Return a number that changes when another connection has committed. Followers poll it."""
        with opening.translate_errors(self.path):
            return int(self._connection.execute("PRAGMA data_version").get)

    def integrity_problems(self) -> list[str]:
        with opening.translate_errors(self.path):
            answers = [str(row[0]) for row in self._connection.execute("PRAGMA integrity_check(20)")]
            broken = [
                f"{row[0]} row {row[1]} refers to a missing {row[2]}"
                for row in self._connection.execute("PRAGMA foreign_key_check")
            ]
        return [answer for answer in answers if answer != "ok"] + broken

    def backup(self, reason: str) -> str:
        """Make a consistent copy with the online backup API. The newest few are kept. They are numbered, because
        clocks may be set back."""
        folder = os.path.join(self.home, "backups")
        faults.effect("backup.begin")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(directory, fcntl.LOCK_EX)  # one copy at a time. Writers do not wait for this lock
            return self._copy_into(folder, reason)
        finally:
            os.close(directory)

    def _copy_into(self, folder: str, reason: str) -> str:
        for name in os.listdir(folder):
            if name.endswith(".part") and _OURS.fullmatch(
                name.removesuffix(".part")
            ):  # an interrupted copy: we hold the folder's lock, so no process is still writing it
                os.unlink(os.path.join(folder, name))
        earlier = sorted(name for name in os.listdir(folder) if _OURS.fullmatch(name))
        number = int(earlier[-1].split("-", 1)[0]) + 1 if earlier else 1
        target = os.path.join(folder, f"{number:06d}-{reason}.db")
        part = f"{target}.part"
        if free_bytes(folder) < self._room_for_a_copy():
            raise opening.disk_full_error(self.path)
        try:
            self._copy_to(part)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part)  # otherwise half a copy would fill the disk that was too full for a whole one
            raise
        faults.effect("backup.rename")
        os.rename(part, target)
        faults.passed("backup.renamed")
        for old in earlier[: -(BACKUPS_KEPT - 1)]:
            os.unlink(os.path.join(folder, old))
        return target

    def _room_for_a_copy(self) -> int:
        """Return how many bytes must be free for a copy. The last space is reserved for new records, not for copies:
        SQLite can reuse the WAL only while there is space to copy its content into the database."""
        pages, page = (
            self._connection.execute("PRAGMA page_count").get,
            self._connection.execute("PRAGMA page_size").get,
        )
        size = int(pages) * int(page)
        return size + max(0, size - os.path.getsize(self.path)) + SIZE

    def _copy_to(self, part: str) -> None:
        faults.effect("backup.fill")
        with opening.translate_errors(self.path):
            opening.make_private(part)
        with (
            opening.translate_errors(self.path),
            contextlib.closing(apsw.Connection(part)) as copy,
            copy.backup("main", self._connection, "main") as job,
        ):
            job.step(-1)  # in one step: another process's commit between two steps would make the copy start over

    def forget_old_operations(self, before: float) -> None:
        self.write(lambda tx: tx.forget_operations(before))

    def close(self) -> None:
        self._connection.close()
        self._turnstile.close()
