"""One member of a parallel stage: a run like any other, whose end is recorded together with its result.

A member's run sees the stage's task with the member's agent, options and prompt, and with the time that is left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from holdfast.base.dataclass import dataclass
from holdfast.base.instant import Instant
from holdfast.core.model import Event, Level, Run, StopWhy, Strategy, Task, Workspace
from holdfast.core.runs.outcome import Outcome, ProcessEnd, Verdict
from holdfast.core.runs.policy import Decision, PolicyAction
from holdfast.core.settle import SettleFacts, settle_member
from holdfast.core.workflows.parallel_stage import (
    Gathering,
    MemberEnd,
    count_outcomes,
    describe_outcomes,
    is_result,
    member_timeout,
    missing_members,
    results_that_count,
)
from holdfast.core.workflows.result import StageResult
from holdfast.core.workflows.workflow import Member, Stage
from holdfast.store.port.transaction import Ownership, RunRole, Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.dispatch.mass_death import is_mass_death
from holdfast.supervisor.dispatch.probes import read_holds, record_holds
from holdfast.supervisor.log import log_error
from holdfast.supervisor.runs.result import collect_result
from holdfast.supervisor.runs.run import RunDriver
from holdfast.supervisor.runs.stages import task_with_stage_prompt
from holdfast.supervisor.runs.stop_request import StopRequest
from holdfast.supervisor.workspaces.prepare import ensure_member_workspace
from holdfast.supervisor.workspaces.save import commit_leftovers

_ACCOUNT_HELD = Verdict(outcome=Outcome.OVERLOADED, reason="its account is held back at the moment")


@dataclass(frozen=True, kw_only=True, slots=True)
class MemberPart:
    """The task, stage and gathering that a member belongs to."""

    task: Task
    ownership: Ownership
    stage: Stage
    gathering: Gathering


def task_for_member(task: Task, stage: Stage, gathering: Gathering, member: Member, now: Instant) -> Task:
    """Return the task as this member's run sees it. The task has no session, because each member begins its own
    conversation."""
    spec = replace(
        task.spec,
        agent=member.agent,
        agent_options=member.agent_options,
        provider=member.provider,
        timeout=member_timeout(stage, gathering, now),
        adaptive_floor=None,
    )
    named = member.agent_options.get("account")
    return replace(task, spec=spec, session_id=None, account=named if isinstance(named, str) else None)


def task_with_agent_of_run(task: Task, run: Run) -> Task:
    """Return the task with the agent of that run, as needed to read the run's output and usage."""
    stages = [stage for stage in task.spec.stages if stage.name == run.stage]
    found = [member for stage in stages for member in stage.members if member.name == run.member]
    return replace(task, spec=replace(task.spec, agent=found[0].agent), session_id=None) if found else task


def find_valid_results(tx: Transaction, part: MemberPart) -> dict[str, StageResult]:
    """Return the result that counts for each member. A member that died in a mass death has no such result and is run
    again (R-CRASH-07)."""
    found = results_that_count(part.stage, tx.results.of_task(part.task.id), part.task.progress, part.gathering)
    return {name: result for name, result in found.items() if not is_mass_death(tx, result.run_id)}


