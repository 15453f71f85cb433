"""Copies of the store: compact ones to keep, checked ones to restore, and the switch to one of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing

import apsw

from holdfast.base import faults
from holdfast.base.dataclass import dataclass
from holdfast.base.errors import Refused, Unavailable
from holdfast.base.instant import Instant
from holdfast.core.model import Event
from holdfast.store.sqlite.engine import connection as opening
from holdfast.store.sqlite.engine.reader import DATABASE
from holdfast.store.sqlite.engine.write_queue import WriteQueue
from holdfast.store.sqlite.events import SqliteEvents

NUMBER_GAP = 1_000_000  # how far numbers are raised when the current store cannot be read
PATIENCE = 30.0
HEADER = b"SQLite format 3\0"


class DamagedStore(Refused):
    """A file that is not a store, or not a whole one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HighestNumbers:
    """Numbers that must never be given twice: the highest fence, and the counters of events, requests and alerts."""

    fence: int
    counters: Mapping[str, int]


def copy_out(home: str, target: str) -> None:
    """Make a consistent, compact copy in one file while other processes continue writing."""
    path = os.path.join(home, DATABASE)
    faults.effect("backup.copy")
    with (
        opening.translate_errors(path),
        closing(opening.open_connection(path)) as source,
        closing(_open_plain(target)) as copy,
    ):
        _copy(source, copy)
        copy.execute("PRAGMA journal_mode = DELETE")
        copy.execute("VACUUM")  # of the copy: the store itself is never rewritten in place
    os.chmod(target, 0o600)
    sync_file(target)


def check_copy(path: str) -> int:
    """Return the schema version of a copy that is whole. Refuse one that is damaged, empty or from a newer Holdfast."""
    with open(path, "rb") as file:
        if file.read(len(HEADER)) != HEADER:
            raise DamagedStore(f"{path} is not a Holdfast store.")
    try:
        with closing(apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)) as copy:
            copy.set_busy_timeout(opening.BUSY_TIMEOUT_MS)
            version = opening.schema_version(copy)
            if version > opening.newest_version():
                raise Refused(
                    f"{path} has schema {version}, but this Holdfast knows only up to {opening.newest_version()}. "
                    "Nothing was changed: upgrade Holdfast first."
                )
            problems = [str(row[0]) for row in copy.execute("PRAGMA integrity_check(1)") if row[0] != "ok"]
            broken = copy.execute("PRAGMA foreign_key_check").fetchall()
            known = copy.execute("SELECT count(*) FROM sqlite_schema WHERE name IN ('tasks', 'runs', 'events')").get
    except (apsw.CorruptError, apsw.NotADBError, apsw.SQLError) as error:
        raise DamagedStore(f"{path} is damaged ({error}). Nothing was changed.") from error
    except apsw.Error as error:  # busy, no space, an I/O error: that proves nothing about the content
        raise Unavailable(f"{path} cannot be read now ({error}). Nothing was changed; try again.") from error
    if problems or broken:
        raise DamagedStore(
            f"{path} is damaged ({problems[0] if problems else 'broken references'}). Nothing was changed."
        )
    if version == 0 or known != 3:
        raise DamagedStore(f"{path} is not a Holdfast store.")
    return version


def highest_numbers_of(home: str) -> HighestNumbers | None:
    """Return the highest numbers of the current store, or None if it is missing or damaged. If the store is merely
    busy, an error is raised: a busy store must not be replaced like a damaged one."""
    path = os.path.join(home, DATABASE)
    try:
        if os.path.getsize(path) < opening.SMALLEST_DATABASE:
            return None
        check_copy(path)
        with opening.translate_errors(path), closing(opening.open_connection(path)) as live:
            return _highest_numbers(live)
    except (FileNotFoundError, DamagedStore):
        return None


