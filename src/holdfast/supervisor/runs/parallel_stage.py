"""A parallel stage: its members run at the same time, inside the guard of their task (R-CRON-05, R-TREE-03).

There is one task, one claim and one fence. Each member is a run of its own. The stage is over when the process tree of
every member is proven empty: only then may the workspace be removed.

The stage continues from what it finds. Members with a result are not run again, open runs are adopted, and the deadline
counts from the recorded beginning. So a crash is only a pause between two steps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from holdfast.base.concurrency import cancel_all
from holdfast.base.errors import LaunchError
from holdfast.core.model import Run, StopWhy, Strategy, Task
from holdfast.core.runs.outcome import Outcome, Verdict
from holdfast.core.runs.retry_budgets import is_lost_too_often
from holdfast.core.workflows.parallel_stage import (
    Gathering,
    MemberEnd,
    gathering_from_progress,
    gathering_to_json,
    is_enough,
    join_answers,
    judge_stage,
    missing_members,
)
from holdfast.core.workflows.parallel_stage import time_left as seconds_left
from holdfast.core.workflows.result import StageResult
from holdfast.core.workflows.workflow import Member, Stage, stage_of
from holdfast.store.port.transaction import Ownership, Transaction
from holdfast.supervisor.context import Context, WakeUp
from holdfast.supervisor.dispatch.mass_death import CHECK_EVERY, is_mass_death, seconds_until_decided
from holdfast.supervisor.runs.member import MemberPart, MemberRun, find_valid_results
from holdfast.supervisor.runs.run import RunDriver
from holdfast.supervisor.runs.stop_request import StopRequest, StopRequested, verdict_stopped_before, with_requester
from holdfast.supervisor.workspaces.prepare import ensure_workspace

LOOK_EVERY = 5.0  # seconds: a fallback for missed wake-ups, and for a clock that stood still while the machine slept
_STOPPED_OUTCOMES = (Outcome.CANCELLED, Outcome.PAUSED, Outcome.STOPPED)  # the strongest outcome first


class ParallelStageDriver:
    """The driver of the members of one stage. Stops reach all members, and are durable before they are sent."""

    def __init__(self, context: Context, task: Task, ownership: Ownership, stop_request: StopRequest) -> None:
        """Create the driver, with the stop request of the task. The request may be older than this try."""
        stage = stage_of(task.spec.stages, task.progress)
        assert stage is not None
        self.task = task
        self.ownership = ownership
        self.stop_request = stop_request
        self.answer = ""  # the stage's answer, once it is over
        self._context = context
        self._stage: Stage = stage
        self._bell = WakeUp()
        self._all: list[MemberRun] = []
        self._driving: dict[asyncio.Task[None], MemberRun] = {}
        self._ends: dict[str, MemberEnd] = {}
        self._found: list[str] = []  # runs that ended before this try
        self._waiting: list[Member] = []  # members that wait for a slot
        self._extra = 0  # slots beyond the one of the claim
        self._wanted = 0

    @property
    def runs(self) -> list[RunDriver]:
        """The runs that are driven at the moment."""
        return list(self._driving.values())

    async def wait_for_end(self) -> tuple[str | None, Verdict]:
        """Return the verdict of the stage, and the id of a run whose end cannot be proven, if there is one."""
        with self._context.shared.places.notify_on_change(self._bell.ring):
            try:
                return await self._run_members()
            except LaunchError as error:
                return None, Verdict(outcome=Outcome.LAUNCH_ERROR, reason=str(error))
            except StopRequested as stopped:
                return None, await verdict_stopped_before(self._context, self.task, stopped.why, "any member started")
            finally:
                # After a cancellation, or trouble of one member: the agents stay with their keepers and are found
                # again.
                await cancel_all(self._driving)
                self._driving.clear()
                self._set_wanted_slots(0)
                self._context.shared.places.give_back(self._extra)
                self._extra = 0

    async def stop(self, why: StopWhy, *, fast: bool, reason: str = "") -> None:
        self.stop_request.add(why, reason, fast=fast)
        if fast and why is StopWhy.DOWN and self._context.ports.workspace_setup is not None:
            self._context.ports.workspace_setup.cut_short(self.task.id)
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
        """Send a heartbeat to the keepers of all members that have not ended. That includes members that no coroutine
        drives at the moment, because their supervisor still lives."""
        for run in self._all:
            if run.end is None and run.cut_short is None:
                run.beat()

    async def release_lost_task(self) -> None:
        """Stop writing: another supervisor owns the task."""
        for run in self._all:
            await run.release_lost_task()

    def close(self) -> None:
        for run in self._all:
            run.close()

    # -- from the first member to the last ---------------------------------------------------------------------------

    async def _run_members(self) -> tuple[str | None, Verdict]:
        found = await self._context.writer.write(lambda tx: tx.runs.open_runs(self.task.id))
        if not found:
            self.stop_request.raise_if_stopped()
            await self._prepare()
            self.stop_request.raise_if_stopped()
        part, results = await self._context.writer.write(self._begin)
        self._waiting = missing_members(self._stage, results)
        await self._load_results(results)
        await self._adopt(part, found)
        while True:
            more = self._context.settings.thresholds.collect_for
            left = seconds_left(self._stage, part.gathering, self._context.clock(), more)
            if left > 0:
                self._start_more(part)
            else:
                await self._end_remaining_members(part)
            if not self._driving:
                break
            await self._bell.wait(LOOK_EVERY if left <= 0 else min(left, LOOK_EVERY))
            self._collect()
        return await self._conclude()

    async def _prepare(self) -> None:
        """Prepare the workspace before the first member starts. It is never prepared again under a working member."""
        if self.task.spec.strategy is Strategy.CONTAINER and not self._stage.apart:
            raise LaunchError("The members of a parallel stage cannot share a container: give them `apart = true`.")
        await self.stop_request.run_cancellable(ensure_workspace(self._context, self.task, self.ownership))

    def _begin(self, tx: Transaction) -> tuple[MemberPart, dict[str, StageResult]]:
        """Begin the gathering of results, or continue the one that an earlier supervisor began, with its deadline."""
        now, task, results = self._context.clock(), tx.tasks.get(self.task.id), tx.results.of_task(self.task.id)
        gathering = gathering_from_progress(task.progress, now)
        if gathering is None:
            gathering = Gathering(at=now, after=max((result.number for result in results), default=0))
            tx.stages.keep(self.ownership, replace(task.progress, began=gathering_to_json(gathering)), now)
        part = MemberPart(task=task, ownership=self.ownership, stage=self._stage, gathering=gathering)
        return part, find_valid_results(tx, part)

    async def _load_results(self, results: dict[str, StageResult]) -> None:
        """Load the members' results from earlier tries and from an earlier supervisor."""
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

    async def _adopt(self, part: MemberPart, found: Sequence[Run]) -> None:
        """Adopt the members' open runs.

        A run whose keeper is gone has ended, or its end is unknown. Wait until that is known before other members
        start.
        """
        over = []
        for run in found:
            member = next(one for one in self._stage.members if one.name == run.member)
            self._waiting = [one for one in self._waiting if one is not member]
            if self._driving:
                self._context.shared.places.take_adopted()
                self._extra += 1
            driving = self._drive(part, member)
            if not self._context.ports.processes.is_held(run.id):
                over.append(driving)
        if over:
            await asyncio.wait(over)
        self._collect()

    def _start_more(self, part: MemberPart) -> None:
        """Start as many members as there are slots for. Start none that would be ended at once. Start none while the
        end of another run is unknown."""
        if self.stop_request.why is not None or self._unproven_end is not None:
            self._set_wanted_slots(0)
            return
        most = self._stage.at_once or len(self._stage.members)
        while self._waiting and len(self._driving) < most and self._take_slot():
            self._drive(part, self._waiting.pop(0))
        self._set_wanted_slots(min(len(self._waiting), max(0, most - len(self._driving))))

    def _take_slot(self) -> bool:
        if len(self._driving) <= self._extra:
            return True  # the claim's own slot, or one that another member has left
        if not self._context.shared.places.take():
            return False
        self._extra += 1
        return True

    def _drive(self, part: MemberPart, member: Member) -> asyncio.Task[None]:
        stop_request = StopRequest(self.stop_request.why, self.stop_request.reason, fast=self.stop_request.fast)
        run = MemberRun(self._context, part, member, stop_request)
        driving = asyncio.create_task(run.run_to_end(), name=f"member {member.name} of {self.task.id}")
        self._all.append(run)
        self._driving[driving] = run
        driving.add_done_callback(lambda _driving: self._bell.ring())
        return driving

    def _collect(self) -> None:
        """Give back the slots of members that have ended. An error of one member (a full disk, for example) fails the
        try of the whole group, and the try is repeated."""
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

    async def _end_remaining_members(self, part: MemberPart) -> None:
        """Stop the running members because the stage's time is up: what they have done by then is their result. A
        member that never had a slot gets a timeout as its result."""
        words = f"the stage's time of {self._stage.timeout:g} s was up"
        for run in self._driving.values():
            if run.stop_request.why is None:
                await run.stop(StopWhy.DEADLINE, fast=True, reason=words)
            elif not run.stop_request.fast:
                await run.stop(run.stop_request.why, fast=True, reason=run.stop_request.reason)
        self._set_wanted_slots(0)
        while self._waiting and self.stop_request.why is None and self._unproven_end is None:
            run = MemberRun(self._context, part, self._waiting[0], StopRequest())
            await run.record_end_without_run(
                Verdict(outcome=Outcome.TIMEOUT, reason=f"{words} before it got a free slot")
            )
            assert run.end is not None
            self._ends[run.end.name] = run.end
            self._waiting.pop(0)

    # -- the verdict ---------------------------------------------------------------------------------------------

    async def _conclude(self) -> tuple[str | None, Verdict]:
        if self._unproven_end is not None:
            return self._unproven_end
        cut = [run.cut_short for run in self._all if run.cut_short is not None]
        stopped = [verdict for outcome in _STOPPED_OUTCOMES for verdict in cut if verdict.outcome is outcome]
        if stopped:
            verdict = Verdict(outcome=stopped[0].outcome, reason=stopped[0].reason, resets_at=stopped[0].resets_at)
            return None, await with_requester(self._context, self.task, verdict)
        if self._waiting and self.stop_request.why is not None:
            return None, await verdict_stopped_before(
                self._context, self.task, self.stop_request.why, "all members had started"
            )
        if await self._is_mass_death():
            words = f"members of stage {self._stage.name} died with many other agents at once, and are run again"
            return None, Verdict(outcome=Outcome.STOPPED, reason=words)
        lost = await self._find_lost_members()
        ends = [self._ends[member.name] for member in self._stage.members if member.name in self._ends]
        self.answer = join_answers(ends)
        return None, judge_stage(self._stage, ends, lost)

    async def _is_mass_death(self) -> bool:
        """True if members died in a mass death, so that the stage has not failed (R-CRASH-07). It may be known only
        after other agents have died too."""
        ended = [*self._found, *(run.run.id for run in self._all if run.run is not None)]
        while not is_enough(self._stage, self._ends.values()):
            is_mass, left = await self._context.writer.write(partial(_mass_death_state, self._context, ended))
            if is_mass or left <= 0 or self.stop_request.why is not None:
                return is_mass
            await asyncio.sleep(min(left, CHECK_EVERY))
        return False

    async def _find_lost_members(self) -> list[str]:
        """Return the lost members that are run again. If the task's budget for losses is spent, record each loss as the
        member's result instead."""
        lost = [run for run in self._all if run.cut_short is not None]
        if not lost:
            return []
        ledger = await self._context.writer.write(lambda tx: tx.tasks.ledger(self.task))
        if not is_lost_too_often(ledger, self._context.limits):
            return [run.role.member for run in lost]
        for run in lost:
            assert run.cut_short is not None
            await run.record_end_without_run(run.cut_short)
            assert run.end is not None
            self._ends[run.end.name] = run.end
        return []

    @property
    def _unproven_end(self) -> tuple[str | None, Verdict] | None:
        for run in self._all:
            if run.unknown is not None:
                return (run.run.id if run.run is not None else None), run.unknown
        return None

    def _set_wanted_slots(self, count: int) -> None:
        self._context.shared.places.change_wanted(count - self._wanted)
        self._wanted = count


def _mass_death_state(context: Context, runs: Sequence[str], tx: Transaction) -> tuple[bool, float]:
    """Return whether one of the runs died in a mass death, and the seconds until that is decided."""
    return any(is_mass_death(tx, run) for run in runs), max(
        (seconds_until_decided(context, tx, run) for run in runs), default=0.0
    )


def _verdict(run_id: str, tx: Transaction) -> Verdict:
    return tx.runs.verdict(run_id)
