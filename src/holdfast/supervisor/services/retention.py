"""The service that deletes old history in the background: events, run directories, tasks, salvages, and a log that is
too long.

The service runs at start-up, after recovery, and then every hour. It deletes in small pieces with a pause between them,
so nothing waits for it. No step needs a recorded intent: a directory is deleted before its record, so the next pass
finds what a crash left.

Salvages older than `salvage.keep` are first marked in the store, then their commits are deleted, then the rows.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from holdfast.base import faults
from holdfast.base.concurrency import run_in_thread
from holdfast.base.errors import HoldfastError, WorkspaceProblem
from holdfast.base.files import listed
from holdfast.core.model import Event
from holdfast.store.port.history import EventWindow, OldTask
from holdfast.store.port.transaction import Transaction
from holdfast.store.port.workspaces import DroppedSalvage
from holdfast.supervisor.context import Context
from holdfast.supervisor.log import log_line, rotate_log
from holdfast.supervisor.ports import SalvageReclaimer
from holdfast.supervisor.service import Service
from holdfast.supervisor.services.checkpoints import prune_checkpoints
from holdfast.workspaces.names import setup_logs
from holdfast.workspaces.removal.trash import delete_tree

SALVAGES_PIECE = 100


async def expire_salvages(context: Context) -> int:
    """Drop expired salvages and return their number. Also finish what an earlier pass or `holdfast salvage prune` left
    half done."""
    count = 0
    while True:
        before = context.services.timekeeper.wall_time_ago(context.settings.keeping.salvages, context.clock())

        def mark(tx: Transaction, before: float = before) -> int:
            return tx.salvages.expire(before, SALVAGES_PIECE, context.clock())

        marked = await context.writer.write(mark)
        count += marked
        if marked < SALVAGES_PIECE:
            break
        await asyncio.sleep(PAUSE)
    await _delete_dropped_salvages(context)
    return count


async def _delete_dropped_salvages(context: Context) -> None:
    if context.ports.reclaimer is None:
        return
    by_repo: dict[str, list[DroppedSalvage]] = {}
    for one in await context.writer.write(lambda tx: tx.salvages.dropped()):
        by_repo.setdefault(one.repo_id, []).append(one)
    for repo_id, gone in by_repo.items():
        await _reclaim(context, context.ports.reclaimer, repo_id, gone)
        await asyncio.sleep(PAUSE)


async def _reclaim(context: Context, reclaimer: SalvageReclaimer, repo_id: str, gone: Sequence[DroppedSalvage]) -> None:
    """Delete the commits of dropped salvages, and their rows last: by the rows, the next pass finds what is left to
    do."""
    repo = await context.writer.write(lambda tx: tx.workspaces.repo(repo_id))
    if await reclaimer.reclaim(repo, {one.ref: one.commit for one in gone}):
        await context.writer.write(lambda tx: tx.salvages.forget(gone))


T = TypeVar("T")
EVERY = 3600.0
PIECE = 500  # rows per transaction
MOST_CRASHES = 20_000  # kept at most, however young: a home in a crash storm must not grow for ever
TASKS = 40  # tasks per transaction: each has a dozen rows in other tables
PAUSE = 0.02
_ABOVE_ALL = 2**62


@dataclass(slots=True)
class _RemovedCounts:
    events: int = 0
    runs: int = 0
    tasks: int = 0
    salvages: int = 0
    records: int = 0  # answered requests, acknowledged alerts, old supervisors, crashes

    def __bool__(self) -> bool:
        return bool(self.events or self.runs or self.tasks or self.salvages or self.records)


class Retention(Service):
    def __init__(self, context: Context) -> None:
        self._context = context
        self._next = -1.0  # on the loop's clock: the first tick is due
        self._work: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        return self._work is not None and not self._work.done()

    async def tick(self) -> None:
        """Start a pass if one is due, at most one at a time."""
        rotate_log(self._context.home, self._context.settings.keeping.log_size)
        now = asyncio.get_running_loop().time()
        if not self.busy and now >= self._next:
            self._next = now + EVERY
            self._work = asyncio.create_task(self._pass(), name="retention")

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        return [] if self._work is None else [self._work]

    async def stop(self) -> None:
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)

    async def _pass(self) -> None:
        removed = _RemovedCounts()
        try:
            await self._delete_events(removed)
            await self._delete_run_directories(removed)
            await self._delete_setup_logs()
            removed.salvages = await expire_salvages(self._context)
            await prune_checkpoints(self._context)
            await self._tasks(removed)
            await self._delete_records(removed)
            if removed:
                await self._emit_summary(removed)
        # a full disk, for example: the next pass continues where this one stopped
        except (HoldfastError, OSError) as trouble:
            log_line(f"holdfast: old history was not deleted, and is tried again in an hour: {trouble}")
        except Exception:  # noqa: BLE001 - logged: upkeep must never end the supervisor
            log_line(traceback.format_exc())
        finally:
            self._context.bell.ring()

    async def _delete_events(self, removed: _RemovedCounts) -> None:
        """Delete old events, the oldest first, until none is left. A clock that was ahead delays the deletion of an
        event, but never makes it earlier."""
        before, after = self._wall_time_ago(self._context.settings.keeping.events), 0
        while True:
            window = await self._write(partial(_drop_events, after, before))
            removed.events += window.dropped
            if window.last is None:
                return
            after = window.last
            await asyncio.sleep(PAUSE)

    async def _delete_run_directories(self, removed: _RemovedCounts) -> None:
        before = self._wall_time_ago(self._context.settings.keeping.runs)
        names = sorted(await run_in_thread(listed, os.path.join(self._context.home, "runs")))
        for start in range(0, len(names), PIECE):
            old = await self._write(partial(_finished_runs, names[start : start + PIECE], before))
            removed.runs += await self._delete_runs(old)
            await asyncio.sleep(PAUSE)

    async def _delete_runs(self, run_ids: Sequence[str]) -> int:
        """Delete run directories and return their number. The records stay, so `show` still has the end of each run. A
        directory that cannot be deleted is left for the next pass."""
        deleted = 0
        for run_id in run_ids:
            if self._context.ports.processes.is_held(run_id):
                continue  # This cannot happen, because its run is settled. But a living keeper outranks our records.
            path = os.path.join(self._context.home, "runs", run_id)
            if os.path.lexists(path):
                faults.effect("rundir.delete")
                try:
                    await run_in_thread(delete_tree, path)
                except WorkspaceProblem as obstacle:
                    log_line(f"holdfast: {obstacle}")
                    continue
                faults.passed("rundir.deleted")
                deleted += 1
        return deleted

    async def _delete_setup_logs(self) -> None:
        """Delete old output of set-up and teardown commands. Such output is kept as long as agents' output."""
        before, folder = self._wall_time_ago(self._context.settings.keeping.runs), setup_logs(self._context.home)
        for name in await run_in_thread(listed, folder):
            with contextlib.suppress(OSError):
                if os.lstat(os.path.join(folder, name)).st_mtime < before:
                    faults.effect("setuplog.delete")
                    os.unlink(os.path.join(folder, name))

    async def _tasks(self, removed: _RemovedCounts) -> None:
        before, below = self._wall_time_ago(self._context.settings.keeping.tasks), _ABOVE_ALL
        while True:
            old, lowest = await self._write(partial(_forgettable, below, before))
            if lowest is None:
                return
            below = lowest
            removed.runs += await self._delete_runs([run for task in old for run in task.runs])
            free = [task for task in old if not any(map(self._has_directory, task.runs))]
            for first in range(0, len(free), TASKS):
                removed.tasks += await self._write(partial(_forget, free[first : first + TASKS], before))
                await asyncio.sleep(PAUSE)
            await asyncio.sleep(PAUSE)

    def _has_directory(self, run_id: str) -> bool:
        return os.path.lexists(os.path.join(self._context.home, "runs", run_id))

    async def _delete_records(self, removed: _RemovedCounts) -> None:
        before = self._wall_time_ago(self._context.settings.keeping.events)
        while dropped := await self._write(lambda tx: tx.history.drop_small_records(before, PIECE)):
            removed.records += dropped
            await asyncio.sleep(PAUSE)
        while dropped := await self._write(lambda tx: tx.deliveries.forget(before, PIECE)):
            removed.records += dropped
            await asyncio.sleep(PAUSE)
        before = self._wall_time_ago(self._context.settings.keeping.crashes)
        while dropped := await self._write(lambda tx: tx.crashes.forget(before, MOST_CRASHES, PIECE)):
            removed.records += dropped
            await asyncio.sleep(PAUSE)

    async def _emit_summary(self, removed: _RemovedCounts) -> None:
        parts = {
            "event(s)": removed.events,
            "run directory(s)": removed.runs,
            "task(s)": removed.tasks,
            "salvage(s)": removed.salvages,
            "other record(s)": removed.records,
        }
        message = f"Old history was deleted: {', '.join(f'{n} {what}' for what, n in parts.items() if n)}."
        data = {
            "events": removed.events,
            "runs": removed.runs,
            "tasks": removed.tasks,
            "records": removed.records,
            "salvages": removed.salvages,
        }
        event = Event(kind="retention.completed", component="retention", message=message, data=data)
        await self._write(lambda tx: tx.events.emit(event, self._context.clock()))

    async def _write(self, operation: Callable[[Transaction], T]) -> T:
        return await self._context.writer.write(operation)

    def _wall_time_ago(self, age: float) -> float:
        return self._context.services.timekeeper.wall_time_ago(age, self._context.clock())


def _drop_events(after: int, before: float, tx: Transaction) -> EventWindow:
    return tx.history.drop_events(after, before, PIECE)


def _finished_runs(names: Sequence[str], before: float, tx: Transaction) -> Sequence[str]:
    return tx.history.filter_finished_runs(names, before)


def _forgettable(below: int, before: float, tx: Transaction) -> tuple[Sequence[OldTask], int | None]:
    return tx.history.find_old_tasks(below, before, PIECE)


def _forget(tasks: Sequence[OldTask], before: float, tx: Transaction) -> int:
    return sum(tx.history.forget_task(task, before) for task in tasks)
