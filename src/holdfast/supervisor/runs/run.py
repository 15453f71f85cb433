"""One run, from its durable intent to its recorded end: launched or found, watched, listened to, stopped, proven over.

What the end means for the task is not decided here (attempt.py); nor who else runs beside it.
After a crash the same code runs on what it finds: a run that was only intended, one whose keeper lives on, one that
ended meanwhile. There is no recovery path of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from holdfast.base.concurrency import in_thread
from holdfast.base.errors import LaunchError, NotOwner
from holdfast.base.ids import new_id
from holdfast.core.dispatch.spending import Meter
from holdfast.core.health.diagnosis import STOP_WHY
from holdfast.core.model import Run, StopWhy, Strategy, Task, Workspace
from holdfast.core.runs.claimed_result import conclude
from holdfast.core.runs.intervals import MOST_RUNS, Allotted, allot
from holdfast.core.runs.outcome import Cause, Outcome, ProcessEnd, Verdict
from holdfast.core.states import RunState
from holdfast.core.workflows.workflow import name_of
from holdfast.processes.port import LaunchSpec, LiveRun
from holdfast.store.port.transaction import ALONE, Grip, Role, Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.dispatch.accounts import NoAccountNow, account_for
from holdfast.supervisor.dispatch.mass_death import is_death, note_death
from holdfast.supervisor.dispatch.probes import take_account
from holdfast.supervisor.dispatch.spending import NothingLeft, at_rest, at_work, meter_of, record_usage, refuse_spent
from holdfast.supervisor.health.run_facts import look_away, patient_of, told_to_stop
from holdfast.supervisor.ports import Enclosure, Subject
from holdfast.supervisor.runs.agent_reports import Listener
from holdfast.supervisor.runs.handover import handed_over
from holdfast.supervisor.runs.launch import agents_word, launch_spec
from holdfast.supervisor.runs.repo_changes import look_after, note_before, tell
from holdfast.supervisor.runs.stages import prompted
from holdfast.supervisor.runs.stop_request import Stopped, Wish, naming_the_operator, stopped_before
from holdfast.supervisor.workspaces.prepare import ensure_workspace


def intend(
    context: Context, tx: Transaction, task: Task, grip: Grip, run_id: str, role: Role = ALONE
) -> tuple[Task, Run]:
    """The task comes back without its session when that was of an account that is gone."""
    now = context.clock()
    refuse_spent(tx, task)
    choice = account_for(context, tx, task)
    if choice.left is not None:
        tx.tasks.leave_session(grip, choice.left, now)
        task = replace(task, session_id=None, account=None)
    take_account(context, tx, task, choice.account, has_others=bool(role.member))
    if task.spec.stages and role.stage is None:
        role = replace(role, stage=name_of(task.spec.stages, task.progress))
    return task, tx.runs.intend(grip, run_id, now, _allotted(tx, task), choice.account, role)


def _allotted(tx: Transaction, task: Task) -> Allotted | None:
    """R-TERM-13: a task that asked for it gets a timeout from earlier runs of its kind (same repository and agent)."""
    spec = task.spec
    if spec.adaptive_floor is None:
        return None
    durations = tx.runs.recent_durations(spec.repo_id, spec.agent, MOST_RUNS)
    return allot(durations, spec.adaptive_floor, spec.timeout)


T = TypeVar("T")
_VERDICTS = frozenset(STOP_WHY.values())  # on its health


class RunDriver:
    """Drives one run under its task's fence. Stops are durable before they are sent."""

    role: Role = ALONE
    place_of = ""  # the member whose own workspace it works in; empty: the task's
    is_kept = True  # checkpoints of its tree are kept while it runs

    def __init__(self, context: Context, task: Task, grip: Grip, wish: Wish) -> None:
        """`wish`: a stop that was asked for before this try."""
        self.task = task
        self.grip = grip
        self.wish = wish
        self.run: Run | None = None
        self.listener: Listener | None = None  # while there is a run whose agent may report
        self._context = context
        self._live: LiveRun | None = None
        self._unsent = False
        self._meter: Meter | None = None  # while its agent is watched

    answer = ""  # of a stage with members (group.py); one agent's is read from its output

    @property
    def runs(self) -> list[RunDriver]:
        return [self]

    async def stop(self, why: StopWhy, *, fast: bool, reason: str = "") -> None:
        """Ask for the end. The reason is on disk before the signal, so that this death is never taken for a crash."""
        if why in _VERDICTS and self.listener is not None and self.listener.claim is not None:
            return  # it has reported its result and has its grace to exit: its silence says nothing any more
        before = self.wish.why, self.wish.reason
        self.wish.add(why, reason, fast=fast)
        if fast and why is StopWhy.DOWN and self._context.ports.furnishing is not None:
            self._context.ports.furnishing.cut_short(self.task.id)
        try:
            await self._send_stop()
        except Exception:
            if why in _VERDICTS and self.wish.why is why:
                self.wish.why, self.wish.reason = before  # it may be at work again before we can say so
            raise

    async def send_again(self) -> None:
        """A stop that could not be recorded (and was therefore not sent) the last time."""
        if self._unsent:
            await self._send_stop()

    @property
    def stop_wanted(self) -> StopWhy | None:
        return self.wish.why

    def beat(self) -> None:
        if self._live is not None:
            self._live.beat(self._context.host_id)

    # -- from claim to the end of the run -------------------------------------------------------------------------

    async def until_ended(self) -> tuple[str | None, Verdict]:
        run = await self._write(lambda tx: tx.runs.open_run(self.task.id, self.role.member))
        if run is not None and run.state is RunState.ENDED:
            self.run, ended = run, run.id
            return ended, await self._write(lambda tx: tx.runs.verdict(ended))
        try:
            if run is None:
                run = await self._begin()
            else:
                self.run, self._live = run, self._context.ports.processes.find(run.id)
                if self.wish.why is None and run.stop_why is not None:  # recorded, but perhaps never sent
                    self.wish.why, self.wish.reason = run.stop_why, run.stop_reason or ""
            return run.id, await self._watch(run)
        except LaunchError as error:
            return await self._could_not_start(str(error))
        except Stopped as stopped:
            return await self._never_started(stopped.why)
        except NoAccountNow:
            return None, await self._no_account()
        except NothingLeft:
            return None, self._nothing_left()

    async def _begin(self) -> Run:
        """Workspace, durable intent, launch: in this order."""
        self.wish.heed()
        await self._prepare()
        self.wish.heed()
        if self._enclosure is not None:
            await self._enclosure.check(self.task.spec)
        self._context.ports.environment(self.task.spec.environment)  # while its secrets cannot be read, no run is begun
        run_id, was = new_id(12), self.task
        self.task, run = await self._write(lambda tx: intend(self._context, tx, was, self.grip, run_id, self.role))
        self.run = run
        launching = await self._launch_spec(run)
        await note_before(self._context, self.task, run.id)
        self._live = self._context.ports.processes.launch(launching)
        return run

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
        recorded = await self._write(lambda tx: tx.runs.open_run(self.task.id, self.role.member))
        verdict = conclude(
            end,
            recorded.stop_why if recorded else self.wish.why,
            said,
            recorded.stop_reason if recorded else self.wish.reason,
            recorded.claim if recorded else None,
        )
        if verdict.outcome is Outcome.UNKNOWN:
            return verdict
        final = await naming_the_operator(self._context, self.task, verdict)
        found = await look_after(self._context, self.task, run.id)
        also = await self._also(run, final, end)

        def record(tx: Transaction) -> None:
            tx.runs.ended(self.grip, run.id, final, self._context.clock(), end.at)
            record_usage(self._context, tx, self.task, run.id, final)
            if is_death(final, end):
                note_death(self._context, tx, self.task, run.id, end.at)
            tell(tx, self._context, self.task, run.id, found)
            also(tx)

        await self._write(record)
        at_rest(self._context, self._meter, final.usage)
        self._context.ports.fingerprints.forget(os.path.join(self._context.home, "runs", run.id))
        return final

    async def _could_not_start(self, why: str) -> tuple[str | None, Verdict]:
        verdict = Verdict(outcome=Outcome.LAUNCH_ERROR, reason=why)
        return await self._end_without_process(verdict)

    async def _never_started(self, why: StopWhy) -> tuple[str | None, Verdict]:
        return await self._end_without_process(await stopped_before(self._context, self.task, why))

    async def _end_without_process(self, verdict: Verdict) -> tuple[str | None, Verdict]:
        run = self.run
        if run is not None:
            also = await self._also(run, verdict, None)

            def record(tx: Transaction) -> None:
                tx.runs.ended(self.grip, run.id, verdict, self._context.clock())
                also(tx)

            await self._write(record)
        return (run.id if run else None), verdict

    # -- what is different for a member of a parallel stage -----------------------------------------------------------

    async def _prepare(self) -> None:
        """A place to work in."""
        await self.wish.interrupts(ensure_workspace(self._context, self.task, self.grip))

    def _current(self, tx: Transaction) -> Workspace | None:
        return tx.workspaces.current(self.task.id, self.place_of)

    async def _asked(self) -> Task:
        """The task as its agent is asked for it: with the prompt of its stage."""
        return await prompted(self._context, self.task)

    async def _told(self, asked: Task, run: Run, workspace: Workspace) -> str | None:
        """What its agent is told of earlier runs."""
        return await handed_over(self._context, asked, run, workspace)

    async def _also(self, _run: Run, _verdict: Verdict, _end: ProcessEnd | None) -> Callable[[Transaction], None]:
        """What is recorded in the transaction of its end, besides. Without `end` there was no process."""
        return _nothing

    async def _no_account(self) -> Verdict:
        return Verdict(outcome=Outcome.STOPPED, reason="its account was shut before the agent started")

    def _nothing_left(self) -> Verdict:
        return Verdict(outcome=Outcome.STOPPED, reason="nothing was left of it before the agent started")

    # -- pieces ----------------------------------------------------------------------------------------------------

    async def _send_stop(self) -> None:
        why, reason, run = self.wish.why, self.wish.reason, self.run
        if why is None or run is None or self._live is None:
            return
        self._unsent = True
        try:
            await self._write(lambda tx: tx.runs.stopping(self.grip, run.id, why, self._context.clock(), reason))
        except NotOwner:
            await self.let_go()
        else:
            self._live.stop(fast=self.wish.fast)
        self._unsent = False
        grace = self._context.settings.fast_grace if self.wish.fast else self.task.spec.grace
        told_to_stop(self._context, run.id, grace, fast=self.wish.fast)

    async def _be_watched(self, run: Run) -> None:
        if self._live is None:
            return
        root = None
        if self._enclosure is not None and self.wish.why is None:
            root = await self._enclosure.root(self.task.spec, await self._workspace())
        if self.wish.why is None and self.is_kept:
            seen = root if self._enclosure is not None else self._live.keeper
            self._context.services.checkpoints.began(Subject(run_id=run.id, task=self.task, grip=self.grip, root=seen))
        meter = await self._write(lambda tx: meter_of(self._context, tx, self.task))
        meter = self._meter = at_work(self._context, meter, run.id)
        self._context.services.health.began(
            patient_of(
                self._context, self.task, run, self._live, root, meter,
                stop=lambda why, reason: self.stop(why, fast=False, reason=reason),
                claimed=lambda: self.listener is not None and self.listener.claim is not None,
                place_of=self.place_of,
            )
        )  # fmt: skip

    async def _launch_spec(self, run: Run) -> LaunchSpec:
        workspace = await self._workspace()
        asked = await self._asked()
        told = await self.wish.interrupts(self._told(asked, run, workspace))
        meter = await self._write(lambda tx: meter_of(self._context, tx, self.task))
        launch = launch_spec(self._context, asked, self.grip, run, workspace, told, meter)
        if self._enclosure is None:
            return launch
        launch, container = await self._enclosure.enclose(self.task.spec, workspace, launch)
        await self._write(lambda tx: tx.workspaces.enclosed(self.grip, workspace, container))
        return launch

    async def _workspace(self) -> Workspace:
        workspace = await self._write(self._current)
        assert workspace is not None  # ensure_workspace made it under our fence, and it stays while a run is open
        return workspace

    @property
    def _enclosure(self) -> Enclosure | None:
        return self._context.ports.enclosure if self.task.spec.strategy is Strategy.CONTAINER else None

    async def let_go(self) -> None:
        """Another incarnation owns the task: write nothing. If this very run is still open, its agent is that one's too
        (it adopts whatever lives in this home): we, who were away, have nothing to say. Else we end what we started."""
        if self._live is None or self.run is None:
            return
        still = await self._write(lambda tx: tx.runs.open_run(self.task.id, self.role.member))
        if still is None or still.id != self.run.id:
            self._live.stop(fast=True)

    def close(self) -> None:
        """Nobody drives it any more."""
        self.listener = None
        if self.run is not None:
            look_away(self._context, self.run.id)
        at_rest(self._context, self._meter)
        if self._live is not None:
            self._live.close()

    async def _write(self, operation: Callable[[Transaction], T]) -> T:
        return await self._context.writer.write(operation)


def _nothing(_tx: Transaction) -> None:
    return
