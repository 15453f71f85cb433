"""Always an end: any sequence of outcomes, clock jumps, restarts, reboots and operators' commands comes to rest.

Every task either ends or waits for an operator, within its budgets, and no counter goes backwards (R-RES-12, R-RES-05,
R-CRASH-04). The supervisors are whole (played.py); only the agents and the clock are played.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.integration.supervisor.played import Ending, World

from holdfast.api.fleet import dispatch
from holdfast.base.errors import HoldfastError
from holdfast.core.dispatch.holds import MAX_MASS_DEATHS, Scope
from holdfast.core.model import RequestKind, StopWhy
from holdfast.core.runs.outcome import Cause, Outcome
from holdfast.core.runs.retry_budgets import RetryLimits, max_waits
from holdfast.core.workflows.workflow import Member, OnFailure, Stage, Stages
from holdfast.store.port.dispatch import MASS_DEATH_ALERT

YEAR = 365.25 * 86400
LIMITS = RetryLimits(
    runs=6, crash=3, retry=2, lost=2, outage=1800.0, session=1, max_wait=8 * 3600.0, max_hold=3600.0, moves=4
)
MOST_RESUMES = 2
MOST_SET_CLOCKS = 15  # a clock that is set back by a second every second for ever does not go at all
TERMINAL = {"completed", "failed", "cancelled"}

said = [
    Outcome.FAILED,
    Outcome.OVERLOADED,
    Outcome.NETWORK,
    Outcome.RATE_LIMITED,
    Outcome.USAGE_LIMITED,
    Outcome.CONTEXT_LIMIT,
    Outcome.SESSION_LOST,
    Outcome.AUTH,
    Outcome.BILLING,
    Outcome.TURN_LIMIT,
    Outcome.OVER_BUDGET,
    Outcome.COMPLETED,
]
ENDINGS: Sequence[Ending] = (
    *(Ending(name=str(outcome), said=outcome) for outcome in said),
    Ending(name="limit for a second", said=Outcome.RATE_LIMITED, resets_in=1.0),
    Ending(name="limit for five hours", said=Outcome.USAGE_LIMITED, resets_in=5 * 3600.0),
    Ending(name="limit until long ago", said=Outcome.USAGE_LIMITED, resets_in=-YEAR),
    Ending(name="refused by a limit", said=Outcome.RATE_LIMITED, has_answer=False),
    Ending(name="refused for a second", said=Outcome.USAGE_LIMITED, resets_in=1.0, has_answer=False),
    Ending(name="login refused", said=Outcome.AUTH, has_answer=False),
    Ending(name="killed", signal=9),
    Ending(name="segfault", signal=11),
    Ending(name="oom", cause=Cause.OUT_OF_MEMORY),
    Ending(name="timeout", cause=Cause.TIMEOUT),
    Ending(name="output", cause=Cause.OUTPUT_LIMIT),
    Ending(name="keeper died", cause=Cause.KEEPER_DIED),
    Ending(name="orphaned", cause=Cause.ORPHANED),
    Ending(name="not executable", cause=Cause.EXEC_FAILED),
    Ending(name="unproven", cause=Cause.UNPROVEN),
    Ending(name="stuck", judged=StopWhy.STUCK, cause=Cause.STOPPED),
    Ending(name="looping", judged=StopWhy.LOOPING, cause=Cause.STOPPED),
    Ending(name="approves", said=Outcome.COMPLETED, answer="VERDICT: approve"),
    Ending(name="wants changes", said=Outcome.COMPLETED, answer="no\nVERDICT: changes"),
)
BY_NAME = {ending.name: ending for ending in ENDINGS}
GOES_ON = [  # those after which a task may continue by itself
    "overloaded",
    "network",
    "rate_limited",
    "usage_limited",
    "context_limit",
    "session_lost",
    "limit for a second",
    "limit for five hours",
    "limit until long ago",
    "refused by a limit",
    "refused for a second",
    "killed",
    "segfault",
    "oom",
    "timeout",
    "keeper died",
    "orphaned",
    "stuck",
    "looping",
]
JUMPS = [10 * YEAR, -10 * YEAR, 3600.0, -3600.0, 86400.0, -1.0]
COMMANDS = ["resume", "resume by force", "pause", "pause for an hour", "retry", "cancel"]

endings = st.sampled_from(sorted(BY_NAME))
disturbances = st.one_of(
    st.tuples(st.just("clock"), st.sampled_from(JUMPS)),
    st.tuples(st.just("restart"), st.just(0.0)),
    st.tuples(st.just("reboot"), st.sampled_from([0.0, *JUMPS])),
)
steps = st.one_of(
    st.tuples(st.just("end"), endings),
    st.tuples(st.just("wait"), st.sampled_from([0.5, 30.0, 400.0, 7200.0])),
    st.tuples(st.just("command"), st.sampled_from(COMMANDS)),
    disturbances,
)


@dataclass
class Told:
    """What was seen of one task: nothing of it may go backwards."""

    fence: int = 0
    generation: int = 0
    resumes: int = 0
    spends: int = 0
    runs: int = 0
    forced: int = 0
    seen: list[str] = field(default_factory=list)

    def look(self, row: dict[str, Any], spends: int, runs: int, *, given_back: bool) -> None:
        """`given_back`: there was a mass death, which spends nobody's budget, and is known only after some of it."""
        assert row["fence"] >= self.fence
        assert row["generation"] >= self.generation
        if row["generation"] == self.generation and row["state"] != "completed":
            returned = row["outcome"] in ("rate_limited", "usage_limited")  # a probe that met the same limit
            assert row["resume_attempts"] >= self.resumes - returned, (self.seen[-5:], row)
        assert row["resume_attempts"] <= MOST_RESUMES + 1 + self.forced, row
        assert spends >= self.spends or row["generation"] > self.generation or given_back
        assert runs >= self.runs
        assert (row["state"] == "running") == (row["owner"] is not None), row
        assert (row["state"] == "paused") <= (row["pause_reason"] is not None), row
        self.fence, self.generation, self.resumes = row["fence"], row["generation"], row["resume_attempts"]
        self.spends, self.runs = spends, runs
        self.seen.append(f"{row['state']} ({row['pause_reason'] or row['outcome'] or ''})")


