"""Checkpoints of running tasks: periodically while something changes, when an agent asks, and when a run ends whose
task continues later (R-RES-11).

At most one checkpoint is taken at a time on the whole machine. A quiet agent costs only a share of one look at /proc:
if no process of a run has run since the last look, nothing can have changed. A stop ends a checkpoint that is under
way. A settle waits for the last checkpoint of its run, but not for long. No resume depends on checkpoints: the
workspace itself stays.

Checkpoints that are no longer offered are pruned here too: first their refs and commits, then the rows.
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
from holdfast.base.concurrency import run_in_thread
from holdfast.base.errors import NotOwner
from holdfast.core.model import Repo, Strategy, Task, Workspace
from holdfast.core.runs.intervals import next_checkpoint_interval
from holdfast.core.states import WorkspaceState
from holdfast.store.port.transaction import Ownership, Transaction
from holdfast.store.port.workspaces import Checkpoint
from holdfast.supervisor.context import Context, WakeUp
from holdfast.supervisor.log import log_debug, log_error
from holdfast.supervisor.ports import CheckpointedRun
from holdfast.supervisor.service import Service
from holdfast.supervisor.workspaces.checkpoint_restore import salvage_rules
from holdfast.supervisor.workspaces.save import is_gone
from holdfast.workspaces.names import checkpoint_ref
from holdfast.workspaces.port import NO_CHECKPOINTS
from holdfast.workspaces.snapshots.change_detection import compute_stamp

PAUSE = 0.02
TASK_ENDED_FOR = 60.0  # seconds since a task's end: a task that has just ended may still be inspected


async def prune_checkpoints(context: Context) -> int:
    """Delete expired checkpoints and return the number of deleted rows.

    If the deletion is killed anywhere, or refused because a save is under way, the next call finishes it.
    """
    now, ago = context.clock(), context.services.timekeeper.wall_time_ago
    over, old = ago(TASK_ENDED_FOR, now), ago(context.settings.keeping.runs, now)
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
    """Delete checkpoints of one repository. Refs of finished tasks that a crash left without a row are deleted too."""
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


MOST_REASONS = 3  # reasons reported per task until a checkpoint succeeds
AT_END = 30.0  # seconds that a settle waits for a checkpoint
MOST_SETTLES_AT_ONCE = 2  # how many settles take their checkpoint at the same time
IDLE = 60.0  # seconds between two looks while nothing runs
PRUNE_AFTER = 25  # new checkpoints before old ones (beyond `checkpoint.keep`) are pruned and their space is freed
PRUNE_SIZE = 1 << 30  # bytes of new checkpoints beyond their HEAD: large ones are pruned sooner
MOST_YIELDS = 3  # times that pruning makes way for the end of a run, which needs the same lock
SECONDS_BETWEEN_REQUESTS = 2.0  # seconds at least between two checkpoints that an agent asks for: it may ask in a loop
ASKED_SHARE = 4  # and at least this many times the duration of the last one
DUE_PARTS = 6  # parts of the interval: runs that are due in the same part share one look at /proc


@dataclass(slots=True)
class _CheckpointedRunState:
    subject: CheckpointedRun
    interval: float
    due: float
    mark: object = None  # state of the run's processes at the last look
    asked: str | None = None  # the note of an agent that asked for a checkpoint; None: it did not ask
    rested: float = -math.inf  # from then on the agent may have a checkpoint that it asks for

    def is_request_due(self, now: float) -> bool:
        return self.asked is not None and self.rested <= now


class CheckpointService(Service):
    """The checkpoint service. Attempts report to it which runs begin and end."""

    def __init__(self, context: Context, monotonic: Callable[[], float] = clock.monotonic) -> None:
        self._context = context
        self._now = monotonic
        self._bell = WakeUp()
        self._watches: dict[str, _CheckpointedRunState] = {}
        self._current: tuple[str, asyncio.Task[None]] | None = None
        self._ending = asyncio.Semaphore(MOST_SETTLES_AT_ONCE)
        self._stamps: dict[str, tuple[str, int]] = {}  # task → its workspace, and the stamp of its last checkpoint
        self._failing: dict[str, set[str]] = {}  # task → reasons that were reported, with numbers masked
        self._unpruned = 0
        self._unpruned_size = 0
        self._pruning: asyncio.Task[int] | None = None
        self._yields = 0
        self._ends: dict[str, asyncio.Timeout] = {}  # run → the timeout of its last checkpoint
        self._hurried = False  # set when the supervisor stops at once

    # -- from the attempts -------------------------------------------------------------------------------------------

    def began(self, subject: CheckpointedRun) -> None:
        every = self._context.settings.checkpoint.every
        self._watches[subject.run_id] = _CheckpointedRunState(subject, every, self._rounded_due(every))
        self._bell.ring()

    def asked(self, run_id: str, note: str) -> None:
        """Take a checkpoint soon, because the agent of the run asked for one."""
        watch = self._watches.get(run_id)
        if watch is not None:
            watch.asked = note
            self._bell.ring()

    def over(self, run_id: str) -> None:
        """Stop taking checkpoints of a run that is being stopped or has ended. A checkpoint that is under way ends."""
        self._watches.pop(run_id, None)
        if self._current is not None and self._current[0] == run_id:
            self._current[1].cancel()
        if self._pruning is not None and self._yields < MOST_YIELDS:
            self._pruning.cancel()

    def skip_wait_for_run(self, run_id: str) -> None:
        """Do not wait for the last checkpoint of this run, because its task must end at once."""
        if run_id in self._ends and not self._ends[run_id].expired():
            self._ends[run_id].reschedule(asyncio.get_running_loop().time())

    def ended(self, task_id: str) -> None:
        """Forget a task that has ended."""
        self._stamps.pop(task_id, None)
        self._failing.pop(task_id, None)

    def hurry(self) -> None:
        """Let no settlement wait for a checkpoint any more."""
        self._hurried = True

    async def save_at_end(
        self,
        task: Task,
        ownership: Ownership,
        run_id: str | None,
        session_id: str | None,
        why: str,
        *,
        always: bool = False,
        next_stage: int | None = None,
    ) -> None:
        """Take a checkpoint before the settlement of a task that continues later. Never raises, except NotOwner for a
        task that is no longer ours.

        `always`: also if nothing changed since the last checkpoint. `next_stage`: the stage that follows the one that
        has ended.
        """
        if self._hurried:
            return
        told = replace(task, session_id=session_id)
        subject = CheckpointedRun(run_id=run_id or "", task=told, ownership=ownership, root=None, next_stage=next_stage)
        try:
            async with asyncio.timeout(AT_END) as patience:
                self._ends[subject.run_id] = patience
                if self._current is not None and self._current[0] == run_id:
                    await asyncio.wait([self._current[1]])
                async with self._ending:
                    if always or await self._may_have_changed(subject):
                        await self._save_checkpoint(subject, why, always=always)
        except TimeoutError:
            await self._record_failure(
                subject, why, f"it was not done within {AT_END:g} s, or its task is to end at once"
            )
        except NotOwner:
            raise
        except Exception as trouble:  # noqa: BLE001 - the settle continues: the failure is logged, and nothing is lost
            log_error(f"no checkpoint of task {task.id} was saved: ", trouble)
        finally:
            self._ends.pop(subject.run_id, None)

    # -- periodically ------------------------------------------------------------------------------------------------

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
        """Prune old checkpoints. The end of a run cancels the pruning, so no cancel of a task waits for it. It is
        repeated after the next look."""
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

    def _rounded_due(self, interval: float) -> float:
        """Return the time at which the next checkpoint is due, rounded down so that many runs are due together."""
        if interval <= 0:
            return math.inf
        part = interval / DUE_PARTS
        return math.floor((self._now() + interval) / part) * part

    async def look(self) -> None:
        """Take a checkpoint of every run that is due, one after the other."""
        now = self._now()
        due = [watch for watch in self._watches.values() if watch.due <= now or watch.is_request_due(now)]
        roots = {run.run_id: run.root for run in (watch.subject for watch in due) if run.root is not None}
        marks = self._context.ports.activity(roots) if roots else {}
        for watch in due:
            if watch.subject.run_id in self._watches:
                await self._save_run(watch, marks.get(watch.subject.run_id))

    async def _save_run(self, watch: _CheckpointedRunState, mark: object) -> None:
        every = self._context.settings.checkpoint.every
        is_asked = watch.is_request_due(self._now())
        is_quiet = mark is not None and mark == watch.mark and not is_asked
        watch.mark, watch.due = mark, self._rounded_due(max(watch.interval, every) if every else 0.0)
        if is_quiet:
            return
        run_id, began = watch.subject.run_id, self._now()
        working = asyncio.create_task(self._save_if_changed(watch, is_asked=is_asked), name=f"checkpoint {run_id}")
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
            watch.rested = self._now() + max(SECONDS_BETWEEN_REQUESTS, ASKED_SHARE * cost)
        watch.interval = next_checkpoint_interval(every, max(every, watch.interval), cost)
        watch.due = self._rounded_due(watch.interval if every else 0.0)

    async def _save_if_changed(self, watch: _CheckpointedRunState, *, is_asked: bool) -> None:
        """Take a checkpoint of one run if it may have changed. The run's attempt handles a lost ownership and trouble
        of the machine."""
        note = watch.asked if is_asked else None
        watch.asked = None if is_asked else watch.asked
        try:
            if note is not None:
                await self._save_checkpoint(
                    watch.subject, f"asked by its agent{': ' if note else ''}{note}", always=bool(note)
                )
            elif await self._may_have_changed(watch.subject):
                await self._save_checkpoint(watch.subject, "periodically")
        except NotOwner:
            self._watches.pop(watch.subject.run_id, None)
        except Exception as trouble:  # noqa: BLE001 - a checkpoint must never end anything else
            log_error(f"no checkpoint of task {watch.subject.task.id} was saved: ", trouble)

    # -- one checkpoint ----------------------------------------------------------------------------------------------

    async def _may_have_changed(self, subject: CheckpointedRun) -> bool:
        workspace = await self._context.writer.write(lambda tx: tx.workspaces.current(subject.task.id))
        if workspace is None or workspace.state is not WorkspaceState.READY:
            return False
        known = self._stamps.get(subject.task.id)
        return known is None or known != (workspace.id, await self._stamp(workspace))

    async def _stamp(self, workspace: Workspace) -> int | None:
        return await run_in_thread(compute_stamp, workspace.path)

    async def _save_checkpoint(self, subject: CheckpointedRun, why: str, *, always: bool = False) -> None:
        task = subject.task
        found = await self._context.writer.write(lambda tx: _read_checkpoint_facts(tx, task.id, task.spec.repo_id))
        if found is None:
            return
        workspace, repo, last, number = found
        if workspace.strategy is Strategy.NONE:
            if why.startswith("asked"):
                await self._record_failure(subject, why, NO_CHECKPOINTS)
            return
        if is_gone(workspace):  # an empty checkpoint would hide the last one, which holds what is left of its work
            await self._record_failure(subject, why, f"{workspace.path} is gone")
            return
        before = await self._stamp(workspace)  # changes made during the checkpoint are seen the next time
        same = last.key if last is not None and last.workspace_id == workspace.id and not always else None
        try:
            kept = await self._context.ports.strategy_of(task.spec).checkpoint(
                repo,
                workspace,
                checkpoint_ref(task.id, number, subject.ownership.fence),
                salvage_rules(self._context, task),
                same,
            )
        except Exception as error:  # noqa: BLE001 - any failure is reported and tried again
            await self._record_failure(subject, why, str(error) or type(error).__name__)
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
                output_offset=_output_size(self._context.home, subject.run_id),
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
                lambda tx: tx.checkpoints.save(subject.ownership, checkpoint, keep, self._context.clock())
            )
            self._unpruned += 1
            size = kept.details.get("size", 0)
            self._unpruned_size += size if isinstance(size, int) else 0
            log_debug(lambda: f"checkpoint {number} of task {task.id}: {kept.commit}")
        if before is not None and (kept is None or not kept.partial):
            self._stamps[task.id] = workspace.id, before

    async def _record_failure(self, subject: CheckpointedRun, why: str, reason: str) -> None:
        """Record a failed checkpoint once per episode: until a checkpoint succeeds, or the reason changes. Numbers in
        the reason are ignored, because sizes change all the time."""
        task_id = subject.task.id
        told, plain = self._failing.setdefault(task_id, set()), re.sub(r"\d+", "#", reason)
        if plain in told or len(told) >= MOST_REASONS:
            return
        run_id = subject.run_id or None
        await self._context.writer.write(
            lambda tx: tx.checkpoints.failed(subject.ownership, run_id, why, reason, self._context.clock())
        )
        told.add(plain)


def _output_size(home: str, run_id: str) -> int:
    """Return the number of bytes that the agent has written to its output."""
    try:
        return os.lstat(os.path.join(home, "runs", run_id, "out.log")).st_size
    except OSError:
        return 0


def _read_checkpoint_facts(
    tx: Transaction, task_id: str, repo_id: str
) -> tuple[Workspace, Repo, Checkpoint | None, int] | None:
    workspace = tx.workspaces.current(task_id)
    if workspace is None or workspace.state is not WorkspaceState.READY:
        return None  # not made yet, or being removed
    last = tx.checkpoints.last(task_id)
    return workspace, tx.workspaces.repo(repo_id), last, tx.checkpoints.next_number(task_id)
