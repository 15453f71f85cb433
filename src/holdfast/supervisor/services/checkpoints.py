"""Checkpoints of running tasks: now and then while something changes, when an agent asks, and when a run ends that goes
on later (R-RES-11).

One at a time for the whole machine. A quiet agent costs a share of one look at /proc: where no process of a run has
run at all since the last look, nothing can have changed. A stop ends one that is under way; a settle waits for
the last one of its run, but not for long. Nothing here is needed for going on: the workspace itself stays.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.base import clock
from holdfast.base.concurrency import in_thread
from holdfast.base.errors import NotOwner
from holdfast.core.model import Repo, Strategy, Task, Workspace
from holdfast.core.runs.intervals import next_interval
from holdfast.core.states import WorkspaceState
from holdfast.store.port.transaction import Grip, Transaction
from holdfast.store.port.workspaces import Checkpoint
from holdfast.supervisor.context import Bell, Context
from holdfast.supervisor.log import debug, say_trouble
from holdfast.supervisor.ports import Subject
from holdfast.supervisor.service import Service
from holdfast.supervisor.workspaces.checkpoint_restore import rules_for
from holdfast.workspaces.names import checkpoint_ref
from holdfast.workspaces.port import NO_CHECKPOINTS
from holdfast.workspaces.snapshots.change_detection import stamp

PAUSE = 0.02
OVER = 60.0  # seconds since a task's end: what has just ended may be looked at


async def prune_checkpoints(context: Context) -> int:
    """How many rows went. Killed anywhere, or refused because somebody saves just now, it is done the next time."""
    now, ago = context.clock(), context.services.timekeeper.ago
    over, old = ago(OVER, now), ago(context.settings.keeping.runs, now)
    await context.writer.write(lambda tx: tx.checkpoints.expire(over, old))
    if context.ports.reclaimer is None:
        return 0
    by_repo: dict[str, list[Checkpoint]] = {}
    for one in await context.writer.write(lambda tx: tx.checkpoints.dropped()):
        by_repo.setdefault(one.repo_id, []).append(one)
    count = 0
    for repo in await context.writer.write(lambda tx: tx.workspaces.repos()):
        count += await _prune(context, repo, by_repo.get(repo.id, []))
    return count


async def _prune(context: Context, repo: Repo, gone: Sequence[Checkpoint]) -> int:
    """With refs that a crash left between the ref and its row, of tasks that are over."""
    assert context.ports.reclaimer is not None
    there = context.ports.reclaimer.checkpoint_refs(repo)
    known = {one.ref: one.commit for one in gone}
    strangers = await context.writer.write(
        lambda tx: tx.checkpoints.strangers(repo.id, sorted(set(there) - set(known)))
    )
    going = known | {ref: there[ref] for ref in strangers}
    if not going or not await context.ports.reclaimer.reclaim(repo, going):
        return 0
    await context.writer.write(lambda tx: tx.checkpoints.forget(gone))
    await asyncio.sleep(PAUSE)
    return len(gone)


MOST_REASONS = 3  # told of one task until one succeeds
AT_END = 30.0  # seconds that a settle waits for a checkpoint
AT_ONCE = 2  # of those
IDLE = 60.0  # without any run
PRUNE_AFTER = 25  # checkpoints; those beyond `checkpoint.keep` give their room back
PRUNE_SIZE = 1 << 30  # bytes that those held beside their HEAD: large ones give it back sooner
MOST_YIELDS = 3  # times that letting go makes way for the end of a run, which needs the same lock
APART = 2.0  # seconds between two that an agent asks for, at least: it may ask in a loop
ASKED_SHARE = 4  # and so many times what the last one took
TOGETHER = 6  # parts of the interval: runs that are due in the same part share a look at /proc


@dataclass(slots=True)
class _Watch:
    subject: Subject
    interval: float
    due: float
    mark: object = None  # of its processes at the last look
    asked: str | None = None  # by its agent, and what it noted; None: it did not
    rested: float = -math.inf  # from then on it may have one that it asks for

    def wants(self, now: float) -> bool:
        return self.asked is not None and self.rested <= now


class Checkpoints(Service):
    """A service of the supervisor. Attempts tell which runs begin and are over."""

    def __init__(self, context: Context, monotonic: Callable[[], float] = clock.monotonic) -> None:
        self._context = context
        self._now = monotonic
        self._bell = Bell()
        self._watches: dict[str, _Watch] = {}
        self._current: tuple[str, asyncio.Task[None]] | None = None
        self._ending = asyncio.Semaphore(AT_ONCE)
        self._stamps: dict[str, tuple[str, int]] = {}  # task → its workspace, and the stamp of its last checkpoint
        self._failing: dict[str, set[str]] = {}  # task → what was told, but for numbers
        self._unpruned = 0
        self._unpruned_size = 0
        self._pruning: asyncio.Task[int] | None = None
        self._yields = 0
        self._ends: dict[str, asyncio.Timeout] = {}  # run → the last one of it
        self._hurried = False  # the supervisor goes at once

    # -- from the attempts -------------------------------------------------------------------------------------------

    def began(self, subject: Subject) -> None:
        every = self._context.settings.checkpoint.every
        self._watches[subject.run_id] = _Watch(subject, every, self._later(every))
        self._bell.ring()

    def asked(self, run_id: str, note: str) -> None:
        """Its agent wants one, now."""
        watch = self._watches.get(run_id)
        if watch is not None:
            watch.asked = note
            self._bell.ring()

    def over(self, run_id: str) -> None:
        """It is being stopped, or has ended: one that is under way ends."""
        self._watches.pop(run_id, None)
        if self._current is not None and self._current[0] == run_id:
            self._current[1].cancel()
        if self._pruning is not None and self._yields < MOST_YIELDS:
            self._pruning.cancel()

    def hasten(self, run_id: str) -> None:
        """Its task is to end at once: its last one is not waited for."""
        if run_id in self._ends and not self._ends[run_id].expired():
            self._ends[run_id].reschedule(asyncio.get_running_loop().time())

    def ended(self, task_id: str) -> None:
        """Its task will not go on."""
        self._stamps.pop(task_id, None)
        self._failing.pop(task_id, None)

    def hurry(self) -> None:
        """No settle waits any more."""
        self._hurried = True

    async def at_end(
        self,
        task: Task,
        grip: Grip,
        run_id: str | None,
        session_id: str | None,
        why: str,
        *,
        always: bool = False,
        next_stage: int | None = None,
    ) -> None:
        """Before a task is settled that goes on later. Never raises, but for a task that is no longer ours. `always`:
        also where nothing changed since the last one; `next_stage`: what follows the one that has ended."""
        if self._hurried:
            return
        if self._current is not None and self._current[0] == run_id:
            await asyncio.wait([self._current[1]])
        told = replace(task, session_id=session_id)
        subject = Subject(run_id=run_id or "", task=told, grip=grip, root=None, next_stage=next_stage)
        try:
            async with asyncio.timeout(AT_END) as patience:
                self._ends[subject.run_id] = patience
                async with self._ending:
                    if always or await self._may_have_changed(subject):
                        await self._take(subject, why, always=always)
        except TimeoutError:
            await self._tell_failed(subject, why, f"it was not done within {AT_END:g} s, or its task is to end at once")
        except NotOwner:
            raise
        except Exception as trouble:  # noqa: BLE001 - the settle goes on: it is told, and nothing is lost
            say_trouble(f"no checkpoint of task {task.id} was saved: ", trouble)
        finally:
            self._ends.pop(subject.run_id, None)

    # -- now and then ------------------------------------------------------------------------------------------------

    @property
    def tasks(self) -> Sequence[asyncio.Task[Any]]:
        current = None if self._current is None else self._current[1]
        return [task for task in (current, self._pruning) if task is not None]

    async def run(self) -> None:
        while True:
            await self._bell.wait(self._until_due())
            await self.look()
            if self._unpruned >= PRUNE_AFTER or self._unpruned_size >= PRUNE_SIZE:
                await self._prune()

    async def _prune(self) -> None:
        """Ended by a run that ends, it is done after the next look: nobody who cancels a task waits for it."""
        pruning = self._pruning = asyncio.create_task(prune_checkpoints(self._context), name="pruning")
        try:
            await asyncio.wait([pruning])
        finally:
            if not pruning.done():
                pruning.cancel()
                await asyncio.wait([pruning])
            self._pruning = None
        if pruning.cancelled():
            self._yields += 1
            return
        self._unpruned = self._unpruned_size = self._yields = 0
        pruning.result()

    def _until_due(self) -> float:
        now = self._now()
        asked = [watch.rested - now for watch in self._watches.values() if watch.asked is not None]
        return max(0.0, min([IDLE, *asked, *(watch.due - now for watch in self._watches.values())]))

    def _later(self, interval: float) -> float:
        """Rounded down, so that many runs are due together."""
        if interval <= 0:
            return math.inf
        part = interval / TOGETHER
        return math.floor((self._now() + interval) / part) * part

    async def look(self) -> None:
        """At every run that is due, one after the other."""
        now = self._now()
        due = [watch for watch in self._watches.values() if watch.due <= now or watch.wants(now)]
        roots = {run.run_id: run.root for run in (watch.subject for watch in due) if run.root is not None}
        marks = self._context.ports.activity(roots) if roots else {}
        for watch in due:
            if watch.subject.run_id in self._watches:
                await self._one(watch, marks.get(watch.subject.run_id))

    async def _one(self, watch: _Watch, mark: object) -> None:
        every = self._context.settings.checkpoint.every
        is_asked = watch.wants(self._now())
        is_quiet = mark is not None and mark == watch.mark and not is_asked
        watch.mark, watch.due = mark, self._later(max(watch.interval, every) if every else 0.0)
        if is_quiet:
            return
        run_id, began = watch.subject.run_id, self._now()
        working = asyncio.create_task(self._keep(watch, is_asked=is_asked), name=f"checkpoint {run_id}")
        self._current = run_id, working
        try:
            await asyncio.wait([working])
        finally:
            if not working.done():
                working.cancel()
                await asyncio.wait([working])
            self._current = None
        cost = self._now() - began
        if is_asked:
            watch.rested = self._now() + max(APART, ASKED_SHARE * cost)
        watch.interval = next_interval(every, max(every, watch.interval), cost)
        watch.due = self._later(watch.interval if every else 0.0)

    async def _keep(self, watch: _Watch, *, is_asked: bool) -> None:
        """A task that is no longer ours, or trouble of the machine, is seen by its attempt."""
        note = watch.asked if is_asked else None
        watch.asked = None if is_asked else watch.asked
        try:
            if note is not None:
                await self._take(watch.subject, f"asked by its agent{': ' if note else ''}{note}", always=bool(note))
            elif await self._may_have_changed(watch.subject):
                await self._take(watch.subject, "periodically")
        except NotOwner:
            self._watches.pop(watch.subject.run_id, None)
        except Exception as trouble:  # noqa: BLE001 - a checkpoint must never end anything else
            say_trouble(f"no checkpoint of task {watch.subject.task.id} was saved: ", trouble)

    # -- one checkpoint ----------------------------------------------------------------------------------------------

    async def _may_have_changed(self, subject: Subject) -> bool:
        workspace = await self._context.writer.write(lambda tx: tx.workspaces.current(subject.task.id))
        if workspace is None or workspace.state is not WorkspaceState.READY:
            return False
        known = self._stamps.get(subject.task.id)
        return known is None or known != (workspace.id, await self._stamp(workspace))

    async def _stamp(self, workspace: Workspace) -> int | None:
        return await in_thread(stamp, workspace.path)

    async def _take(self, subject: Subject, why: str, *, always: bool = False) -> None:
        task = subject.task
        found = await self._context.writer.write(lambda tx: _what(tx, task.id, task.spec.repo_id))
        if found is None:
            return
        workspace, repo, last, number = found
        if workspace.strategy is Strategy.NONE:
            if why.startswith("asked"):
                await self._tell_failed(subject, why, NO_CHECKPOINTS)
            return
        before = await self._stamp(workspace)  # what is written while it is taken is seen the next time
        same = last.key if last is not None and last.workspace_id == workspace.id and not always else None
        try:
            kept = await self._context.ports.strategy_of(task.spec).checkpoint(
                repo,
                workspace,
                checkpoint_ref(task.id, number, subject.grip.fence),
                rules_for(self._context, task),
                same,
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told and tried again
            await self._tell_failed(subject, why, str(error) or type(error).__name__)
            return
        self._failing.pop(task.id, None)
        if kept is not None:
            checkpoint = Checkpoint(
                task_id=task.id,
                number=number,
                repo_id=repo.id,
                workspace_id=workspace.id,
                run_id=subject.run_id or None,
                stage=min(task.progress.stage, max(0, len(task.spec.stages) - 1)),
                session_id=task.session_id,
                output_offset=_printed(self._context.home, subject.run_id),
                ref=kept.ref,
                commit=kept.commit,
                base=kept.base,
                key=kept.key,
                files=kept.files,
                partial=kept.partial,
                why=why,
                details=dict(kept.details) | ({} if subject.next_stage is None else {"next_stage": subject.next_stage}),
            )
            keep = self._context.settings.checkpoint.keep
            await self._context.writer.write(
                lambda tx: tx.checkpoints.save(subject.grip, checkpoint, keep, self._context.clock())
            )
            self._unpruned += 1
            size = kept.details.get("size", 0)
            self._unpruned_size += size if isinstance(size, int) else 0
            debug(lambda: f"checkpoint {number} of task {task.id}: {kept.commit}")
        if before is not None and (kept is None or not kept.partial):
            self._stamps[task.id] = workspace.id, before

    async def _tell_failed(self, subject: Subject, why: str, reason: str) -> None:
        """Once per episode: until one succeeds, or the reason is another. How large a tree is changes all the time."""
        task_id = subject.task.id
        told, plain = self._failing.setdefault(task_id, set()), re.sub(r"\d+", "#", reason)
        if plain in told or len(told) >= MOST_REASONS:
            return
        run_id = subject.run_id or None
        await self._context.writer.write(
            lambda tx: tx.checkpoints.failed(subject.grip, run_id, why, reason, self._context.clock())
        )
        told.add(plain)


def _printed(home: str, run_id: str) -> int:
    """How much its agent has written to its output."""
    try:
        return os.lstat(os.path.join(home, "runs", run_id, "out.log")).st_size
    except OSError:
        return 0


def _what(tx: Transaction, task_id: str, repo_id: str) -> tuple[Workspace, Repo, Checkpoint | None, int] | None:
    workspace = tx.workspaces.current(task_id)
    if workspace is None or workspace.state is not WorkspaceState.READY:
        return None  # it is not made yet, or goes
    last = tx.checkpoints.last(task_id)
    return workspace, tx.workspaces.repo(repo_id), last, tx.checkpoints.next_number(task_id)
