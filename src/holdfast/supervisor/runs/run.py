"""One run, from its durable intent to its recorded end: launched or found, watched, read, stopped, proven over.

attempt.py decides what the end means for the task. This module does not know which other runs exist. After a crash the
same code continues from what it finds: a run that was only intended, a run whose keeper lives, or a run that ended
meanwhile. There is no separate recovery path.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from holdfast.base.concurrency import run_in_thread
from holdfast.base.errors import LaunchError, NotOwner
from holdfast.base.ids import new_id
from holdfast.core.dispatch.spending import SpendingMeter
from holdfast.core.health.diagnosis import STOP_WHY
from holdfast.core.model import Run, StopWhy, Strategy, Task, Workspace
from holdfast.core.runs.claimed_result import judge_run
from holdfast.core.runs.intervals import MOST_RUNS, AdaptiveTimeout, adapt_timeout
from holdfast.core.runs.outcome import Cause, Outcome, ProcessEnd, Verdict
from holdfast.core.states import RunState
from holdfast.core.tasks.messages import NO_MESSAGES, Turn
from holdfast.core.workflows.workflow import name_of
from holdfast.processes.port import LaunchSpec, LiveRun
from holdfast.store.port.transaction import NO_WORKFLOW_ROLE, Ownership, RunRole, Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.dispatch.accounts import NoAccountNow, account_for
from holdfast.supervisor.dispatch.mass_death import is_death, record_death
from holdfast.supervisor.dispatch.probes import make_probe_of_account
from holdfast.supervisor.dispatch.spending import (
    SpendingCapReached,
    make_meter,
    raise_if_cap_spent,
    record_usage,
    start_metering,
    stop_metering,
)
from holdfast.supervisor.health.run_facts import notify_stopping, unregister_run, watched_run
from holdfast.supervisor.ports import AgentContainers, CheckpointedRun
from holdfast.supervisor.runs.agent_reports import ReportReader
from holdfast.supervisor.runs.handover import build_handover
from holdfast.supervisor.runs.launch import build_launch_spec, verdict_from_output
from holdfast.supervisor.runs.repo_changes import compare_after, fingerprint_before, report_findings
from holdfast.supervisor.runs.stages import task_with_stage_prompt
from holdfast.supervisor.runs.stop_request import StopRequest, StopRequested, verdict_stopped_before, with_requester
from holdfast.supervisor.settings import Thresholds
from holdfast.supervisor.workspaces.prepare import bring_base, ensure_workspace


def record_intent(
    context: Context, tx: Transaction, task: Task, ownership: Ownership, run_id: str, role: RunRole = NO_WORKFLOW_ROLE
) -> tuple[Task, Run, Turn]:
    """Record the durable intent of a run, with its account and timeout, in one transaction before anything is started.

    Return the task, its run, and the messages of people that the run is given. The task has no session any more if that
    session belonged to an account that is gone.
    """
    now = context.clock()
    raise_if_cap_spent(tx, task)
    choice = account_for(context, tx, task)
    if choice.left is not None:
        tx.tasks.drop_session(ownership, choice.left, now)
        task = replace(task, session_id=None, account=None)
    make_probe_of_account(context, tx, task, choice.account, has_others=bool(role.member))
    if task.spec.stages and role.stage is None:
        role = replace(role, stage=name_of(task.spec.stages, task.progress))
    timeout = _adaptive_timeout(tx, task, context.settings.thresholds)
    run = tx.runs.intend(ownership, run_id, now, timeout, choice.account, role)
    return task, run, tx.messages.deliver(task, run_id, now)


def _adaptive_timeout(tx: Transaction, task: Task, numbers: Thresholds) -> AdaptiveTimeout | None:
    """Return a timeout derived from earlier runs with the same repository and agent, if the task asked for an adaptive
    timeout (R-TERM-13)."""
    spec = task.spec
    if spec.adaptive_floor is None:
        return None
    durations = tx.runs.recent_durations(spec.repo_id, spec.agent, MOST_RUNS)
    return adapt_timeout(
        durations, spec.adaptive_floor, spec.timeout, factor=numbers.adaptive_factor, least=numbers.adaptive_runs
    )


T = TypeVar("T")
_HEALTH_STOPS = frozenset(STOP_WHY.values())  # stop reasons that come from the run's health


class RunDriver:
    """The driver of one run under its task's fence. Stops are durable before they are sent."""

    role: RunRole = NO_WORKFLOW_ROLE
    place_of = ""  # the member whose own workspace the run uses; empty: the task's workspace
    is_kept = True  # checkpoints of the tree are taken while it runs

    def __init__(self, context: Context, task: Task, ownership: Ownership, stop_request: StopRequest) -> None:
        """Create the driver, with the stop request of the task. The request may be older than this try."""
        self.task = task
        self.ownership = ownership
        self.stop_request = stop_request
        self.run: Run | None = None
        self.report_reader: ReportReader | None = None  # set while there is a run whose agent may report
        self._context = context
        self._live: LiveRun | None = None
        self._unsent = False
        self._meter: SpendingMeter | None = None  # set while the agent is watched
        self._turn: Turn = NO_MESSAGES  # the messages of people that matter for the prompt of the run

    answer = ""  # set for a stage with members (parallel_stage.py); the answer of one agent is read from its output

    @property
    def runs(self) -> list[RunDriver]:
        return [self]

    async def stop(self, why: StopWhy, *, fast: bool, reason: str = "") -> None:
        """Ask for the end of the run. The reason is on disk before the signal is sent, so the death that follows is
        never taken for a crash."""
        if why in _HEALTH_STOPS and self.report_reader is not None and self.report_reader.claim is not None:
            return  # The agent has reported its result and has its grace to exit: its silence means nothing any more.
        before = self.stop_request.why, self.stop_request.reason
        self.stop_request.add(why, reason, fast=fast)
        if fast and why is StopWhy.DOWN and self._context.ports.workspace_setup is not None:
            self._context.ports.workspace_setup.cut_short(self.task.id)
        try:
            await self._send_stop()
        except Exception:
            if why in _HEALTH_STOPS and self.stop_request.why is why:
                # the agent may be at work again before the stop can be recorded
                self.stop_request.why, self.stop_request.reason = before
            raise

    async def send_again(self) -> None:
        """Try again to record and send a stop. The last time it could not be recorded, so it was not sent."""
        if self._unsent:
            await self._send_stop()

    @property
    def requested_stop(self) -> StopWhy | None:
        return self.stop_request.why

    def beat(self) -> None:
        if self._live is not None:
            self._live.beat(self._context.host_id)

    # -- from claim to the end of the run -------------------------------------------------------------------------

    async def wait_for_end(self) -> tuple[str | None, Verdict]:
        run = await self._write(lambda tx: tx.runs.open_run(self.task.id, self.role.member))
        if run is not None and run.state is RunState.ENDED:
            self.run, ended = run, run.id
            return ended, await self._write(lambda tx: tx.runs.verdict(ended))
        try:
            if run is None:
                run = await self._start_run()
            else:
                self.run, self._live = run, self._context.ports.processes.find(run.id)
                if self.stop_request.why is None and run.stop_why is not None:  # recorded, but perhaps never sent
                    self.stop_request.why, self.stop_request.reason = run.stop_why, run.stop_reason or ""
            return run.id, await self._wait_for_proven_end(run)
        except LaunchError as error:
            return await self._end_with_launch_error(str(error))
        except StopRequested as stopped:
            return await self._end_stopped_before_start(stopped.why)
        except NoAccountNow:
            return None, await self._verdict_without_account()
        except SpendingCapReached:
            return None, self._verdict_cap_spent()

    async def _start_run(self) -> Run:
        """Prepare the workspace, record the run's durable intent, and launch its agent, in this order."""
        self.stop_request.raise_if_stopped()
        await self._prepare()
        self.stop_request.raise_if_stopped()
        if self._enclosure is not None:
            await self._enclosure.check(self.task.spec)
        # No run begins while the task's secrets cannot be read.
        self._context.ports.environment(self.task.spec.environment)
        run_id, was = new_id(12), self.task
        self.task, run, self._turn = await self._write(
            lambda tx: record_intent(self._context, tx, was, self.ownership, run_id, self.role)
        )
        self.run = run
        launching = await self._launch_spec(run)
        await fingerprint_before(self._context, self.task, run.id)
        self._live = self._context.ports.processes.launch(launching)
        return run

    async def _wait_for_proven_end(self, run: Run) -> Verdict:
        """Wait until the whole process tree is proven empty, or until it is known that this cannot be proven. Return
        the verdict."""
        assert self._live is not None
        pid = await self._live.wait_started()
        if pid is not None:
            if run.state is RunState.INTENDED:
                note = self._live.note()
                await self._write(
                    lambda tx: tx.runs.record_start(self.ownership, run.id, pid, self._context.clock(), note)
                )
            channel = self._live.channel(run.heard.offset)
            self.report_reader = ReportReader(
                self._context, self.ownership, run, channel, self.task.spec.health.claim_grace
            )
            self.beat()
            await self._start_watching(run)
            await self._send_stop()
        end = await self._live.wait_ended()
        unregister_run(self._context, run.id)  # before the work is saved, which may take long
        if end.cause is Cause.NEVER_STARTED and run.state is not RunState.INTENDED:
            end = ProcessEnd(cause=Cause.UNPROVEN, detail="it was started, but its records have vanished")
        if self._enclosure is not None:
            end = await self._enclosure.prove(self.task.spec, await self._workspace(), end)
        return await self._record_end(run, end)

    async def _record_end(self, run: Run, end: ProcessEnd) -> Verdict:
        assert self._live is not None
        # In a thread: an agent may have written more than can be read between two beats.
        said = await run_in_thread(verdict_from_output, self._context, self.task, run, self._live, end)
        if self.report_reader is not None:
            await self.report_reader.hear(last=True)  # a claim that was written just before the exit counts
        recorded = await self._write(lambda tx: tx.runs.open_run(self.task.id, self.role.member))
        verdict = judge_run(
            end,
            recorded.stop_why if recorded else self.stop_request.why,
            said,
            recorded.stop_reason if recorded else self.stop_request.reason,
            recorded.claim if recorded else None,
        )
        if verdict.outcome is Outcome.UNKNOWN:
            return verdict
        final = await with_requester(self._context, self.task, verdict)
        found = await compare_after(self._context, self.task, run.id)
        also = await self._writes_at_end(run, final, end)

        def record(tx: Transaction) -> None:
            tx.runs.ended(self.ownership, run.id, final, self._context.clock(), end.at)
            record_usage(self._context, tx, self.task, run.id, final)
            if is_death(final, end):
                record_death(self._context, tx, self.task, run.id, end.at)
            report_findings(tx, self._context, self.task, run.id, found)
            also(tx)

        await self._write(record)
        stop_metering(self._context, self._meter, final.usage)
        self._context.ports.fingerprints.forget(os.path.join(self._context.home, "runs", run.id))
        return final

    async def _end_with_launch_error(self, why: str) -> tuple[str | None, Verdict]:
        verdict = Verdict(outcome=Outcome.LAUNCH_ERROR, reason=why)
        return await self._end_without_process(verdict)

    async def _end_stopped_before_start(self, why: StopWhy) -> tuple[str | None, Verdict]:
        return await self._end_without_process(await verdict_stopped_before(self._context, self.task, why))

    async def _end_without_process(self, verdict: Verdict) -> tuple[str | None, Verdict]:
        run = self.run
        if run is not None:
            also = await self._writes_at_end(run, verdict, None)

            def record(tx: Transaction) -> None:
                tx.runs.ended(self.ownership, run.id, verdict, self._context.clock())
                also(tx)

            await self._write(record)
        return (run.id if run else None), verdict

    # -- what is different for a member of a parallel stage -----------------------------------------------------------

    async def _prepare(self) -> None:
        """Prepare the workspace of the run."""
        await self.stop_request.run_cancellable(ensure_workspace(self._context, self.task, self.ownership))
        await self.stop_request.run_cancellable(bring_base(self._context, self.task))

    def _current_workspace(self, tx: Transaction) -> Workspace | None:
        return tx.workspaces.current(self.task.id, self.place_of)

    async def _task_with_prompt(self) -> Task:
        """Return the task with the prompt of its stage."""
        return await task_with_stage_prompt(self._context, self.task, turn=self._turn)

    async def _hand_over(self, asked: Task, run: Run, workspace: Workspace) -> str | None:
        """Return the hand-over about earlier runs for the agent."""
        return await build_handover(self._context, asked, run, workspace)

    async def _writes_at_end(
        self, _run: Run, _verdict: Verdict, _end: ProcessEnd | None
    ) -> Callable[[Transaction], None]:
        """Return further writes for the transaction that records the end. `_end`: the facts about the process. None:
        there was no process."""
        return _write_nothing

    async def _verdict_without_account(self) -> Verdict:
        return Verdict(outcome=Outcome.STOPPED, reason="its account was parked or stopped before the agent started")

    def _verdict_cap_spent(self) -> Verdict:
        return Verdict(outcome=Outcome.STOPPED, reason="its spending cap was used up before the agent started")

    # -- pieces ----------------------------------------------------------------------------------------------------

    async def _send_stop(self) -> None:
        why, reason, run = self.stop_request.why, self.stop_request.reason, self.run
        if why is None or run is None or self._live is None:
            return
        self._unsent = True
        try:
            await self._write(
                lambda tx: tx.runs.record_stop_request(self.ownership, run.id, why, self._context.clock(), reason)
            )
        except NotOwner:
            await self.release_lost_task()
        else:
            self._live.stop(fast=self.stop_request.fast)
        self._unsent = False
        grace = self._context.settings.thresholds.fast_grace if self.stop_request.fast else self.task.spec.grace
        notify_stopping(self._context, run.id, grace, fast=self.stop_request.fast)

    async def _start_watching(self, run: Run) -> None:
        if self._live is None:
            return
        root = None
        if self._enclosure is not None and self.stop_request.why is None:
            root = await self._enclosure.root(self.task.spec, await self._workspace())
        if self.stop_request.why is None and self.is_kept:
            seen = root if self._enclosure is not None else self._live.keeper
            self._context.services.checkpoints.began(
                CheckpointedRun(run_id=run.id, task=self.task, ownership=self.ownership, root=seen)
            )
        meter = await self._write(lambda tx: make_meter(self._context, tx, self.task))
        meter = self._meter = start_metering(self._context, meter, run.id)
        self._context.services.health.began(
            watched_run(
                self._context, self.task, run, self._live, root, meter,
                stop=lambda why, reason: self.stop(why, fast=False, reason=reason),
                claimed=lambda: self.report_reader is not None and self.report_reader.claim is not None,
                place_of=self.place_of,
            )
        )  # fmt: skip

    async def _launch_spec(self, run: Run) -> LaunchSpec:
        workspace = await self._workspace()
        asked = await self._task_with_prompt()
        told = await self.stop_request.run_cancellable(self._hand_over(asked, run, workspace))
        meter = await self._write(lambda tx: make_meter(self._context, tx, self.task))
        launch = build_launch_spec(self._context, asked, self.ownership, run, workspace, told, meter, self._turn)
        identity = await self._context.ports.strategy_of(self.task.spec).identity(workspace)
        launch = replace(launch, env={**identity, **launch.env})  # a variable that the user sets overrides ours
        if self._enclosure is None:
            return launch
        launch, container = await self._enclosure.enclose(self.task.spec, workspace, launch)
        await self._write(lambda tx: tx.workspaces.record_container(self.ownership, workspace, container))
        return launch

    async def _workspace(self) -> Workspace:
        workspace = await self._write(self._current_workspace)
        assert workspace is not None  # ensure_workspace made it under our fence, and it stays while a run is open
        return workspace

    @property
    def _enclosure(self) -> AgentContainers | None:
        return self._context.ports.agent_containers if self.task.spec.strategy is Strategy.CONTAINER else None

    async def release_lost_task(self) -> None:
        """Stop driving the run without writing anything: another supervisor owns the task.

        If this run is still open in the store, that supervisor has adopted its agent, as it adopts everything that
        lives in this home. In that case the agent is left alone. Otherwise the agent that this supervisor started is
        ended.
        """
        if self._live is None or self.run is None:
            return
        still = await self._write(lambda tx: tx.runs.open_run(self.task.id, self.role.member))
        if still is None or still.id != self.run.id:
            self._live.stop(fast=True)

    def close(self) -> None:
        """Release everything that belongs to the run, because it is not driven any more."""
        self.report_reader = None
        if self.run is not None:
            unregister_run(self._context, self.run.id)
        stop_metering(self._context, self._meter)
        if self._live is not None:
            self._live.close()

    async def _write(self, operation: Callable[[Transaction], T]) -> T:
        return await self._context.writer.write(operation)


def _write_nothing(_tx: Transaction) -> None:
    return