class Play:
    def __init__(self, world: World, task_ids: Sequence[str]) -> None:
        self.world = world
        self.told = {task_id: Told() for task_id in task_ids}

    def look(self) -> None:
        alerts = {alert["key"] for alert in self.world.store.view("alerts", all=True)}
        for task_id, told in self.told.items():
            row = self.world.row(task_id)
            spends = len(self.world.store.view("spends", id=task_id, generation=row["generation"]))
            runs = len(self.world.store.view("runs", id=task_id))
            told.look(row, spends, runs, given_back=MASS_DEATH_ALERT in alerts)

    async def step(self, kind: str, what: Any) -> None:
        world = self.world
        if kind == "end" and world.unfrozen:
            await world.end(world.unfrozen[0], BY_NAME[what])
        elif kind == "wait":
            world.pass_time(what)
            await world.look()
        elif kind == "clock":
            world.set_clock(what)
            await world.look()
        elif kind == "restart":
            await world.start()
        elif kind == "reboot":
            world.reboot()
            world.set_clock(what)
            await world.start()
        elif kind == "command":
            for task_id in self.told:
                self._command(what, task_id)
            await world.look()
        self.look()

    def _command(self, what: str, task_id: str) -> None:
        world = self.world
        with contextlib.suppress(HoldfastError):  # most commands are refused in most states: nothing changes then
            if what.startswith("resume"):
                force = what == "resume by force"
                world.write(lambda tx: tx.tasks.resume(task_id, "ann", world.now, force=force))
                self.told[task_id].forced += force
            elif what.startswith("pause"):
                self._pause(task_id, None if what == "pause" else 3600.0)
            elif what == "retry":
                world.write(lambda tx: tx.tasks.retry(task_id, "ann", False, world.now))
            elif what.startswith("approve"):
                changes = None if what == "approve" else "otherwise"
                world.write(lambda tx: tx.stages.approve(task_id, "ann", world.now, changes))
            elif world.row(task_id)["state"] == "running":
                world.write(lambda tx: tx.requests.ask(RequestKind.CANCEL, task_id, "ann", "", {}, world.now))
            else:
                world.write(lambda tx: tx.tasks.cancel_waiting(task_id, "ann", "", world.now))

    def _pause(self, task_id: str, seconds: float | None) -> None:
        now = self.world.now
        until = None if seconds is None else now.wall + seconds
        data = {"until": until, "seconds": seconds, "force": False}
        if self.world.row(task_id)["state"] == "running":
            self.world.write(lambda tx: tx.requests.ask(RequestKind.PAUSE, task_id, "ann", "", data, now))
        else:
            self.world.write(lambda tx: tx.tasks.pause_waiting(task_id, "ann", "", until, now))

    def rests(self, task_id: str) -> bool:
        """It has ended, or only an operator can move it."""
        row = self.world.row(task_id)
        if row["state"] in TERMINAL:
            return True
        if row["state"] == "paused":
            return row["resume_after"] is None
        if row["state"] == "queued":
            return self._waits_for_operator(row)
        return self._is_frozen(task_id)

    def _waits_for_operator(self, row: dict[str, Any]) -> bool:
        """Its account is stopped, and no other may be had."""
        stopped = {account.name for account in self._shut() if account.until is None}
        return row["bound"] in stopped or stopped == {"default", "work"}

    def _shut(self) -> Any:
        return self.world.write(lambda tx: tx.accounts.unavailable())

    def _is_frozen(self, task_id: str) -> bool:
        assert self.world.supervisor is not None
        attempt = self.world.supervisor._attempts.get(task_id)
        return attempt is not None and attempt.frozen

    async def until_rest(self, ends: Iterator[str], trouble: Iterator[tuple[str, Any] | None], most: int) -> int:
        """Nobody helps any more: agents end as `ends` says, time passes, `trouble` happens. How many runs it took."""
        before = sum(told.runs for told in self.told.values())
        set_clocks = 0
        for _ in range(most * 5):
            if all(self.rests(task_id) for task_id in self.told):
                return sum(told.runs for told in self.told.values()) - before
            happens = next(trouble)
            if happens is not None:
                kind, what = happens
                set_clocks += bool(what)
                await self.step(kind, what if set_clocks <= MOST_SET_CLOCKS else 0.0)
            if self.world.unfrozen:
                await self.step("end", next(ends))
            else:
                await self.step("wait", self._until_due())
            taken = sum(told.runs for told in self.told.values()) - before
            assert taken <= most, f"{taken} runs and still not at rest: {self._story()}"
        pytest.fail(f"never at rest: {self._story()}")

    def _until_due(self) -> float:
        due = self.world.write(lambda tx: tx.tasks.next_due_time(self.world.now))
        return 1800.0 if due is None else min(8 * 3600.0, max(1.0, due - self.world.now.wall))

    def _story(self) -> str:
        return "; ".join(f"{task_id}: {' → '.join(told.seen[-12:])}" for task_id, told in self.told.items())


