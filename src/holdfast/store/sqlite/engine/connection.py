"""Opening the database: pragmas, migrations, refusals, and the translation of SQLite's errors into ours."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import apsw

from holdfast.base import clock, faults
from holdfast.base.errors import DiskFull, NewerStore, Unavailable, UsageError
from holdfast.base.stored_json import damaged_store_error
from holdfast.store.sqlite.engine.disk_reserve import free_bytes, is_full
from holdfast.store.sqlite.engine.statements import migrations
from holdfast.store.sqlite.engine.write_queue import describe_holders, lock_holders

BUSY_TIMEOUT_MS = 30_000
SMALLEST_DATABASE = 512  # bytes. No SQLite database is smaller, except one that was never written
MADE_SUFFIX = (
    ".made"  # suffix of a marker file: the database was complete once, so an empty one is a loss, not a new one
)
MAX_WAL_PAGES = 1_000  # pages in the WAL before it is copied into the database: SQLite's own default
WAL_SHARE = 8  # the WAL may take at most one eighth of the free space
_PAGE = 4096
# The second one fails to map the memory that readers and writers share.
_WANT_MEMORY = (apsw.SQLITE_IOERR_NOMEM, apsw.SQLITE_IOERR_SHMMAP)
_ESCAPED = re.compile(r"\\([0-7]{3})")  # how mountinfo writes a space, a tab, a line end and a backslash
SAFE_SQLITE = (3, 51, 3)  # earlier versions, back to 3.7.0, can corrupt the file when a WAL is reset


def open_connection(path: str, *, for_reading: bool = False) -> apsw.Connection:
    """Open a connection with our pragmas. `for_reading`: the connection neither creates the file nor changes a byte of
    the file or its WAL."""
    flags = apsw.SQLITE_OPEN_READONLY if for_reading else apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    with translate_errors(path), _act_as_owner(path) as is_another:
        if not for_reading:
            make_private(path)
        _make_index_writable(path)
        connection = apsw.Connection(path, flags=flags)
        if for_reading and _needs_immutable_open(connection, path):
            from urllib.parse import quote  # only on a full disk: `ps` has to start fast

            connection.close()
            connection = apsw.Connection(f"file:{quote(path)}?immutable=1", flags=flags | apsw.SQLITE_OPEN_URI)
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA temp_store = MEMORY")
        if not for_reading:
            if connection.execute("PRAGMA journal_mode").get != "wal":
                connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            limit_wal(connection, path)
        elif is_another:
            connection.execute("PRAGMA user_version").get  # noqa: B018 - creates the WAL and its index now, as their owner
    return connection


def make_private(path: str) -> None:
    """Make a database readable for its owner only, under any umask. SQLite alone would let everybody read it, and its
    WAL and index get the mode of the file. A file whose mode we are not allowed to change is skipped without an error.

    An existing file is not opened for this: closing it again would drop the locks of all our connections.
    """
    try:
        if os.stat(path).st_mode & 0o077 == 0:
            return
    except FileNotFoundError:
        faults.effect("store.private")
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        return
    for each in (path, f"{path}-wal", f"{path}-shm"):
        with contextlib.suppress(FileNotFoundError, PermissionError):
            os.chmod(each, 0o600)


def _make_index_writable(path: str) -> None:
    """Make the WAL's index as writable as its database. SQLite gives the index the database's mode. So an index
    that was made while the database was read-only would stay read-only. Readers call this too: in one process, SQLite
    opens the index once for all connections."""
    with contextlib.suppress(FileNotFoundError, PermissionError):
        if os.stat(path).st_mode & 0o200 and not os.stat(f"{path}-shm").st_mode & 0o200:
            faults.effect("store.index")
            os.chmod(f"{path}-shm", 0o600)


def limit_wal(connection: apsw.Connection, path: str) -> None:
    """Limit the WAL so that it cannot fill the disk. SQLite can reuse the WAL only after it has copied the WAL's
    content into the database. That needs space, which a WAL that has filled the disk does not leave. So on a disk with
    little space the content is copied early."""
    frames = free_bytes(os.path.dirname(path)) // (_PAGE * WAL_SHARE)
    connection.execute(f"PRAGMA wal_autocheckpoint = {max(1, min(MAX_WAL_PAGES, frames))}")


@contextmanager
def _act_as_owner(path: str) -> Iterator[bool]:
    """Act as the file's owner while root opens another user's home (`sudo holdfast ps`). Otherwise the files that
    SQLite creates next to the database belong to root for a moment. In that moment the owner's supervisor cannot
    write (measured: 372 of 25,000 openings)."""
    root, group = os.geteuid(), os.getegid()
    owner = os.stat(path) if root == 0 and os.path.exists(path) else None
    if owner is None or owner.st_uid == root:
        yield False
        return
    os.setegid(owner.st_gid)
    os.seteuid(owner.st_uid)
    try:
        yield True
    finally:
        os.seteuid(root)
        os.setegid(group)


def _needs_immutable_open(connection: apsw.Connection, path: str) -> bool:
    """True if the database has to be read as an immutable file, because a full disk keeps SQLite from creating the
    memory that readers share with writers. That is safe only without a WAL: then no process is writing, and on the full
    disk none could."""
    if not is_full(os.path.dirname(path)) or _size_of(path + "-wal") > 0:
        return False
    try:
        connection.execute("SELECT count(*) FROM sqlite_schema").get  # noqa: B018 - only tests that it can be read
    except (apsw.CantOpenError, apsw.FullError, apsw.IOError):
        return True
    return False


def _size_of(path: str) -> int:
    try:
        return os.path.getsize(path)
    except FileNotFoundError:
        return 0


@contextmanager
def translate_errors(path: str) -> Iterator[None]:
    """Raise our own errors in place of SQLite's: one clear line with what happened, what was kept and what to do."""
    try:
        yield
    except apsw.FullError as error:
        raise disk_full_error(path) from error
    except (apsw.CorruptError, apsw.NotADBError) as error:
        raise Unavailable(
            f"The database {path} is damaged ({error}). It was left as it is. "
            f"Copies are in {_backups_dir(path)}: "
            "restore one with `holdfast restore FILE` (the damaged one is kept aside)."
        ) from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:  # Holdfast never writes such content
        raise damaged_store_error(error) from error
    except (apsw.BusyError, apsw.ProtocolError) as error:  # the latter: a lock on the WAL's index
        raise Unavailable(
            f"The database {path} stayed locked by another process for {BUSY_TIMEOUT_MS // 1000} s. "
            f"Nothing was written; try again.{describe_holders(lock_holders(path, path + '-shm'))}"
        ) from error
    except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.PermissionsError, apsw.IOError) as error:
        if is_full(os.path.dirname(path)):
            raise disk_full_error(path) from error
        if getattr(error, "extendedresult", 0) in _WANT_MEMORY:
            raise _no_memory_error(path) from error
        why = "it is a directory" if os.path.isdir(path) else str(error)
        # SQLite also treats a file as read-only if its header names a newer SQLite. A damaged header may do that.
        more = "" if not os.access(path, os.W_OK) else f" If it is, it is damaged: copies are in {_backups_dir(path)}."
        raise Unavailable(
            f"The database {path} cannot be used: {why}. Check that it is a file you may write.{more}"
        ) from error
    except UnicodeEncodeError as error:
        raise UsageError(
            "What was given is not text (it has bytes that are not UTF-8). Nothing was written."
        ) from error
    except apsw.SQLError as error:
        raise Unavailable(
            f"The database {path} was changed by something other than Holdfast ({error}). It was left as it is. "
            f"Copies are in {_backups_dir(path)}: restore one with `holdfast restore FILE`."
        ) from error
    except (apsw.NoMemError, MemoryError) as error:
        raise _no_memory_error(path) from error
    except OSError as error:  # not from SQLite: from a lock file, or injected by a test
        raise Unavailable(f"The store {path} cannot be used: {error}. Nothing was written; try again.") from error