class MemberRun(RunDriver):
    """The driver of one member, until the member has ended and its result is recorded. The driver never starts the
    member a second time."""

    def __init__(self, context: Context, part: MemberPart, member: Member, stop_request: StopRequest) -> None:
        seen = task_for_member(part.task, part.stage, part.gathering, member, context.clock())
        super().__init__(context, seen, part.ownership, stop_request)
        self.role = RunRole(stage=part.stage.name, member=member.name, agent=member.agent)
        self.end: MemberEnd | None = None  # None: the member has no result (yet)
        self.cut_short: Verdict | None = None  # it ended without a result: stopped or lost
        self.unknown: Verdict | None = None
        self.place_of = member.name if part.stage.apart else ""
        self.is_kept = not part.stage.apart  # checkpoints are taken of the task's own tree
        self._part = part
        self._member = member
        self._recorded = False

    async def run_to_end(self) -> None:
        run_id, verdict = await self.wait_for_end()
        if verdict.outcome is Outcome.UNKNOWN:
            self.unknown = verdict
            return
        if run_id is None and is_result(verdict):
            await self.record_end_without_run(verdict)
        elif run_id is not None and not self._recorded:  # an earlier supervisor recorded the end
            assert self.run is not None
            await self._write(await self._writes_at_end(self.run, verdict, None))
        if self.end is None:
            self.cut_short = verdict
        if run_id is not None:
            self._forget(run_id)

    async def record_end_without_run(self, verdict: Verdict) -> None:
        """Record the result of a member that ended before it had a run."""
        result = await collect_result(self._context, self._part.task, None, verdict, agent=self._member.agent,
                                 member=self._member.name)  # fmt: skip
        await self._write(lambda tx: self._record_result(tx, None, verdict, result))
        self._set_end(verdict, result)

    # -- what differs from one run -------------------------------------------------------------------------------------

    async def _prepare(self) -> None:
        """Prepare the member's own workspace, if it has one. The task's own workspace is ready before its members
        start."""
        if self.place_of:
            await self.stop_request.run_cancellable(
                ensure_member_workspace(self._context, self._part.task, self.ownership, self._member.name)
            )

    async def _task_with_prompt(self) -> Task:
        asked = await task_with_stage_prompt(self._context, self._part.task, self._member, self._turn)
        return replace(self.task, spec=replace(self.task.spec, prompt=asked.spec.prompt))

    async def _hand_over(self, _asked: Task, _run: Run, _workspace: Workspace) -> str | None:
        """Return None: no earlier run worked on this member's part."""
        return None

    async def _writes_at_end(self, run: Run, verdict: Verdict, end: ProcessEnd | None) -> Callable[[Transaction], None]:
        """Return the writes that record the member's result and settlement when its run ends.

        End, result and settlement are one transaction. After a crash the next supervisor finds either a result or an
        open run. So no member is run twice, and none is forgotten.
        """
        result: StageResult | None = None
        if is_result(verdict):
            workspace = await self._write(self._current_workspace)
            if workspace is not None and self.place_of and verdict.outcome is Outcome.COMPLETED:
                await self._commit_leftovers(workspace)
            result = await collect_result(
                self._context, self._part.task, run.id, verdict,
                workspace=workspace, agent=self._member.agent, member=self._member.name,
            )  # fmt: skip
            result = _with_branch(result, workspace)
        decided, jitter = self._context.clock(), self._context.jitter()

        def record(tx: Transaction) -> None:
            holds = read_holds(self._context, tx, self.task, run.id, verdict)
            death = tx.holds.death(run.id)
            facts = SettleFacts(
                task=self.task,
                verdict=verdict,
                ledger=tx.tasks.ledger(self.task),
                limits=self._context.limits,
                decided=decided,
                recorded=self._context.clock(),
                jitter=jitter,
                death=None if death is None else death[0],
                provider=holds.provider_hold,
                repeats=holds.repeats,
            )
            decision = settle_member(facts).decision
            record_holds(self._context, tx, self.task, run.id, verdict, decision, holds)
            after = _decision_for_member(decision, self.task)
            tx.tasks.settle_member(self.ownership, run.id, verdict, after, self._context.clock())
            if result is not None:
                self._record_result(tx, run.id, verdict, result)

        self._recorded = True
        if result is not None:
            self._set_end(verdict, result)
        return record

    async def _end_stopped_before_start(self, why: StopWhy) -> tuple[str | None, Verdict]:
        """Record a timeout as the result if the stage's time was up during preparation. Otherwise the member would be
        prepared again for ever."""
        if why is not StopWhy.DEADLINE:
            return await super()._end_stopped_before_start(why)
        reason = f"{self.stop_request.reason} before its agent had started"
        return await self._end_without_process(Verdict(outcome=Outcome.TIMEOUT, reason=reason))

    async def _verdict_without_account(self) -> Verdict:
        """Return the verdict for a member without a usable account.

        A parked or stopped account is a failure of this member. If every member's account is parked or stopped, the
        task waits as it would with a single agent.
        """
        shut = await self._write(lambda tx: tx.accounts.unavailable())
        mine = [account for account in shut if account.agent == self._member.agent]
        if not mine:
            return _ACCOUNT_HELD
        first = min(mine, key=lambda account: account.until or float("inf"))
        reason = f"its account {first.full_name} is parked or stopped: {first.reason}"
        return Verdict(outcome=first.outcome, reason=reason, resets_at=first.until)

    def _verdict_cap_spent(self) -> Verdict:
        return Verdict(outcome=Outcome.OVER_BUDGET, reason="the spending cap was used up before it started")

    async def _commit_leftovers(self, workspace: Workspace) -> None:
        """Commit what the member left uncommitted in its own tree. The next stage finds that work on its branch."""
        repo = await self._write(lambda tx: tx.workspaces.repo(workspace.repo_id))
        await self._context.ports.strategy_of(self.task.spec).drop_stale_locks(repo, workspace)
        await commit_leftovers(self._context, self.task, repo, workspace)

    # -- pieces --------------------------------------------------------------------------------------------------------

    def _set_end(self, verdict: Verdict, result: StageResult) -> None:
        self.end = MemberEnd(
            name=self._member.name,
            outcome=verdict.outcome,
            reason=verdict.reason,
            resets_at=verdict.resets_at,
            text=result.text,
        )

    def _record_result(self, tx: Transaction, run_id: str | None, verdict: Verdict, result: StageResult) -> None:
        """Record the member's result. With the last result, also emit the summary of the stage: exactly once, even
        after a crash."""
        part, now = self._part, self._context.clock()
        tx.results.record(self.ownership, result)
        name, stage = self._member.name, part.stage
        is_bad = verdict.outcome is not Outcome.COMPLETED
        tx.events.emit(
            Event(
                kind="stage.member-ended",
                level=Level.WARNING if is_bad else Level.INFO,
                task_id=self.task.id,
                run_id=run_id,
                message=f"Member {name} of stage {stage.name} of task {self.task.id} ended: {verdict.outcome}"
                + (f", {verdict.reason}." if is_bad else "."),
                reason=verdict.reason,
                data={"stage": stage.name, "member": name, "agent": self._member.agent,
                      "outcome": str(verdict.outcome), "visit": part.task.progress.visit},
            ),
            now,
        )  # fmt: skip
        done = find_valid_results(tx, part)
        if missing_members(stage, done):
            return
        ends = [MemberEnd(name=one.member, outcome=Outcome(one.outcome)) for one in done.values()]
        words = describe_outcomes(stage, ends)
        tx.events.emit(
            Event(
                kind="stage.collected",
                task_id=self.task.id,
                message=f"All members of stage {stage.name} of task {self.task.id} have ended: {words}.",
                reason=words,
                data={"stage": stage.name, "visit": part.task.progress.visit, "members": len(stage.members),
                      "outcomes": count_outcomes(ends)},
            ),
            now,
        )  # fmt: skip

    def _forget(self, run_id: str) -> None:
        """Remove the records in the run directory once the run is settled. A record that cannot be removed does no
        harm."""
        try:
            self._context.ports.processes.forget(run_id)
        except OSError as trouble:
            log_error(f"something of run {run_id} could not be removed: ", trouble)


def _with_branch(result: StageResult, workspace: Workspace | None) -> StageResult:
    """Return the result with the branch that holds the member's commits. A branch without commits is not named, because
    it is deleted with its workspace."""
    if workspace is None or not workspace.member or workspace.branch is None:
        return result
    if result.commit is None or result.commit == workspace.base_commit:
        return result
    return replace(result, reason=f"{result.reason}; its commits are on {workspace.branch}")


def _decision_for_member(decision: Decision, task: Task) -> Decision:
    """Return the decision for a member's end. The decision spends no retry budget and requeues nothing. Its effects on
    others still apply: the account may be parked, for example."""
    parking = decision.parking
    if task.spec.strategy is Strategy.CONTAINER and parking is not None and parking.until is None:
        parking = None  # as for one agent in a container (settle.py)
    return replace(decision, action=PolicyAction.FAIL, spends=(), alert=False, failure=None, parking=parking)