async def played(
    script: Sequence[tuple[str, Any]],
    ends: Sequence[str],
    trouble: Sequence[tuple[str, Any] | None],
    tasks: int,
    most: int,
    stages: Stages = (),
    gates: Sequence[bool] = (True,),
) -> int:
    world = World(LIMITS)
    world.gates.verdicts = itertools.cycle(gates)
    try:
        added = {"stages": stages, "workflow": "played"} if stages else {}
        play = Play(world, [world.add(max_resumes=MOST_RESUMES, **added) for _ in range(tasks)])
        await world.start()
        for kind, what in script:
            await play.step(kind, what)
        return await play.until_rest(itertools.cycle(ends), itertools.cycle(trouble), most)
    finally:
        await world.close()


# Per task: `runs` bounds all but the lost ones and those of an outage; each of these is bounded between two of them.
# Probes that meet a limit are bounded by `max_wait`, and changes of the account by `moves`.
MOST = LIMITS.runs * (LIMITS.lost + 2) + 40 + max_waits(LIMITS) + LIMITS.moves
EXAMPLES = int(os.environ.get("HOLDFAST_FUZZ_ENDS", "16"))
config = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="HOLDFAST_FUZZ_ENDS" not in os.environ,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)


@config
@given(
    script=st.lists(steps, max_size=12),
    ends=st.lists(st.sampled_from(GOES_ON), min_size=1, max_size=4),
    trouble=st.lists(st.one_of(st.none(), disturbances), min_size=1, max_size=4),
    tasks=st.sampled_from([1, 1, 2, 2, 6]),
)
def test_any_sequence_comes_to_rest(
    script: list[tuple[str, Any]], ends: list[str], trouble: list[tuple[str, Any] | None], tasks: int
) -> None:
    asyncio.run(played(script, ends, trouble, tasks, MOST * tasks))


def stage(**changes: Any) -> Stage:
    return Stage(**{"agent": "played", **changes})


STAGES = (
    stage(name="plan", retry=1),
    stage(name="build", gate="check", retry=1, on_failure=OnFailure.CONTINUE),
    stage(name="review", reviews=True, back_to="build", max_turns=2),
    stage(name="last", on_failure=OnFailure.BACK, back_to="plan", max_turns=1),
)
# Whatever the other ends, each stage is tried so often, in so many turns of all of them.
MOST_STAGED = MOST + (1 + sum(one.max_turns for one in STAGES)) * sum(one.retry + 1 for one in STAGES)
STAGED = ["completed", "failed", "approves", "wants changes"]