def disk_full_error(path: str) -> DiskFull:
    return DiskFull(
        f"The disk of {path} is full: nothing was written, nothing acknowledged was lost. Free space and try again."
    )


def _no_memory_error(path: str) -> Unavailable:
    return Unavailable(
        f"There is not enough memory to use the database {path}. Nothing was written, nothing acknowledged was "
        "lost. Free memory, or raise the limit (`ulimit -v`, `ulimit -d`), and try again."
    )


def _backups_dir(path: str) -> str:
    return os.path.join(os.path.dirname(path), "backups")


def schema_version(connection: apsw.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").get or 0)


@cache  # what this process knows: a package upgrade while it runs brings files that it does not know
def newest_version() -> int:
    return len(migrations())


def refuse_newer_schema(connection: apsw.Connection, path: str) -> int:
    """Return the schema's version. Raise NewerStore if a newer Holdfast wrote it."""
    if os.path.getsize(path) > 0:
        connection.execute("SELECT count(*) FROM sqlite_schema").get  # noqa: B018 - a torn header is found only by reading
    version = schema_version(connection)
    if version > newest_version():
        raise NewerStore(
            f"The database {path} has schema {version}, but this Holdfast knows only up to {newest_version()}. "
            "It was left untouched: upgrade Holdfast, or point HOLDFAST_HOME somewhere else."
        )
    return version


def refuse_while_old_supervisor_runs(connection: apsw.Connection, path: str) -> None:
    """Refuse to migrate while a supervisor of the older version runs: it would continue with a schema and requests that
    it does not know."""
    for pid, ticks, boot in connection.execute("SELECT pid, start_ticks, boot_id FROM hosts WHERE state = 'active'"):
        if boot == clock.boot_id() and process_start_ticks(pid) == ticks:
            raise Unavailable(
                f"The store {path} is of an older version, and so is the supervisor that runs on it (pid {pid}). "
                f"Nothing was changed. End it first: `kill {pid}` (agents get their grace, tasks stay queued), or "
                f"`kill -9 {pid}` (agents work on, and the next `holdfast up` takes them back)."
            )


def process_start_ticks(pid: int) -> int | None:
    """Return when the process started, in ticks since boot. None if there is no such process, or if it is a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if words[0] in (b"Z", b"X") else int(words[19])


def migrate(connection: apsw.Connection, path: str) -> None:
    """Bring the schema to the newest version in one transaction, so that no reader sees a half-made store."""
    if schema_version(connection) >= newest_version():
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = schema_version(connection)  # another process may have been faster
        for number, script in migrations():
            if number > version:
                connection.execute(script)
                connection.execute(f"PRAGMA user_version = {number}")
        faults.tx("migrate")
        connection.execute("COMMIT")
        faults.passed("store.migrated")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def refuse_unusable(path: str) -> None:
    """Raise Unavailable for a database that was emptied, and NewerStore for one that a newer Holdfast wrote. This is
    checked before the database is touched, so that it stays as it is."""
    if not os.path.exists(path):
        return
    refuse_emptied(path)
    looking = open_connection(path, for_reading=True)
    try:
        with translate_errors(path):
            if refuse_newer_schema(looking, path) == 0 and os.path.exists(path + MADE_SUFFIX):
                raise _emptied_error(path)  # the WAL, which held everything, is gone
    finally:
        looking.close()


def refuse_emptied(path: str) -> None:
    if os.path.getsize(path) < SMALLEST_DATABASE and os.path.exists(path + MADE_SUFFIX):
        raise _emptied_error(path)


def _emptied_error(path: str) -> Unavailable:
    return Unavailable(
        f"The database {path} has been emptied by something else. Nothing was changed: restore a copy from "
        f"{_backups_dir(path)} with `holdfast restore FILE`, or remove {path + MADE_SUFFIX} to start with an empty "
        "store."
    )


def require_current(path: str) -> None:
    """Raise Unavailable unless the database is there, whole, and of our version. Callers are writers that neither
    create nor migrate the database."""
    if not os.path.exists(path):
        raise Unavailable(f"There is no store {path}. `holdfast init` makes one.")
    refuse_emptied(path)
    looking = open_connection(path, for_reading=True)
    try:
        with translate_errors(path):
            if refuse_newer_schema(looking, path) < newest_version():
                raise Unavailable(f"The store {path} is of an older version. `holdfast up` brings it up to date.")
    finally:
        looking.close()


_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "gpfs", "coda", "davfs"}
_NETWORK_BY_FUSE = {"sshfs", "glusterfs", "cephfs", "rclone", "s3fs", "gcsfuse", "davfs2", "smbnetfs"}
NETWORK = frozenset(_NETWORK | {f"fuse.{kind}" for kind in _NETWORK_BY_FUSE})


def refuse_network_filesystem(folder: str) -> None:
    """Raise Unavailable on a network file system. The WAL needs memory that processes share. On a network file system
    the database would be corrupted without an error."""
    kind = filesystem_type(folder)
    if kind in NETWORK:
        raise Unavailable(
            f"The home {folder} is on a network file system ({kind}), where SQLite's WAL is not safe. "
            "Set HOLDFAST_HOME to a directory on a local disk."
        )


def filesystem_type(folder: str) -> str:
    """Return the type of the mount that holds `folder`, or '' if it cannot be determined."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return ""
    best, kind = "", ""
    target = os.path.realpath(folder)
    for line in lines:
        fields = line.split()
        mount = _ESCAPED.sub(lambda code: chr(int(code[1], 8)), fields[4])
        inside = target == mount or target.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, fields[fields.index("-") + 1]
    return kind
