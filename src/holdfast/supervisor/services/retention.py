"""Forgetting in the background: old events, run directories and tasks, and a log that is too long.

At start-up, after the recovery, and then every hour; small pieces with a pause between them, so that nobody waits for
it. No step needs an intent: a directory goes before its record, so what a crash leaves is found again by the next pass.
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
from holdfast.base.concurrency import in_thread
from holdfast.base.errors import HoldfastError, WorkspaceProblem
from holdfast.base.files import listed
from holdfast.core.model import Event
from holdfast.store.port.history import EventWindow, OldTask
from holdfast.store.port.transaction import Transaction
from holdfast.store.port.workspaces import Dropped
from holdfast.supervisor.context import Context
from holdfast.supervisor.log import rotate, say
from holdfast.supervisor.ports import SalvageReclaimer
from holdfast.supervisor.service import Service
from holdfast.supervisor.services.checkpoints import prune_checkpoints
from holdfast.workspaces.names import setup_logs
from holdfast.workspaces.removal.trash import delete_tree

SALVAGES_PIECE = 100


async def expire_salvages(context: Context) -> int:
    """How many were dropped. What an earlier pass, or `holdfast salvage prune`, left half done is finished too."""
    count = 0
    while True:
        before = context.services.timekeeper.ago(context.settings.keeping.salvages, context.clock())

        def mark(tx: Transaction, before: float = before) -> int:
            return tx.salvages.expire(before, SALVAGES_PIECE, context.clock())

        marked = await context.writer.write(mark)
        count += marked
        if marked < SALVAGES_PIECE:
            break
        await asyncio.sleep(PAUSE)
    await _finish(context)
    return count


async def _finish(context: Context) -> None:
    if context.ports.reclaimer is None:
        return
    by_repo: dict[str, list[Dropped]] = {}
    for one in await context.writer.write(lambda tx: tx.salvages.dropped()):
        by_repo.setdefault(one.repo_id, []).append(one)
    for repo_id, gone in by_repo.items():
        await _reclaim(context, context.ports.reclaimer, repo_id, gone)
        await asyncio.sleep(PAUSE)


async def _reclaim(context: Context, reclaimer: SalvageReclaimer, repo_id: str, gone: Sequence[Dropped]) -> None:
    """Rows go last: a reclaiming that was killed, or could not be done now, is found again by them."""
    repo = await context.writer.write(lambda tx: tx.workspaces.repo(repo_id))
    if await reclaimer.reclaim(repo, {one.ref: one.commit for one in gone}):
        await context.writer.write(lambda tx: tx.salvages.forget(gone))


T = TypeVar("T")
EVERY = 3600.0
PIECE = 500  # rows per transaction
MOST_CRASHES = 20_000  # remembered, however young: a home in a crash storm does not grow for ever
TASKS = 40  # tasks per transaction: each has a dozen rows elsewhere
PAUSE = 0.02
_ABOVE_ALL = 2**62


@dataclass(slots=True)
class _Removed:
    events: int = 0
    runs: int = 0
    tasks: int = 0
    salvages: int = 0
    records: int = 0  # answered requests, acknowledged alerts, supervisors that are gone, crashes

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
        """Start a pass if one is due; at most one at a time."""
        rotate(self._context.home, self._context.settings.keeping.log_size)
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
        removed = _Removed()
        try:
            await self._events(removed)
            await self._run_directories(removed)
            await self._setup_logs()
            removed.salvages = await expire_salvages(self._context)
            await prune_checkpoints(self._context)
            await self._tasks(removed)
            await self._answered(removed)
            if removed:
                await self._tell(removed)
        except (HoldfastError, OSError) as trouble:  # a full disk, say: the next pass goes on where this one stopped
            say(f"holdfast: old history was not forgotten: {trouble}")
        except Exception:  # noqa: BLE001 - told; upkeep must never be the reason that supervision ends
            say(traceback.format_exc())
        finally:
            self._context.bell.ring()

    async def _events(self, removed: _Removed) -> None:
        """From the oldest on, until nothing old is in sight. A clock that was ahead delays this, never hastens it."""
        before, after = self._moment(self._context.settings.keeping.events), 0
        while True:
            window = await self._write(partial(_drop_events, after, before))
            removed.events += window.dropped
            if window.last is None:
                return
            after = window.last
            await asyncio.sleep(PAUSE)

    async def _run_directories(self, removed: _Removed) -> None:
        before = self._moment(self._context.settings.keeping.runs)
        names = sorted(await in_thread(listed, os.path.join(self._context.home, "runs")))
        for start in range(0, len(names), PIECE):
            old = await self._write(partial(_finished_runs, names[start : start + PIECE], before))
            removed.runs += await self._delete_runs(old)
            await asyncio.sleep(PAUSE)

    async def _delete_runs(self, run_ids: Sequence[str]) -> int:
        """The records stay: `show` still tells how each run ended. A directory that resists is left for next time."""
        deleted = 0
        for run_id in run_ids:
            if self._context.ports.processes.is_held(run_id):
                continue  # it cannot be: its run is settled. But a living keeper outranks what we believe
            path = os.path.join(self._context.home, "runs", run_id)
            if os.path.lexists(path):
                faults.effect("rundir.delete")
                try:
                    await in_thread(delete_tree, path)
                except WorkspaceProblem as obstacle:
                    say(f"holdfast: {obstacle}")
                    continue
                faults.passed("rundir.deleted")
                deleted += 1
        return deleted

    async def _setup_logs(self) -> None:
        """What set-up and teardown commands printed: as long as what agents print."""
        before, folder = self._moment(self._context.settings.keeping.runs), setup_logs(self._context.home)
        for name in await in_thread(listed, folder):
            with contextlib.suppress(OSError):
                if os.lstat(os.path.join(folder, name)).st_mtime < before:
                    faults.effect("setuplog.delete")
                    os.unlink(os.path.join(folder, name))

    async def _tasks(self, removed: _Removed) -> None:
        before, below = self._moment(self._context.settings.keeping.tasks), _ABOVE_ALL
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

    async def _answered(self, removed: _Removed) -> None:
        before = self._moment(self._context.settings.keeping.events)
        while dropped := await self._write(lambda tx: tx.history.drop_answered(before, PIECE)):
            removed.records += dropped
            await asyncio.sleep(PAUSE)
        while dropped := await self._write(lambda tx: tx.notices.forget(before, PIECE)):
            removed.records += dropped
            await asyncio.sleep(PAUSE)
        before = self._moment(self._context.settings.keeping.crashes)
        while dropped := await self._write(lambda tx: tx.crashes.forget(before, MOST_CRASHES, PIECE)):
            removed.records += dropped
            await asyncio.sleep(PAUSE)

    async def _tell(self, removed: _Removed) -> None:
        parts = {
            "event(s)": removed.events,
            "run directory(s)": removed.runs,
            "task(s)": removed.tasks,
            "salvage(s)": removed.salvages,
            "other record(s)": removed.records,
        }
        message = f"Old history was forgotten: {', '.join(f'{n} {what}' for what, n in parts.items() if n)}."
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

    def _moment(self, age: float) -> float:
        return self._context.services.timekeeper.ago(age, self._context.clock())


def _drop_events(after: int, before: float, tx: Transaction) -> EventWindow:
    return tx.history.drop_events(after, before, PIECE)


def _finished_runs(names: Sequence[str], before: float, tx: Transaction) -> Sequence[str]:
    return tx.history.finished_runs(names, before)


def _forgettable(below: int, before: float, tx: Transaction) -> tuple[Sequence[OldTask], int | None]:
    return tx.history.forgettable(below, before, PIECE)


def _forget(tasks: Sequence[OldTask], before: float, tx: Transaction) -> int:
    return sum(tx.history.forget_task(task, before) for task in tasks)