def raise_numbers(copy_path: str, present: HighestNumbers | None, event: Event, now: Instant) -> list[str]:
    """Prepare a copy that will replace the current store: migrate it, raise its numbers above `present`, add the event.
    Return the ids of its open runs."""
    with opening.translate_errors(copy_path), closing(opening.open_connection(copy_path)) as copy:
        opening.migrate(copy, copy_path)
        with copy:
            own = _highest_numbers(copy)
            floor = max(own.fence, present.fence) if present else own.fence + NUMBER_GAP
            copy.execute("UPDATE tasks SET fence = ? + 1", (floor,))
            # Since the copy was made, an agent may have worked in an intended workspace. If it stayed intended,
            # it would be made again, its work unsaved.
            copy.execute("UPDATE workspaces SET state = 'ready' WHERE state = 'intended'")
            # Since the copy was made, a schedule may have fired: occurrences due until now are not made up for.
            copy.execute("UPDATE schedules SET cursor = ?, replacing = NULL", (now.wall,))
            copy.execute("UPDATE occurrences SET state = 'skipped', why = 'restored' WHERE state = 'waiting'")
            for name in {*own.counters, *(present.counters if present else ())}:
                mine = own.counters.get(name, 0)
                counter = max(mine, present.counters.get(name, 0)) if present else mine + NUMBER_GAP
                copy.execute("DELETE FROM sqlite_sequence WHERE name = ?", (name,))
                copy.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (name, counter))
            SqliteEvents(copy).emit(event, now)
        statement = "SELECT id FROM runs WHERE state IN ('started', 'stopping')"
        return [str(row[0]) for row in copy.execute(statement)]


def replace_content(home: str, copy_path: str) -> None:
    """Replace the content of the live database by a copy's, as one transaction of SQLite's own.

    This does not rename files: a command that has the database open and waits for its turn would write into a deleted
    file.
    """
    path = os.path.join(home, DATABASE)
    with (
        opening.translate_errors(path),
        closing(apsw.Connection(copy_path, flags=apsw.SQLITE_OPEN_READWRITE)) as copy,
        closing(opening.open_connection(path)) as live,
    ):
        faults.effect("restore.switch")
        _copy(copy, live)
        faults.passed("restore.switched")


def replace_file(home: str, copy_path: str, aside: str) -> None:
    """Replace a database that is damaged or missing by a copy. The present files are hard-linked to `aside` first.

    The old -wal belongs to the old file. Next to the new database file, the old -wal would corrupt the new one. So the
    old -wal is removed before the rename. If the process is killed at any point, there is a database at the path: the
    damaged one (whole at `aside`) or the new one.
    """
    path = os.path.join(home, DATABASE)
    for suffix in ("", "-wal"):
        if os.path.exists(path + suffix):
            os.link(path + suffix, aside + suffix)
    faults.effect("restore.aside")
    for suffix in ("-wal", "-shm"):
        if os.path.exists(path + suffix):
            os.unlink(path + suffix)
    faults.effect("restore.rename")
    os.rename(copy_path, path)
    faults.passed("restore.renamed")
    os.close(os.open(path + opening.MADE_SUFFIX, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    sync_folder(home)


def turn(home: str) -> WriteQueue:
    """Return the write queue's lock. All other writers wait while it is taken."""
    return WriteQueue(os.path.join(home, "turnstile.lock"), PATIENCE)


def count_records(path: str) -> dict[str, object]:
    """Return how much is in a copy, for its manifest and for people."""
    with opening.translate_errors(path), closing(apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)) as copy:
        copy.set_busy_timeout(opening.BUSY_TIMEOUT_MS)
        tasks = {str(row[0]): int(row[1]) for row in copy.execute("SELECT state, count(*) FROM tasks GROUP BY state")}
        return {
            "tasks": tasks,
            "repos": copy.execute("SELECT count(*) FROM repos").get,
            "salvages": copy.execute("SELECT count(*) FROM salvages").get,
            "events": copy.execute("SELECT count(*) FROM events").get,
        }


def sync_file(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


sync_folder = sync_file  # a directory is synced by the same call


def _open_plain(path: str) -> apsw.Connection:
    opening.make_private(path)
    return apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)


def _copy(source: apsw.Connection, target: apsw.Connection) -> None:
    target.set_busy_timeout(opening.BUSY_TIMEOUT_MS)
    with target.backup("main", source, "main") as job:
        while not job.done:
            job.step(-1)  # in one step: another process's commit between two steps would make the copy start over


def _highest_numbers(connection: apsw.Connection) -> HighestNumbers:
    counters = {str(row[0]): int(row[1]) for row in connection.execute("SELECT name, seq FROM sqlite_sequence")}
    return HighestNumbers(
        fence=int(connection.execute("SELECT coalesce(max(fence), 0) FROM tasks").get), counters=counters
    )
