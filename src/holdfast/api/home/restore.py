"""The restore of a backup. Everything is checked and prepared in another directory. The switch itself is one step.

If a restore is killed at any point, the store is intact, either the old one or the new one. Saved work is merged in;
none is removed. The old store is not destroyed: it is copied to the backups first.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from holdfast.api.home import backup_file
from holdfast.api.home.backup import alone
from holdfast.base import clock, faults
from holdfast.base.dataclass import dataclass
from holdfast.base.errors import Conflict, NotFound, Unavailable, UsageError
from holdfast.base.home import ensure_home
from holdfast.core.model import Event
from holdfast.processes.run_dir import RunDirectory
from holdfast.processes.strays import marked_processes
from holdfast.store.sqlite.engine import copies
from holdfast.store.sqlite.engine.connection import refuse_network_filesystem
from holdfast.store.sqlite.engine.reader import DATABASE
from holdfast.supervisor.home_lock import HomeLock
from holdfast.workspaces.removal.trash import delete_tree
from holdfast.workspaces.snapshots.bundles import read_bundle

STAGING = ".restoring"


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparedRestore:
    """A verified and unpacked backup, and what it would replace."""

    home: str
    source: str
    folder: str
    made_at: float | None  # None: unknown, for a bare store
    counts: Mapping[str, Any]
    present: Mapping[str, Any] | None  # counts of the current store. None: it is missing or damaged
    members: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RestoreResult:
    kept_at: str | None  # where the old store was copied to
    left_alone: tuple[str, ...]  # files of the home that existed already


@contextmanager
def prepare_restore(home: str, source: str) -> Iterator[PreparedRestore]:
    """Take the home lock, check that no agent of the home runs, then unpack and verify the backup. Nothing is changed
    yet."""
    source = os.path.abspath(source)
    if not os.path.isfile(source):
        raise NotFound(f"There is no file {source}.{_newest(home)}")
    ensure_home(home)
    refuse_network_filesystem(home)
    lock = HomeLock(home)
    lock.take()
    try:
        _refuse_running_agents(home)
        with alone(home), _explain_os_errors():
            folder = os.path.join(home, STAGING)
            delete_tree(folder)
            faults.effect("restore.begin")
            os.mkdir(folder, 0o700)
            try:
                yield _unpack(home, source, folder)
            finally:
                delete_tree(folder)
    finally:
        lock.release()


def _unpack(home: str, source: str, folder: str) -> PreparedRestore:
    store = os.path.join(folder, backup_file.STORE)
    made_at, members = None, [backup_file.STORE]
    with open(source, "rb") as file:
        is_bare = file.read(len(copies.HEADER)) == copies.HEADER
    if is_bare:
        shutil.copyfile(source, store)
        if os.path.exists(f"{source}-wal"):  # of a store that was not closed: its newest content is in the -wal
            shutil.copyfile(f"{source}-wal", f"{store}-wal")
    else:
        manifest = backup_file.read(source, folder)
        made_at, members = manifest.made_at, list(manifest.members)
    faults.effect("restore.unpacked")
    copies.check_copy(store)
    live = os.path.join(home, DATABASE)
    return PreparedRestore(
        home=home,
        source=source,
        folder=folder,
        made_at=made_at,
        counts=copies.count_records(store),
        present=None if copies.highest_numbers_of(home) is None else copies.count_records(live),
        members=tuple(members),
    )


def restore_backup(plan: PreparedRestore) -> RestoreResult:
    """Add the saved work, copy the old store to the backups, then switch to the restored store."""
    from holdfast.supervisor.services.clock import NAME as CLOCK
    from holdfast.supervisor.services.clock import record_restore

    left_alone = []
    for name in plan.members:
        kind, _, file = name.partition("/")
        if kind == "shadows":
            read_bundle(plan.home, file.removesuffix(".bundle"), os.path.join(plan.folder, name))
        elif kind == "home" and not _copy_if_missing(os.path.join(plan.folder, name), os.path.join(plan.home, file)):
            left_alone.append(file)
    if plan.made_at is not None:
        record_restore(plan.home, plan.made_at, clock.now(), from_backup=CLOCK not in left_alone)
    faults.effect("restore.added")
    store = os.path.join(plan.folder, backup_file.STORE)
    turnstile = copies.turn(plan.home)
    try:
        with turnstile.turn():  # from here on no writer can add what the switch would lose
            kept_at = _switch(plan, store)
    finally:
        turnstile.close()
    faults.passed("restore.done")
    return RestoreResult(kept_at=kept_at, left_alone=tuple(left_alone))


def _switch(plan: PreparedRestore, store: str) -> str | None:
    present = copies.highest_numbers_of(plan.home)
    now = clock.now()
    when = "" if plan.made_at is None else f" of {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(plan.made_at))}"
    event = Event(
        kind="store.restored",
        component="upkeep",
        message=f"The store was restored from the backup {plan.source}{when}.",
        data={"source": plan.source, "made_at": plan.made_at},
    )
    open_runs = copies.raise_numbers(store, present, event, now)
    copies.sync_file(store)
    for run_id in open_runs:
        _prove_dead(plan.home, run_id, now.wall)
    faults.effect("restore.prepared")
    folder = os.path.join(plan.home, "backups")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    aside = _free_aside(folder, now.wall, "before-restore" if present else "damaged")
    if present is not None:
        copies.copy_out(plan.home, f"{aside}.part")
        os.rename(f"{aside}.part", aside)
        copies.sync_folder(folder)
        faults.effect("restore.kept")
        copies.replace_content(plan.home, store)
        return aside
    was_there = os.path.exists(os.path.join(plan.home, DATABASE))
    copies.replace_file(plan.home, store, aside)
    return aside if was_there else None


def _prove_dead(home: str, run_id: str, now: float) -> None:
    """Record in the run directory that a run of the restored store is over. The caller has the proof: no process with
    our marker lives, and we hold the home lock."""
    directory = RunDirectory(os.path.join(home, "runs", run_id))
    if not directory.is_empty():
        faults.effect("restore.prove")
        os.makedirs(directory.path, mode=0o700, exist_ok=True)
        directory.declare_empty("restore", now)


def _refuse_running_agents(home: str) -> None:
    living = sorted({pid for pid, _run in marked_processes(home)})
    if living:
        shown = ", ".join(map(str, living[:5])) + (" …" if len(living) > 5 else "")
        raise Conflict(
            f"Agents of this home are still running (pid {shown}). End them first: `holdfast up --detach`, "
            "then `holdfast down --now`."
        )


refuse_running_agents = _refuse_running_agents


def _copy_if_missing(source: str, target: str) -> bool:
    """Restore a file of the home (trust, settings) only if it is missing: trust that was revoked must not come back."""
    if os.path.lexists(target):
        return False
    faults.effect("restore.file")
    shutil.copyfile(source, f"{target}.new")
    os.chmod(f"{target}.new", 0o600)
    copies.sync_file(f"{target}.new")
    os.rename(f"{target}.new", target)
    return True


def _free_aside(folder: str, now: float, why: str) -> str:
    """Return a free name for the old store. The name is not numbered like the automatic copies, so that it is not
    removed with them."""
    stem = time.strftime(f"{why}-%Y%m%d-%H%M%S", time.gmtime(now))
    tries = (f"{stem}.db", *(f"{stem}-{number}.db" for number in range(2, 1000)))
    return next(path for name in tries if not os.path.lexists(path := os.path.join(folder, name)))


def list_backups(home: str) -> list[str]:
    """Return the files in the home's backups that could be restored, the newest first."""
    folder = os.path.join(home, "backups")
    try:
        names = [name for name in os.listdir(folder) if name.endswith((".tar", ".db"))]
    except FileNotFoundError:
        return []
    paths = [os.path.join(folder, name) for name in names]
    return sorted(paths, key=lambda path: os.stat(path).st_mtime, reverse=True)


def missing_file_error(home: str) -> UsageError:
    return UsageError(f"Name the file: `holdfast restore FILE`.{_newest(home)}")


def _newest(home: str) -> str:
    found = list_backups(home)
    return f" The newest backup of this home is {found[0]}." if found else ""


@contextmanager
def _explain_os_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unavailable(
            f"The backup was not restored: {error.strerror or error} ({error.filename or 'no file'}). "
            "The store is intact, either the old one or the new one. Try again."
        ) from error
