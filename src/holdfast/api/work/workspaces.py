"""Workspaces for interfaces: list them with their sizes and leftovers, keep them for longer, remove them.

Sizes are measured in short steps: a workspace with a million files must neither block the caller nor keep a core busy.
The free disk space of the home is here too, for `workspaces` and `doctor`. The gate on low disk space is in
core/dispatch/pressure.py.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from holdfast import config
from holdfast.api.commands import change_store, operator_name
from holdfast.api.queries import Queries
from holdfast.base import clock
from holdfast.base.dataclass import dataclass
from holdfast.base.errors import Conflict
from holdfast.base.units import show_duration, show_size
from holdfast.core.states import TASK_TERMINAL, WorkspaceState
from holdfast.store.port.transaction import Transaction
from holdfast.workspaces.names import TRASH

if TYPE_CHECKING:
    from holdfast.api.work.models import KeptRow, LeftoverRow, WorkspaceLine, WorkspaceRow

BATCH = 64  # entries between two checks of the clock


@dataclass(frozen=True, slots=True)
class Size:
    bytes: int
    is_whole: bool  # False: the first count is not finished
    at: float  # when it was counted, by the monotonic clock


class DirectorySizes:
    """The sizes of directories, measured step by step. Used in one thread.

    `go_on` measures for some seconds: first directories that were never measured, then sizes older than `fresh`.
    """

    def __init__(self, fresh: float) -> None:
        self.known: Mapping[str, Size] = {}
        self._fresh = fresh
        self._walk: Iterator[int] | None = None
        self._path, self._count = "", 0

    def go_on(self, paths: list[str], seconds: float) -> bool:
        """Measure for some seconds. True if there is more to measure. `known` is replaced by a new dict when a size
        changed."""
        deadline = time.monotonic() + seconds
        wanted = frozenset(paths)
        found = {path: size for path, size in self.known.items() if path in wanted}
        if self._path not in wanted:
            self._walk = None
        while True:
            if self._walk is None:
                following = self._next(paths, found)
                if following is None:
                    self._keep(found)
                    return False
                self._path, self._count, self._walk = following, 0, _walk(following)
            for count in self._walk:
                self._count += count
                if time.monotonic() >= deadline:
                    before = found.get(self._path)
                    if before is None or not before.is_whole:
                        found[self._path] = Size(self._count, False, time.monotonic())
                    self._keep(found)
                    return True
            found[self._path] = Size(self._count, True, time.monotonic())
            self._walk = None

    def _next(self, paths: list[str], found: Mapping[str, Size]) -> str | None:
        for path in paths:
            if path not in found or not found[path].is_whole:
                return path
        oldest = min(paths, key=lambda path: found[path].at, default=None)
        return oldest if oldest is not None and time.monotonic() - found[oldest].at > self._fresh else None

    def _keep(self, found: dict[str, Size]) -> None:
        if found != self.known:
            self.known = found


def _walk(path: str) -> Iterator[int]:
    """Yield the bytes of the next few entries below `path` that we may read. Links are not followed."""
    folders, total, number = [path], 0, 0
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    try:
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(entry.path)
                        else:
                            total += entry.stat(follow_symlinks=False).st_size
                    except OSError:  # the entry was removed meanwhile
                        continue
                    number += 1
                    if number % BATCH == 0:
                        yield total
                        total = 0
        except OSError:  # the directory was removed meanwhile, or we may not read it
            continue
    yield total


FRESH = 60.0  # seconds that a size is valid
MEASURE_SECONDS = 0.1  # seconds of measuring at a time
LEFT_OVER = "left over"
ORDINARY_ACTIONS = ("wait", "keep")  # what a sweep does with something that the ledger lists anyway


class WorkspaceSizes:
    """The sizes of a home's workspaces and trash. Used in one thread at a time. The returned sizes may be read in
    another thread."""

    def __init__(self, home: str) -> None:
        self.trash = os.path.join(home, "workspaces", TRASH)
        self._sizes = DirectorySizes(FRESH)
        self.is_over = False

    def go_on(self, queries: Queries) -> dict[str, Size]:
        paths = [row["path"] for row in queries.workspaces() if is_on_disk(row)]
        self.is_over = not self._sizes.go_on([*dict.fromkeys(paths), self.trash], MEASURE_SECONDS)
        return dict(self._sizes.known)


def is_on_disk(row: WorkspaceRow | WorkspaceLine) -> bool:
    """True if the workspace has a directory that Holdfast made. A workspace of strategy `none` is the user's own
    checkout."""
    return row["strategy"] != "none" and row["state"] in ("ready", "preserved")


class LeftoverFinder:
    """A finder of leftovers next to the workspaces, for repeated searches.

    A leftover is reported only if it was found twice in a row, because a workspace that is being made or removed is not
    a leftover.
    """

    def __init__(self, home: str) -> None:
        self._home = home
        self._found: frozenset[str] = frozenset()  # leftovers of ours, at the last look

    def look(self) -> list[LeftoverRow]:
        rows, before = list_leftovers(self._home), self._found
        self._found = frozenset(row["key"] for row in rows if row["state"] == LEFT_OVER)
        return [row for row in rows if row["state"] != LEFT_OVER or row["key"] in before]

    @property
    def is_quiet(self) -> bool:
        """True if the last search found nothing that looks like a leftover, not even for the first time."""
        return not self._found


def list_leftovers(home: str) -> list[LeftoverRow]:
    """Return everything that the ledger does not list, or lists differently, as `sweep --dry-run` does. Slow: git,
    /proc and the container engines are queried."""
    from holdfast.api.home.sweep import plan

    rows: list[LeftoverRow] = []
    for finding in plan(home):
        if finding["action"] in ORDINARY_ACTIONS:
            continue
        is_ours = not finding["foreign"]
        fate = f"; a sweep would {finding['action']} it" if is_ours and finding["action"] != "report" else ""
        rows.append(
            {
                "key": f"{finding['what']} {finding['where']}",
                "task": None,
                "task_state": None,
                "state": LEFT_OVER if is_ours else "foreign",
                "strategy": finding["what"],
                "path": finding["where"],
                "reason": f"{finding['why']}{fate}",
                "created_at": None,
            }
        )
    return rows


def describe_expiry(row: WorkspaceRow | WorkspaceLine) -> str:
    if row["state"] != "preserved":
        return "-"
    if row["disposition"] == "salvage":
        return "goes now"
    expires_at = row["expires_at"]
    return "until dropped" if expires_at is None else f"for {show_duration(int(expires_at - time.time()))}"


def measure_directory(path: str) -> int:
    """Return the bytes below a directory, without what we may not read."""
    total, waiting = 0, [path]  # not by `os.walk`: it recurses, and an agent can make a deep tree
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    with contextlib.suppress(OSError):
                        total += entry.stat(follow_symlinks=False).st_size
    return total


def list_workspaces(queries: Queries, *, everything: bool) -> list[WorkspaceRow]:
    """Return one row per workspace. `size` is None if the workspace has no directory of ours on disk."""
    rows = queries.workspaces(everything=everything)
    for row in rows:
        is_ours = row["strategy"] != "none" and row["state"] in ("ready", "preserved")
        row["size"] = measure_directory(row["path"]) if is_ours and os.path.isdir(row["path"]) else None
    return rows


def preserved(queries: Queries) -> list[WorkspaceRow]:
    """Return the workspaces that `clean --all-preserved` would drop."""
    ended = {str(state) for state in TASK_TERMINAL}
    rows = queries.workspaces()
    return [
        row
        for row in rows
        if row["state"] == "preserved" and row["disposition"] != "salvage" and row["task_state"] in ended
    ]


def clean(home: str, task_ids: Sequence[str]) -> None:
    """Mark preserved workspaces for removal, all of them or none. Their work is salvaged first."""

    def dispose(tx: Transaction) -> None:
        for task_id in task_ids:
            task = tx.tasks.get(task_id)
            if task.state not in TASK_TERMINAL:
                raise Conflict(f"Task {task_id} is {task.state} and needs its workspace. Nothing was changed.")
            preserved = [one for one in tx.workspaces.all_current(task_id) if one.state is WorkspaceState.PRESERVED]
            if not preserved:
                raise Conflict(
                    f"Task {task_id} has no preserved workspace. `holdfast workspaces` lists the workspaces. "
                    "Nothing was changed."
                )
            for workspace in preserved:
                tx.workspaces.dispose(workspace, "salvage", f"dropped by {operator_name()} (operator)", clock.now())

    change_store(home, dispose)


def keep(home: str, task_id: str, ttl: float) -> KeptRow:
    """Keep a workspace for `ttl` seconds (`inf`: until it is dropped). The time starts now, or when the task ends."""
    kept = change_store(home, lambda tx: tx.preserved.keep(task_id, ttl, operator_name(), clock.now()))
    return {
        "task": task_id,
        "path": None if kept is None else kept.path,
        "state": None if kept is None else str(kept.state),
        "expires_at": None if kept is None else kept.expires_at,
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class Disk:
    free: int  # bytes available to an ordinary user, on the home's file system
    floor: int  # `disk.floor`; 0: switched off
    trash: int  # bytes that are being deleted

    @property
    def is_low(self) -> bool:
        return self.free < self.floor

    def __str__(self) -> str:
        floor = f"nothing new starts below {show_size(self.floor)}" if self.floor else "`disk.floor` is switched off"
        trash = f", {show_size(self.trash)} are being deleted" if self.trash else ""
        return f"{show_size(self.free)} of disk space are free for the home{trash}; {floor}"


def read_disk(home: str) -> Disk:
    found = os.statvfs(home)
    return Disk(
        free=found.f_bavail * found.f_frsize,
        floor=int(config.load_valid_values()["disk.floor"]),
        trash=measure_directory(os.path.join(home, "workspaces", TRASH)),
    )