@settings(config, max_examples=EXAMPLES // 2)
@given(
    script=st.lists(
        st.one_of(
            st.tuples(st.just("end"), st.sampled_from([*STAGED, *STAGED, *sorted(BY_NAME)])),
            st.tuples(st.just("command"), st.sampled_from([*COMMANDS, "approve", "approve with changes"])),
            disturbances,
        ),
        max_size=12,
    ),
    ends=st.lists(st.sampled_from([*STAGED, *STAGED, *GOES_ON]), min_size=1, max_size=6),
    trouble=st.lists(st.one_of(st.none(), disturbances), min_size=1, max_size=4),
    gates=st.lists(st.booleans(), min_size=1, max_size=3),
    asks=st.integers(-1, 3),
)
def test_any_sequence_of_stages_comes_to_rest(
    script: list[tuple[str, Any]],
    ends: list[str],
    trouble: list[tuple[str, Any] | None],
    gates: list[bool],
    asks: int,
) -> None:
    """R-RES-12: gates, reviewers and crashes together; `asks` is the stage whose work a person has to approve."""
    stages = tuple(replace(one, approval=index == asks) for index, one in enumerate(STAGES))
    asyncio.run(played(script, ends, trouble, 1, MOST_STAGED, stages, gates))


SWARM = (
    stage(
        name="swarm",
        members=tuple(Member(name=name, agent="played") for name in ("one", "two", "three")),
        least=2,
        retry=1,
        at_once=2,
        on_failure=OnFailure.CONTINUE,
    ),
    stage(name="sum", on_failure=OnFailure.BACK, back_to="swarm", max_turns=1),
)


@settings(config, max_examples=EXAMPLES // 4)
@given(
    script=st.lists(steps, max_size=12),
    ends=st.lists(st.sampled_from(["completed", "failed", *GOES_ON]), min_size=1, max_size=6),
    trouble=st.lists(st.one_of(st.none(), disturbances), min_size=1, max_size=4),
)
def test_any_sequence_of_members_comes_to_rest(
    script: list[tuple[str, Any]], ends: list[str], trouble: list[tuple[str, Any] | None]
) -> None:
    """R-RES-12, R-CRON-05: whatever its members meet, beside each other and one after the other."""
    asyncio.run(played(script, ends, trouble, 1, 3 * MOST, SWARM))


@pytest.mark.parametrize(
    ("ends", "gates", "runs"),
    [
        (["wants changes"], [True], 7),  # plan, build, and a review three times, with two builds between them
        (["completed"], [False], 4),  # plan, build twice, and then a review without a verdict
        (["failed"], [True], 2),
        (["approves"], [True], 4),
    ],
)
def test_a_workflow_takes_as_many_runs_as_its_settings_allow(ends: list[str], gates: list[bool], runs: int) -> None:
    assert asyncio.run(played([], ends, [None], 1, MOST_STAGED, STAGES, gates)) == runs


@pytest.mark.parametrize("name", GOES_ON)
def test_an_agent_that_always_ends_the_same_way_comes_to_rest(name: str) -> None:
    """R-RES-12: the loop shapes, and every other ending after which a task continues by itself."""
    took = asyncio.run(played([], [name], [None], 1, MOST))
    assert took >= 2, "it was meant to continue by itself at least once"


def test_a_fleet_that_its_machine_kills_again_and_again_waits_for_an_operator() -> None:
    """R-CRASH-07, R-RES-12: a mass death spends nobody's budget, so something else must end it. Agents that live until
    the others follow, and then die with them, are no proof: after the third time within a day nothing continues."""

    async def story() -> int:
        world = World(LIMITS, watched=True, agents=7)
        try:
            tasks = [world.add() for _ in range(7)]
            await world.start()
            for _ in range(40):
                world.pass_time(100.0)  # for one that starts first: long enough to let the others follow
                await world.look()
                await world.look()
                for run_id in world.unfrozen if len(world.unfrozen) > 1 else []:
                    await world.end(run_id, BY_NAME["killed"])
                if not world.unfrozen:
                    world.pass_time(1800.0)
                    await world.look()
            assert world.unfrozen == []
            assert {world.row(task_id)["state"] for task_id in tasks} == {"queued"}
            assert all(not world.store.view("spends", id=task_id, generation=0) for task_id in tasks)
            [alert] = world.store.view("alerts", all=False)
            assert "number 3" in alert["message"]
            runs = sum(len(world.store.view("runs", id=task_id)) for task_id in tasks)
            world.write(lambda tx: tx.holds.release(Scope.FLEET, "all", "released by ann", world.now, forget=True))
            await world.look()
            assert len(world.unfrozen) == 7, "an operator vouches for the machine"
            return runs
        finally:
            await world.close()

    assert asyncio.run(story()) == 21, "three times seven"


def test_readers_know_when_only_an_operator_helps() -> None:
    assert dispatch._MOST_STORMS == MAX_MASS_DEATHS
