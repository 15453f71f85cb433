"""One member of a parallel stage: a run like any other, whose end is recorded together with its result.

Its task is the stage's, seen as this member sees it: with its agent, options and prompt, and the time that is left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from holdfast.base.instant import Instant
from holdfast.core.model import Event, Level, Run, StopWhy, Strategy, Task, Workspace
from holdfast.core.runs.outcome import Outcome, ProcessEnd, Verdict
from holdfast.core.runs.policy import Action, Decision
from holdfast.core.settle import SettleFacts, settle_member
from holdfast.core.workflows.parallel_stage import (
    Gathering,
    MemberEnd,
    by_outcome,
    counts_as_result,
    in_words,
    members_timeout,
    missing,
    standing,
)
from holdfast.core.workflows.result import Result
from holdfast.core.workflows.workflow import Member, Stage
from holdfast.store.port.transaction import Grip, Role, Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.dispatch.mass_death import is_of_many
from holdfast.supervisor.dispatch.probes import read_holds, record_holds
from holdfast.supervisor.log import say_trouble
from holdfast.supervisor.runs.result import result_of
from holdfast.supervisor.runs.run import RunDriver
from holdfast.supervisor.runs.settle import commit_leftovers
from holdfast.supervisor.runs.stages import prompted
from holdfast.supervisor.runs.stop_request import Wish
from holdfast.supervisor.workspaces.prepare import ensure_member_workspace

_NO_LOGIN = Verdict(outcome=Outcome.OVERLOADED, reason="its account is held back at the moment")


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """What a member belongs to."""

    task: Task
    grip: Grip
    stage: Stage
    gathering: Gathering


def seen_by(task: Task, stage: Stage, gathering: Gathering, member: Member, now: Instant) -> Task:
    """A conversation of its own, too: each member begins anew."""
    spec = replace(
        task.spec,
        agent=member.agent,
        agent_options=member.agent_options,
        provider=member.provider,
        timeout=members_timeout(stage, gathering, now),
        adaptive_floor=None,
    )
    named = member.agent_options.get("account")
    return replace(task, spec=spec, session_id=None, account=named if isinstance(named, str) else None)


def with_agent_of(task: Task, run: Run) -> Task:
    """The task as its agent in that run saw it, as far as its output and what it used are concerned."""
    stages = [stage for stage in task.spec.stages if stage.name == run.stage]
    found = [member for stage in stages for member in stage.members if member.name == run.member]
    return replace(task, spec=replace(task.spec, agent=found[0].agent), session_id=None) if found else task


def stands(tx: Transaction, part: Part) -> dict[str, Result]:
    """Member → the result that counts. Who died with many others has none: it goes again (R-CRASH-07)."""
    found = standing(part.stage, tx.results.of_task(part.task.id), part.task.progress, part.gathering)
    return {name: result for name, result in found.items() if not is_of_many(tx, result.run_id)}


class MemberRun(RunDriver):
    """Until it has ended, and what it came to is recorded. Nothing of it is started a second time here."""

    def __init__(self, context: Context, part: Part, member: Member, wish: Wish) -> None:
        seen = seen_by(part.task, part.stage, part.gathering, member, context.clock())
        super().__init__(context, seen, part.grip, wish)
        self.role = Role(stage=part.stage.name, member=member.name, agent=member.agent)
        self.end: MemberEnd | None = None  # None: it has no result (yet)
        self.cut_short: Verdict | None = None  # it ended without a result: stopped, or lost
        self.unknown: Verdict | None = None
        self.place_of = member.name if part.stage.apart else ""
        self.is_kept = not part.stage.apart  # checkpoints are of the task's own tree
        self._part = part
        self._member = member
        self._recorded = False

    async def to_its_end(self) -> None:
        run_id, verdict = await self.until_ended()
        if verdict.outcome is Outcome.UNKNOWN:
            self.unknown = verdict
            return
        if run_id is None and counts_as_result(verdict):
            await self.never_ran(verdict)
        elif run_id is not None and not self._recorded:  # found ended, by an earlier supervisor
            assert self.run is not None
            await self._write(await self._also(self.run, verdict, None))
        if self.end is None:
            self.cut_short = verdict
        if run_id is not None:
            self._forget(run_id)

    async def never_ran(self, verdict: Verdict) -> None:
        """It ended before there was a run of it: that is its result."""
        result = await result_of(self._context, self._part.task, None, verdict, agent=self._member.agent,
                                 member=self._member.name)  # fmt: skip
        await self._write(lambda tx: self._tell(tx, None, verdict, result))
        self._is(verdict, result)

    # -- in the terms of one run ---------------------------------------------------------------------------------------

    async def _prepare(self) -> None:
        """The task's own tree is there before its members start."""
        if self.place_of:
            await self.wish.interrupts(
                ensure_member_workspace(self._context, self._part.task, self.grip, self._member.name)
            )

    async def _asked(self) -> Task:
        asked = await prompted(self._context, self._part.task, self._member)
        return replace(self.task, spec=replace(self.task.spec, prompt=asked.spec.prompt))

    async def _told(self, _asked: Task, _run: Run, _workspace: Workspace) -> str | None:
        """Nobody worked on its part before."""
        return None

    async def _also(self, run: Run, verdict: Verdict, end: ProcessEnd | None) -> Callable[[Transaction], None]:
        """Its end, its result and its settlement are one transaction: a supervisor that dies finds it with a result, or
        finds an open run; nobody is run twice, and nobody is forgotten."""
        result: Result | None = None
        if counts_as_result(verdict):
            workspace = await self._write(self._current)
            if workspace is not None and self.place_of and verdict.outcome is Outcome.COMPLETED:
                await self._commit_leftovers(workspace)
            result = await result_of(
                self._context, self._part.task, run.id, verdict,
                workspace=workspace, agent=self._member.agent, member=self._member.name,
            )  # fmt: skip
            result = _naming_its_branch(result, workspace)
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
            )
            decision = settle_member(facts).decision
            record_holds(self._context, tx, self.task, run.id, verdict, decision, holds)
            after = _for_a_member(decision, self.task)
            tx.tasks.settle_member(self.grip, run.id, verdict, after, self._context.clock())
            if result is not None:
                self._tell(tx, run.id, verdict, result)

        self._recorded = True
        if result is not None:
            self._is(verdict, result)
        return record

    async def _never_started(self, why: StopWhy) -> tuple[str | None, Verdict]:
        """The stage's time was up while it was being prepared: that is a result, or it would be prepared for ever."""
        if why is not StopWhy.DEADLINE:
            return await super()._never_started(why)
        reason = f"{self.wish.reason} before its agent had started"
        return await self._end_without_process(Verdict(outcome=Outcome.TIMEOUT, reason=reason))

    async def _no_account(self) -> Verdict:
        """A shut account is a failure of this member; if all of them met it, the task waits as one agent would."""
        now = self._context.clock()
        shut = await self._write(lambda tx: tx.accounts.shut(now))
        mine = [account for account in shut if account.agent == self._member.agent]
        if not mine:
            return _NO_LOGIN
        first = min(mine, key=lambda account: account.until or float("inf"))
        reason = f"its account {first.full_name} is shut: {first.reason}"
        return Verdict(outcome=first.outcome, reason=reason, resets_at=first.until)

    def _nothing_left(self) -> Verdict:
        return Verdict(outcome=Outcome.OVER_BUDGET, reason="nothing was left of the task's budget before it started")

    async def _commit_leftovers(self, workspace: Workspace) -> None:
        """Of a tree of its own: what comes after finds its work on its branch."""
        repo = await self._write(lambda tx: tx.workspaces.repo(workspace.repo_id))
        await self._context.ports.strategy_of(self.task.spec).tidy(repo, workspace)
        await commit_leftovers(self._context, self.task, repo, workspace)

    # -- pieces --------------------------------------------------------------------------------------------------------

    def _is(self, verdict: Verdict, result: Result) -> None:
        self.end = MemberEnd(
            name=self._member.name,
            outcome=verdict.outcome,
            reason=verdict.reason,
            resets_at=verdict.resets_at,
            text=result.text,
        )

    def _tell(self, tx: Transaction, run_id: str | None, verdict: Verdict, result: Result) -> None:
        """And, with the last of them, what all came to: told once, whatever crashes."""
        part, now = self._part, self._context.clock()
        tx.results.record(self.grip, result)
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
        done = stands(tx, part)
        if missing(stage, done):
            return
        ends = [MemberEnd(name=one.member, outcome=Outcome(one.outcome)) for one in done.values()]
        words = in_words(stage, ends)
        tx.events.emit(
            Event(
                kind="stage.collected",
                task_id=self.task.id,
                message=f"All members of stage {stage.name} of task {self.task.id} have ended: {words}.",
                reason=words,
                data={"stage": stage.name, "visit": part.task.progress.visit, "members": len(stage.members),
                      "outcomes": by_outcome(ends)},
            ),
            now,
        )  # fmt: skip

    def _forget(self, run_id: str) -> None:
        """Its records, once it is settled; what stays of them is in nobody's way."""
        try:
            self._context.ports.processes.forget(run_id)
        except OSError as trouble:
            say_trouble(f"something of run {run_id} could not be removed: ", trouble)


def _naming_its_branch(result: Result, workspace: Workspace | None) -> Result:
    """Where its commits are, if it has any: a branch without one is deleted with its workspace."""
    if workspace is None or not workspace.member or workspace.branch is None:
        return result
    if result.commit is None or result.commit == workspace.base_commit:
        return result
    return replace(result, reason=f"{result.reason}; its commits are on {workspace.branch}")


def _for_a_member(decision: Decision, task: Task) -> Decision:
    """The task pays nothing, and nothing goes on by itself: what it means for others (its account, say) stands."""
    parking = decision.parking
    if task.spec.strategy is Strategy.CONTAINER and parking is not None and parking.until is None:
        parking = None  # as for one agent in a container (ending.py)
    return replace(decision, action=Action.FAIL, spends=(), alert=False, failure=None, parking=parking)
