"""A backup, made while everything runs: the store, the saved work and the home's own files, in one verified file."""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast import __version__
from holdfast.api.home import backup_file
from holdfast.base import clock, faults
from holdfast.base.dataclass import dataclass
from holdfast.base.errors import Conflict, Unavailable, UsageError
from holdfast.base.files import listed
from holdfast.store.open import open_store
from holdfast.store.sqlite.engine import copies
from holdfast.workspaces.removal.trash import delete_tree
from holdfast.workspaces.snapshots.bundles import write_bundle

BIGGEST_EXTRA = 1024 * 1024
LOCK = "backup.lock"
STAGING = ".staging"  # in the directory of the backups
_EXTRA = re.compile(r"[A-Za-z0-9_-]+\.(json|toml)")
_SHADOW = re.compile(r"([a-z0-9]+)\.git")


@dataclass(frozen=True, kw_only=True, slots=True)
class BackupResult:
    path: str
    size: int
    tasks: int
    salvages: int
    store_only: bool


def make_backup(home: str, wanted: str | None, *, store_only: bool, force: bool) -> BackupResult:
    """Write the backup to `wanted`, or to a file of the home's backups that is named after the time. The file is
    verified before it gets its name."""
    # raises the refusals for a missing, damaged or newer store
    open_store(home, create=False, for_reading=True).close()
    folder = os.path.join(home, "backups")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    target = os.path.abspath(wanted) if wanted else _free_name(folder, ".db" if store_only else ".tar")
    if not os.path.isdir(os.path.dirname(target)) or os.path.isdir(target):
        raise UsageError(f"{target} cannot be written: give the name of a file in a directory that exists.")
    _refuse_overwriting(target, force)
    staging = os.path.join(folder, STAGING)
    with _lock_backups(home), _explain_os_errors(target):
        delete_tree(staging)
        part = f"{target}.part"
        try:
            os.mkdir(staging, 0o700)
            store = os.path.join(staging, backup_file.STORE)
            # before the saved work: then the shadow repositories have every commit that a row names
            copies.copy_out(home, store)
            schema = copies.check_copy(store)
            counts = copies.count_records(store)
            faults.effect("backup.copied")
            salvages = 0
            if store_only:
                _copy_file(store, part)
            else:
                names, salvages = _collect_files(home, staging)
                facts = {"made_at": clock.now().wall, "version": __version__, "schema": schema, "counts": counts}
                backup_file.write(part, staging, [backup_file.STORE, *names], facts)
                backup_file.read(part, None)
            _refuse_overwriting(target, force)
            faults.effect("backup.named")
            os.rename(part, target)
            copies.sync_folder(os.path.dirname(target))
        finally:  # after a full disk, the space is free again
            delete_tree(staging)
            delete_tree(part)
    tasks = counts["tasks"]
    assert isinstance(tasks, dict)
    return BackupResult(
        path=target,
        size=os.path.getsize(target),
        tasks=sum(tasks.values()),
        salvages=salvages,
        store_only=store_only,
    )


def _collect_files(home: str, staging: str) -> tuple[list[str], int]:
    """Write bundles of all saved work, and copies of the small files that the home itself holds (trust, settings)."""
    names: list[str] = []
    salvages = 0
    os.mkdir(os.path.join(staging, "shadows"), 0o700)
    os.mkdir(os.path.join(staging, "home"), 0o700)
    for entry in listed(os.path.join(home, "shadows")):
        match = _SHADOW.fullmatch(entry)
        if match:
            name = f"shadows/{match[1]}.bundle"
            found = write_bundle(os.path.join(home, "shadows", entry), os.path.join(staging, name))
            salvages += found
            names += [name] if os.path.exists(os.path.join(staging, name)) else []
    faults.effect("backup.bundled")
    for entry in listed(home):
        path = os.path.join(home, entry)
        is_file = _EXTRA.fullmatch(entry) and os.path.isfile(path) and not os.path.islink(path)
        if is_file and os.path.getsize(path) <= BIGGEST_EXTRA:
            _copy_file(path, os.path.join(staging, "home", entry))
            names.append(f"home/{entry}")
    return names, salvages


@contextmanager
def _lock_backups(home: str) -> Iterator[None]:
    fd = os.open(os.path.join(home, LOCK), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict("Another backup or restore of this home is under way. Wait for it, and try again.") from None
        yield
    finally:
        os.close(fd)


alone = _lock_backups  # a backup and a restore exclude each other


@contextmanager
def _explain_os_errors(target: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unavailable(
            f"The backup {target} could not be made: {error.strerror or error}. Nothing else was changed."
        ) from error


def _refuse_overwriting(target: str, force: bool) -> None:
    if os.path.exists(target) and not os.path.isfile(target):
        raise Conflict(f"{target} is not a file, but a directory, a device or the like. Choose another name.")
    if os.path.lexists(target) and not force:
        raise Conflict(f"{target} exists already. Choose another name, or overwrite it with --force.")


def _free_name(folder: str, suffix: str) -> str:
    stem = time.strftime("holdfast-%Y%m%d-%H%M%S", time.gmtime(clock.now().wall))
    tries = (f"{stem}{suffix}", *(f"{stem}-{number}{suffix}" for number in range(2, 1000)))
    return next(path for name in tries if not os.path.lexists(path := os.path.join(folder, name)))


def _copy_file(source: str, target: str) -> None:
    import shutil

    faults.effect("backup.file")
    with open(source, "rb") as old, open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as new:
        shutil.copyfileobj(old, new)
        new.flush()
        os.fsync(new.fileno())
