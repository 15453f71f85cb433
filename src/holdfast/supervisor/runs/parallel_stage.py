"""A parallel stage: its members run side by side, inside the guard of their task (R-CRON-05, R-TREE-03).

One task, one claim, one fence; each member is a run of its own. The group is over when every member's tree is proven
empty: only then may the workspace go. It runs on what it finds: members with a result are not run again, runs that are
open are adopted, and the deadline counts from the durable beginning. So a crash is a pause between two steps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from holdfast.base.concurrency import end_all
from holdfast.base.errors import LaunchError
from holdfast.core.model import Run, StopWhy, Strategy, Task
from holdfast.core.runs.outcome import Outcome, Verdict
from holdfast.core.runs.retry_budgets import lost_too_often
from holdfast.core.workflows.parallel_stage import (
    Gathering,
    MemberEnd,
    gathering_of,
    is_enough,
    joined,
    missing,
    plain_gathering,
    summary,
)
from holdfast.core.workflows.parallel_stage import time_left as seconds_left
from holdfast.core.workflows.result import Result
from holdfast.core.workflows.workflow import Member, Stage, stage_of
from holdfast.store.port.transaction import Grip, Transaction
from holdfast.supervisor.context import Bell, Context
from holdfast.supervisor.dispatch.mass_death import OTHERS_DIE_WITHIN, is_of_many, open_for
from holdfast.supervisor.runs.member import MemberRun, Part, stands
from holdfast.supervisor.runs.run import RunDriver
from holdfast.supervisor.runs.stop_request import Stopped, Wish, naming_the_operator, stopped_before
from holdfast.supervisor.workspaces.prepare import ensure_workspace

LOOK_EVERY = 5.0  # seconds: backs up every hint, and a clock that stood still while the machine slept
_CUT = (Outcome.CANCELLED, Outcome.PAUSED, Outcome.STOPPED)  # the strongest word first


class Group:
    """Drives the members of one stage. Stops reach all of them, and are durable before they are sent."""

    def __init__(self, context: Context, task: Task, grip: Grip, wish: Wish) -> None:
        """`wish`: a stop that was asked for before this try."""
        stage = stage_of(task.spec.stages, task.progress)
        assert stage is not None
        self.task = task
        self.grip = grip
        self.wish = wish
        self.answer = ""  # of the stage, when it is over
        self._context = context
        self._stage: Stage = stage
        self._bell = Bell()
        self._all: list[MemberRun] = []
        self._driving: dict[asyncio.Task[None], MemberRun] = {}
        self._ends: dict[str, MemberEnd] = {}
        self._found: list[str] = []  # runs that ended before this try
        self._waiting: list[Member] = []  # for a place
        self._extra = 0  # places beyond the one of the claim
        self._wanted = 0

    @property
    def runs(self) -> list[RunDriver]:
        """What runs at the moment."""
        return list(self._driving.values())

    async def until_ended(self) -> tuple[str | None, Verdict]:
        """What the stage came to; with a run: of that one nothing proves that it is over."""
        with self._context.shared.places.watched(self._bell.ring):
            try:
                return await self._gather()
            except LaunchError as error:
                return None, Verdict(outcome=Outcome.LAUNCH_ERROR, reason=str(error))
            except Stopped as stopped:
                return None, await stopped_before(self._context, self.task, stopped.why, "any member started")
            finally:
                # A cancellation, or trouble of one of them: their agents stay with their keepers, and are found again.
                await end_all(self._driving)
                self._driving.clear()
                self._want(0)
                self._context.shared.places.give_back(self._extra)
                self._extra = 0

    async def stop(self, why: StopWhy, *, fast: bool, reason: str = "") -> None:
        self.wish.add(why, reason, fast=fast)
        if fast and why is StopWhy.DOWN and self._context.ports.furnishing is not None:
            self._context.ports.furnishing.cut_short(self.task.id)
        self._bell.ring()
        told = await asyncio.gather(
            *(run.stop(why, fast=fast, reason=reason) for run in self.runs), return_exceptions=True
        )
        for trouble in told:
            if isinstance(trouble, BaseException):
                raise trouble

    async def send_again(self) -> None:
        for run in self.runs:
            await run.send_again()

    def beat(self) -> None:
        """Also for those whom nobody drives at the moment, because of trouble: their supervisor lives."""
        for run in self._all:
            if run.end is None and run.cut_short is None:
                run.beat()

    async def let_go(self) -> None:
        """Another incarnation owns the task."""
        for run in self._all:
            await run.let_go()

    def close(self) -> None:
        for run in self._all:
            run.close()

    # -- from the first member to the last ---------------------------------------------------------------------------

    async def _gather(self) -> tuple[str | None, Verdict]:
        found = await self._context.writer.write(lambda tx: tx.runs.open_runs(self.task.id))
        if not found:
            self.wish.heed()
            await self._prepare()
            self.wish.heed()
        part, results = await self._context.writer.write(self._begin)
        self._waiting = missing(self._stage, results)
        await self._take_in(results)
        await self._adopt(part, found)
        while True:
            left = seconds_left(self._stage, part.gathering, self._context.clock())
            if left > 0:
                self._start_more(part)
            else:
                await self._end_the_rest(part)
            if not self._driving:
                break
            await self._bell.wait(LOOK_EVERY if left <= 0 else min(left, LOOK_EVERY))
            self._collect()
        return await self._concluded()

    async def _prepare(self) -> None:
        """Before the first of them, never beneath one that is at work."""
        if self.task.spec.strategy is Strategy.CONTAINER and not self._stage.apart:
            raise LaunchError("The members of a parallel stage cannot share a container: give them `apart = true`.")
        await self.wish.interrupts(ensure_workspace(self._context, self.task, self.grip))

    def _begin(self, tx: Transaction) -> tuple[Part, dict[str, Result]]:
        """Or go on with what was begun: the deadline of a gathering outlives its supervisor."""
        now, task, results = self._context.clock(), tx.tasks.get(self.task.id), tx.results.of_task(self.task.id)
        gathering = gathering_of(task.progress, now)
        if gathering is None:
            gathering = Gathering(at=now, after=max((result.number for result in results), default=0))
            tx.staging.keep(self.grip, replace(task.progress, began=plain_gathering(gathering)), now)
        part = Part(task=task, grip=self.grip, stage=self._stage, gathering=gathering)
        return part, stands(tx, part)

    async def _take_in(self, results: dict[str, Result]) -> None:
        """Of earlier tries, and of an earlier supervisor."""
        for result in results.values():
            resets_at, run_id = None, result.run_id
            self._found += [run_id] if run_id is not None else []
            if run_id is not None and result.outcome != Outcome.COMPLETED:
                resets_at = (await self._context.writer.write(partial(_verdict, run_id))).resets_at
            self._ends[result.member] = MemberEnd(
                name=result.member,
                outcome=Outcome(result.outcome),
                reason=result.reason,
                resets_at=resets_at,
                text=result.text,
            )

    async def _adopt(self, part: Part, found: Sequence[Run]) -> None:
        """Whose keeper is gone has ended, or nobody can tell: that is known before anybody starts beside it."""
        over = []
        for run in found:
            member = next(one for one in self._stage.members if one.name == run.member)
            self._waiting = [one for one in self._waiting if one is not member]
            if self._driving:
                self._context.shared.places.take_anyway()
                self._extra += 1
            driving = self._drive(part, member)
            if not self._context.ports.processes.is_held(run.id):
                over.append(driving)
        if over:
            await asyncio.wait(over)
        self._collect()

    def _start_more(self, part: Part) -> None:
        """As many as there is room for. Nobody who would only be ended at once, or might meet the unknown."""
        if self.wish.why is not None or self._unknown is not None:
            self._want(0)
            return
        most = self._stage.at_once or len(self._stage.members)
        while self._waiting and len(self._driving) < most and self._has_place():
            self._drive(part, self._waiting.pop(0))
        self._want(min(len(self._waiting), max(0, most - len(self._driving))))

    def _has_place(self) -> bool:
        if len(self._driving) <= self._extra:
            return True  # the claim's own, or one that another member has left
        if not self._context.shared.places.take():
            return False
        self._extra += 1
        return True

    def _drive(self, part: Part, member: Member) -> asyncio.Task[None]:
        wish = Wish(self.wish.why, self.wish.reason, fast=self.wish.fast)
        run = MemberRun(self._context, part, member, wish)
        driving = asyncio.create_task(run.to_its_end(), name=f"member {member.name} of {self.task.id}")
        self._all.append(run)
        self._driving[driving] = run
        driving.add_done_callback(lambda _driving: self._bell.ring())
        return driving

    def _collect(self) -> None:
        """Who has ended leaves its place. Trouble of one (a full disk, say) is the whole group's: it is tried again."""
        for driving in [driving for driving in self._driving if driving.done()]:
            run = self._driving.pop(driving)
            run.close()
            driving.result()
            if run.end is not None:
                self._ends[run.end.name] = run.end
        idle = self._extra + 1 - max(1, len(self._driving))
        if idle and not self._waiting:
            self._extra -= idle
            self._context.shared.places.give_back(idle)

    async def _end_the_rest(self, part: Part) -> None:
        """Its time is up: what it has is its result. Who never had a place has none."""
        words = f"the stage's time of {self._stage.timeout:g} s was up"
        for run in self._driving.values():
            if run.wish.why is None:
                await run.stop(StopWhy.DEADLINE, fast=True, reason=words)
            elif not run.wish.fast:
                await run.stop(run.wish.why, fast=True, reason=run.wish.reason)
        self._want(0)
        while self._waiting and self.wish.why is None and self._unknown is None:
            run = MemberRun(self._context, part, self._waiting[0], Wish())
            await run.never_ran(Verdict(outcome=Outcome.TIMEOUT, reason=f"{words} before a place was free for it"))
            assert run.end is not None
            self._ends[run.end.name] = run.end
            self._waiting.pop(0)

    # -- what it came to ---------------------------------------------------------------------------------------------

    async def _concluded(self) -> tuple[str | None, Verdict]:
        if self._unknown is not None:
            return self._unknown
        cut = [run.cut_short for run in self._all if run.cut_short is not None]
        stopped = [verdict for outcome in _CUT for verdict in cut if verdict.outcome is outcome]
        if stopped:
            verdict = Verdict(outcome=stopped[0].outcome, reason=stopped[0].reason, resets_at=stopped[0].resets_at)
            return None, await naming_the_operator(self._context, self.task, verdict)
        if self._waiting and self.wish.why is not None:
            return None, await stopped_before(self._context, self.task, self.wish.why, "all members had started")
        if await self._died_with_many():
            words = f"members of stage {self._stage.name} died with many other agents at once; they go again"
            return None, Verdict(outcome=Outcome.STOPPED, reason=words)
        lost = await self._lost()
        ends = [self._ends[member.name] for member in self._stage.members if member.name in self._ends]
        self.answer = joined(ends)
        return None, summary(self._stage, ends, lost)

    async def _died_with_many(self) -> bool:
        """R-CRASH-07: then the stage has not failed. That may be known only when the others have died too."""
        ended = [*self._found, *(run.run.id for run in self._all if run.run is not None)]
        while not is_enough(self._stage, self._ends.values()):
            is_mass, left = await self._context.writer.write(partial(_of_many, self._context, ended))
            if is_mass or left <= 0 or self.wish.why is not None:
                return is_mass
            await asyncio.sleep(min(left, OTHERS_DIE_WITHIN))
        return False

    async def _lost(self) -> list[str]:
        """Who is run again for that, unless the task's budget for it is spent: then it is counted as what it is."""
        lost = [run for run in self._all if run.cut_short is not None]
        if not lost:
            return []
        ledger = await self._context.writer.write(lambda tx: tx.tasks.ledger(self.task))
        if not lost_too_often(ledger, self._context.limits):
            return [run.role.member for run in lost]
        for run in lost:
            assert run.cut_short is not None
            await run.never_ran(run.cut_short)
            assert run.end is not None
            self._ends[run.end.name] = run.end
        return []

    @property
    def _unknown(self) -> tuple[str | None, Verdict] | None:
        for run in self._all:
            if run.unknown is not None:
                return (run.run.id if run.run is not None else None), run.unknown
        return None

    def _want(self, count: int) -> None:
        self._context.shared.places.want(count - self._wanted)
        self._wanted = count


def _of_many(context: Context, runs: Sequence[str], tx: Transaction) -> tuple[bool, float]:
    """Whether one of them died with many others; and for how long that is open."""
    return any(is_of_many(tx, run) for run in runs), max((open_for(context, tx, run) for run in runs), default=0.0)


def _verdict(run_id: str, tx: Transaction) -> Verdict:
    return tx.runs.verdict(run_id)
