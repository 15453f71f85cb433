"""One claimed task, from wherever it stands to its settlement.

After a crash the same code runs on what it finds: a run that was only intended, one whose keeper lives on, one that
ended meanwhile, one that ended but was not settled. There is no recovery path of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from holdfast.core.allowances import Meter
from holdfast.core.claims import conclude
from holdfast.core.health import STOP_WHY
from holdfast.core.model import RequestKind, Run, StopWhy, Strategy, Task, Workspace, outranks
from holdfast.core.outcome import Cause, Outcome, ProcessEnd, Verdict
from holdfast.core.resuming import end_of_pause
from holdfast.core.states import RunState
from holdfast.errors import LaunchError, NotOwner
from holdfast.ids import new_id
from holdfast.processes.port import LaunchSpec, LiveRun
from holdfast.store.port import Grip, Transaction
from holdfast.supervisor.allowances import NothingLeft, at_rest, at_work, meter_of, record_usage
from holdfast.supervisor.choosing import NoAccountNow
from holdfast.supervisor.context import Context, Enclosure, Subject
from holdfast.supervisor.ending import freeze, settle
from holdfast.supervisor.guard import WorkspaceGuard
from holdfast.supervisor.handover import handed_over
from holdfast.supervisor.intending import intend
from holdfast.supervisor.launching import agents_word, launch_spec
from holdfast.supervisor.listening import Listener
from holdfast.supervisor.massdeath import fails_in, is_death, note_death
from holdfast.supervisor.outside import look_after, note_before, tell
from holdfast.supervisor.preparing import ensure_workspace
from holdfast.supervisor.watching import look_away, patient_of, told_to_stop
from holdfast.workspaces.threads import in_thread

T = TypeVar("T")
OTHERS_DIE_WITHIN = 0.25  # seconds between two looks at who else died
_VERDICTS = frozenset(STOP_WHY.values())  # on its health
_ASKED_FOR = {Outcome.CANCELLED: RequestKind.CANCEL, Outcome.PAUSED: RequestKind.PAUSE}


class Attempt:
    """Drives one task under one fence. Stops are durable before they are sent."""

    def __init__(self, context: Context, task: Task, earlier: Attempt | None = None) -> None:
        """`earlier` is the try that failed before this one: a stop that it was asked for still stands."""
        assert task.owner is not None
        self.task = task
        self.grip = Grip(task_id=task.id, fence=task.fence, owner=task.owner)
        self.frozen = False
        self._context = context
        self._run: Run | None = None
        self._live: LiveRun | None = None
        self._stop_wanted: StopWhy | None = earlier._stop_wanted if earlier else None
        self._stop_reason: str = earlier._stop_reason if earlier else ""
        self._fast: bool = earlier._fast if earlier else False
        self._unsent = False
        self._meter: Meter | None = None  # while its agent is watched
        self._preparing: asyncio.Task[Any] | None = None
        self.listener: Listener | None = None  # while there is a run whose agent may report

    async def drive(self) -> None:
        """Until the task is settled, frozen, or no longer ours.

        The guard stands around everything that could start an agent, and is left after the agent's proven end: agents
        die before their tree goes (R-TREE-03). Whatever way leads out, what the task left when it ended is put away.
        """
        async with WorkspaceGuard(self._context, self.task.id) as guard:
            await self._drive(guard)

    async def _drive(self, guard: WorkspaceGuard) -> None:
        try:
            run_id, verdict = await self._until_ended()
            if verdict.outcome is Outcome.UNKNOWN:
                self.frozen = True
                guard.keep()
                await freeze(self._context, self.grip, run_id, verdict)
                return
            await self._see_who_else_dies(run_id)
            if not await settle(self._context, self.task, self.grip, run_id, verdict):
                guard.keep()  # between attempts the workspace stays: an agent's session resumes only at its own path
        except NotOwner:
            guard.keep()
            self._let_go()
        finally:
            self.listener = None
            if self._run is not None:
                look_away(self._context, self._run.id)
            at_rest(self._context, self._meter)
            if self._live is not None:
                self._live.close()

    async def stop(self, why: StopWhy, *, fast: bool, reason: str = "") -> None:
        """Ask for the end. The reason is on disk before the signal, so that this death is never taken for a crash."""
        if why in _VERDICTS and self.listener is not None and self.listener.claim is not None:
            return  # it has reported its result and has its grace to exit: its silence says nothing any more
        before = self._stop_wanted, self._stop_reason
        if outranks(why, self._stop_wanted):
            self._stop_wanted, self._stop_reason = why, reason
        self._fast = self._fast or fast
        if fast and why is StopWhy.DOWN and self._context.furnishing is not None:
            self._context.furnishing.cut_short(self.task.id)
        if self._preparing is not None:
            self._preparing.cancel()
        try:
            await self._send_stop()
        except Exception:
            if why in _VERDICTS and self._stop_wanted is why:
                self._stop_wanted, self._stop_reason = before  # it may be at work again before we can say so
            raise

    async def send_again(self) -> None:
        """A stop that could not be recorded (and was therefore not sent) the last time."""
        if self._unsent:
            await self._send_stop()

    @property
    def stop_wanted(self) -> StopWhy | None:
        return self._stop_wanted

    def beat(self) -> None:
        if self._live is not None:
            self._live.beat(self._context.host_id)

    # -- from claim to the end of the run -------------------------------------------------------------------------

    async def _until_ended(self) -> tuple[str | None, Verdict]:
        run = await self._write(lambda tx: tx.runs.open_run(self.task.id))
        if run is not None and run.state is RunState.ENDED:
            ended = run.id
            return ended, await self._write(lambda tx: tx.runs.verdict(ended))
        try:
            if run is None:
                run = await self._begin()
            else:
                self._run, self._live = run, self._context.processes.find(run.id)
                if self._stop_wanted is None and run.stop_why is not None:  # recorded, but perhaps never sent
                    self._stop_wanted, self._stop_reason = run.stop_why, run.stop_reason or ""
            return run.id, await self._watch(run)
        except LaunchError as error:
            return await self._could_not_start(str(error))
        except _Stopped as stopped:
            return await self._never_started(stopped.why)
        except NoAccountNow:
            return None, Verdict(outcome=Outcome.STOPPED, reason="its account was shut before the agent started")
        except NothingLeft:
            return None, Verdict(outcome=Outcome.STOPPED, reason="nothing was left of it before the agent started")

    async def _begin(self) -> Run:
        """Workspace, durable intent, launch: in this order."""
        if self._stop_wanted is not None:
            raise _Stopped(self._stop_wanted)
        await self._interruptible(ensure_workspace(self._context, self.task, self.grip))
        if self._stop_wanted is not None:
            raise _Stopped(self._stop_wanted)
        if self._enclosure is not None:
            await self._enclosure.check(self.task.spec)
        run_id, was = new_id(12), self.task
        self.task, run = await self._write(lambda tx: intend(self._context, tx, was, self.grip, run_id))
        self._run = run
        launching = await self._launch_spec(run)
        await note_before(self._context, self.task, run.id)
        self._live = self._context.processes.launch(launching)
        return run

    async def _interruptible(self, work: Coroutine[object, None, T]) -> T:
        """Preparing may take minutes (a large checkout): a stop ends it at once, helpers included."""
        preparing: asyncio.Task[T] = asyncio.create_task(work)
        self._preparing = preparing
        try:
            return await preparing
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if self._stop_wanted is None or (current is not None and current.cancelling()):
                raise
            raise _Stopped(self._stop_wanted) from None
        finally:
            self._preparing = None
            if not preparing.done():
                preparing.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await preparing

    async def _watch(self, run: Run) -> Verdict:
        """Until the whole tree is proven empty, or nobody can prove it."""
        assert self._live is not None
        pid = await self._live.wait_started()
        if pid is not None:
            if run.state is RunState.INTENDED:
                note = self._live.note()
                await self._write(lambda tx: tx.runs.started(self.grip, run.id, pid, self._context.clock(), note))
            channel = self._live.channel(run.heard.offset)
            self.listener = Listener(self._context, self.grip, run, channel, self.task.spec.health.claim_grace)
            self.beat()
            await self._be_watched(run)
            await self._send_stop()
        end = await self._live.wait_over()
        look_away(self._context, run.id)  # before its work is saved, which may take long
        if end.cause is Cause.NEVER_STARTED and run.state is not RunState.INTENDED:
            end = ProcessEnd(cause=Cause.UNPROVEN, detail="it was started, but its records have vanished")
        if self._enclosure is not None:
            end = await self._enclosure.prove(self.task.spec, await self._workspace(), end)
        return await self._ended(run, end)

    async def _ended(self, run: Run, end: ProcessEnd) -> Verdict:
        assert self._live is not None
        # In a thread: an agent may have written more than can be read between two beats.
        said = await in_thread(agents_word, self._context, self.task, run, self._live, end)
        if self.listener is not None:
            await self.listener.hear(last=True)  # a claim that was written just before the exit counts
        recorded = await self._write(lambda tx: tx.runs.open_run(self.task.id))
        verdict = conclude(
            end,
            recorded.stop_why if recorded else self._stop_wanted,
            said,
            recorded.stop_reason if recorded else self._stop_reason,
            recorded.claim if recorded else None,
        )
        if verdict.outcome is Outcome.UNKNOWN:
            return verdict
        final = await self._naming_the_operator(verdict)
        found = await look_after(self._context, self.task, run.id)

        def record(tx: Transaction) -> None:
            tx.runs.ended(self.grip, run.id, final, self._context.clock(), end.at)
            record_usage(self._context, tx, self.task, run.id, final)
            if is_death(final, end):
                note_death(self._context, tx, self.task, run.id, end.at)
            tell(tx, self._context, self.task, run.id, found)

        await self._write(record)
        at_rest(self._context, self._meter, final.usage)
        self._context.fingerprints.forget(os.path.join(self._context.home, "runs", run.id))
        return final

    async def _see_who_else_dies(self, run_id: str | None) -> None:
        """A death that would fail the task may be one of many, of which it is none: that failing cannot be taken back,
        what a first or second death costs can. Not for long, and not when we are asked to stop."""
        if run_id is None:
            return
        died = run_id
        while self._stop_wanted is None:
            left = await self._write(lambda tx: fails_in(self._context, tx, self.task, died))
            if left <= 0:
                return
            await asyncio.sleep(min(left, OTHERS_DIE_WITHIN))

    async def _naming_the_operator(self, verdict: Verdict) -> Verdict:
        """A cancel or a pause says whose wish it was, why, and until when: the request is pending until the task is
        settled. Of two, the later word."""
        if verdict.outcome not in _ASKED_FOR:
            return verdict
        kind = _ASKED_FOR[verdict.outcome]
        pending = await self._write(lambda tx: tx.requests.pending())
        asked = [request for request in pending if request.kind is kind and request.task_id == self.task.id]
        if not asked:
            return verdict
        why = f": {asked[-1].why}" if asked[-1].why else ""
        until = end_of_pause(asked[-1], self._context.clock())
        return replace(verdict, reason=f"{verdict.outcome} by {asked[-1].by}{why}", resets_at=until)

    async def _could_not_start(self, why: str) -> tuple[str | None, Verdict]:
        verdict = Verdict(outcome=Outcome.LAUNCH_ERROR, reason=why)
        return await self._end_without_process(verdict)

    async def _never_started(self, why: StopWhy) -> tuple[str | None, Verdict]:
        outcome = {StopWhy.CANCEL: Outcome.CANCELLED, StopWhy.PAUSE: Outcome.PAUSED}.get(why, Outcome.STOPPED)
        verdict = Verdict(outcome=outcome, reason=f"stopped ({why}) before the agent started")
        return await self._end_without_process(await self._naming_the_operator(verdict))

    async def _end_without_process(self, verdict: Verdict) -> tuple[str | None, Verdict]:
        run = self._run
        if run is not None:
            await self._write(lambda tx: tx.runs.ended(self.grip, run.id, verdict, self._context.clock()))
        return (run.id if run else None), verdict

    # -- pieces ----------------------------------------------------------------------------------------------------

    async def _send_stop(self) -> None:
        why, reason, run = self._stop_wanted, self._stop_reason, self._run
        if why is None or run is None or self._live is None:
            return
        self._unsent = True
        with contextlib.suppress(NotOwner):
            await self._write(lambda tx: tx.runs.stopping(self.grip, run.id, why, self._context.clock(), reason))
        self._live.stop(fast=self._fast)
        self._unsent = False
        grace = self._context.settings.fast_grace if self._fast else self.task.spec.grace
        told_to_stop(self._context, run.id, grace, fast=self._fast)

    async def _be_watched(self, run: Run) -> None:
        if self._live is None:
            return
        root = None
        if self._enclosure is not None and self._stop_wanted is None:
            root = await self._enclosure.root(self.task.spec, await self._workspace())
        if self._context.checkpoints is not None and self._stop_wanted is None:
            seen = root if self._enclosure is not None else self._live.keeper
            self._context.checkpoints.began(Subject(run_id=run.id, task=self.task, grip=self.grip, root=seen))
        if self._context.health is not None:
            meter = await self._write(lambda tx: meter_of(self._context, tx, self.task))
            meter = self._meter = at_work(self._context, meter, run.id)
            self._context.health.began(
                patient_of(
                    self._context, self.task, run, self._live, root, meter,
                    stop=lambda why, reason: self.stop(why, fast=False, reason=reason),
                    claimed=lambda: self.listener is not None and self.listener.claim is not None,
                )
            )  # fmt: skip

    async def _launch_spec(self, run: Run) -> LaunchSpec:
        workspace = await self._workspace()
        told = await self._interruptible(handed_over(self._context, self.task, run, workspace))
        meter = await self._write(lambda tx: meter_of(self._context, tx, self.task))
        launch = launch_spec(self._context, self.task, self.grip, run, workspace, told, meter)
        if self._enclosure is None:
            return launch
        launch, container = await self._enclosure.enclose(self.task.spec, workspace, launch)
        await self._write(lambda tx: tx.workspaces.enclosed(self.grip, workspace, container))
        return launch

    async def _workspace(self) -> Workspace:
        workspace = await self._write(lambda tx: tx.workspaces.current(self.task.id))
        assert workspace is not None  # ensure_workspace made it under our fence, and it stays while a run is open
        return workspace

    @property
    def _enclosure(self) -> Enclosure | None:
        return self._context.enclosure if self.task.spec.strategy is Strategy.CONTAINER else None

    def _let_go(self) -> None:
        """Another incarnation owns the task: end our agent, write nothing."""
        if self._live is not None:
            self._live.stop(fast=True)

    async def _write(self, operation: Callable[[Transaction], T]) -> T:
        return await self._context.writer.write(operation)


class _Stopped(Exception):
    """A stop arrived while there was no process to stop."""

    def __init__(self, why: StopWhy) -> None:
        super().__init__(str(why))
        self.why = why
