"""Dispatch that is held back, through whole supervisors under a clock that the test moves (played.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.integration.supervisor.played import Ending, World

from holdfast.api.fleet.dispatch import release
from holdfast.core.dispatch.holds import Hold, Scope
from holdfast.core.health.signs import NearLimit
from holdfast.core.model import RequestKind
from holdfast.core.runs.outcome import Outcome
from holdfast.core.runs.retry_budgets import RetryLimits
from holdfast.core.workflows.workflow import Member, Stage
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.claims.claim import claim_next

YEARS = 10 * 365 * 86400.0
DONE = Ending(name="done", said=Outcome.COMPLETED)
DOWN = Ending(name="down", said=Outcome.OVERLOADED)
KILLED = Ending(name="killed", signal=9)
LIMIT = Ending(name="limited", said=Outcome.USAGE_LIMITED, resets_in=60.0)
UNTOLD = Ending(name="limited-untold", said=Outcome.RATE_LIMITED)

DEFAULTS = RetryLimits()


def live(play: Callable[[World], Awaitable[None]], *, limits: RetryLimits = DEFAULTS, agents: int = 4) -> None:
    async def go() -> None:
        world = World(limits, agents=agents)
        try:
            await world.start()
            await play(world)
        finally:
            await world.close()

    asyncio.run(go())


def states(world: World, tasks: list[str]) -> list[str]:
    return [world.row(task)["state"] for task in tasks]


def holds(world: World) -> dict[str, Hold]:
    return {hold.full_name: hold for hold in world.write(lambda tx: tx.holds.all())}


def task_of(world: World, run: str) -> str:
    tasks = [str(row["id"]) for row in world.store.view("tasks")]
    return next(task for task in tasks if run in [row["id"] for row in world.store.view("runs", id=task)])


def spends(world: World, task: str) -> list[str]:
    return [str(spend.budget) for spend in world.write(lambda tx: tx.tasks.ledger(tx.tasks.get(task)))]


def kinds(world: World, kind: str) -> list[dict[str, Any]]:
    return [e for e in world.store.view("events", after=0, task=None, limit=100000) if e["kind"] == kind]


def alerts(world: World) -> list[str]:
    return [str(row["key"]) for row in world.store.view("alerts", all=0)]


class TestAnAccountAfterItsReset:
    """R-RES-08: one agent probes first; the resumes of the others are not spent."""

    def test_one_goes_first_the_others_stay_paused_and_follow(self) -> None:
        async def play(world: World) -> None:
            tasks = [world.add(agent_options={"account": "work"}) for _ in range(3)]
            await world.look()
            assert len(world.unfrozen) == 3
            for run in world.unfrozen:
                await world.end(run, LIMIT)
            assert states(world, tasks) == ["paused"] * 3
            for number in (1, 2):
                world.pass_time(61 if number == 1 else 400)
                await world.look()
                assert sorted(states(world, tasks)) == ["paused", "paused", "running"]
                assert sum(world.row(task)["resume_attempts"] for task in tasks) == number
                await world.start()  # the supervisor dies with the probe at work, which is adopted
                assert len(world.unfrozen) == 1
                if number == 1:
                    await world.end(world.unfrozen[0], LIMIT)
                    assert states(world, tasks) == ["paused"] * 3
                    assert holds(world) == {}, "parked again: that holds them back now"
            late = world.add(agent_options={"account": "work"}, priority=9)
            await world.look()
            assert world.row(late)["state"] == "queued", "whoever comes waits for the probe too"
            await world.end(world.unfrozen[0], DONE)
            assert sorted(states(world, [*tasks, late])) == ["completed", "running", "running", "running"]
            assert max(world.row(task)["resume_attempts"] for task in tasks) <= 2

        live(play)

    @pytest.mark.parametrize("limit", [replace(LIMIT, resets_in=10.0), UNTOLD], ids=["told", "untold"])
    def test_the_late_end_of_an_earlier_run_makes_no_second_probe(self, limit: Ending) -> None:
        """Two runs met the limit, one long after the other: the probe between them keeps its place."""

        async def play(world: World) -> None:
            early, late = [world.add(agent_options={"account": "work"}) for _ in range(2)]
            await world.look()
            runs = {task_of(world, run): run for run in world.unfrozen}
            await world.end(runs[early], limit)
            world.pass_time(15)
            await world.look()
            assert states(world, [early, late]) == ["running", "running"], "the probe, and the run from before"
            [probe] = [run for run in world.unfrozen if run != runs[late]]
            await world.end(runs[late], limit)
            world.pass_time(25)  # not so long that the probe would let others follow
            await world.look()
            assert states(world, [early, late]) == ["running", "paused"]
            await world.start()  # the next supervisor knows the probe too
            assert states(world, [early, late]) == ["running", "paused"]
            await world.end(probe, limit)
            world.pass_time(45)
            await world.look()
            assert sorted(states(world, [early, late])) == ["paused", "running"]

        live(play, limits=RetryLimits(default_hold=10.0, resume_jitter=0.0))

    @pytest.mark.parametrize("is_opened", [True, False])
    def test_earlier_runs_never_displace_a_probe_at_work(self, is_opened: bool) -> None:
        """One earlier run meets the limit again, another completes: both prove nothing about the probe between them.
        The probe's own limit counts as a repeat, also while the account is still parked anew."""

        async def play(world: World) -> None:
            early, late, third = [world.add(agent_options={"account": "work"}) for _ in range(3)]
            await world.look()
            runs = {task_of(world, run): run for run in world.unfrozen}
            await world.end(runs[early], UNTOLD)
            world.pass_time(15)
            await world.look()
            [probe] = [run for run in world.unfrozen if run not in runs.values()]
            await world.end(runs[late], UNTOLD)
            await world.end(runs[third], DONE)
            if is_opened:
                world.pass_time(25)
                await world.look()
            assert states(world, [early, late, third]) == ["running", "paused", "completed"]
            await world.end(probe, replace(UNTOLD, has_answer=False))
            assert holds(world)["account:played/work"].rounds == 1

        live(play, limits=RetryLimits(default_hold=10.0, resume_jitter=0.0))

    def test_a_park_that_ends_between_two_looks_lets_no_task_pass(self) -> None:
        """Its hold is recorded when the account is opened. A claim before that would start a task beside the probe."""

        async def play(world: World) -> None:
            world.add(agent_options={"account": "work"})
            await world.look()
            await world.end(world.unfrozen[0], LIMIT)
            late = world.add(agent_options={"account": "work"}, priority=9)
            world.pass_time(61)
            world.write(lambda tx: tx.hosts.beat(world.context.host_id, 30.0, world.now))
            assert world.write(lambda tx: claim_next(world.context, tx)) is None
            await world.look()
            assert task_of(world, world.unfrozen[0]) == late
            assert len(world.unfrozen) == 1
            assert holds(world)["account:played/work"].is_probe(late)

        live(play)

    def test_a_probe_that_is_cancelled_frees_its_place(self) -> None:
        async def play(world: World) -> None:
            tasks = [world.add(agent_options={"account": "work"}) for _ in range(2)]
            await world.look()
            for run in world.unfrozen:
                await world.end(run, LIMIT)
            world.pass_time(61)
            await world.look()
            (probe,) = [task for task in tasks if world.row(task)["state"] == "running"]
            world.write(lambda tx: tx.requests.ask(RequestKind.CANCEL, probe, "ann", "", {}, world.now))
            await world.look()
            assert sorted(states(world, tasks)) == ["cancelled", "running"]

        live(play)

    def test_of_a_swarm_only_the_member_under_the_account_says_how_it_is(self) -> None:
        async def play(world: World) -> None:
            limited = world.add(agent_options={"account": "work"})
            await world.look()
            await world.end(world.unfrozen[0], LIMIT)
            world.write(lambda tx: tx.tasks.cancel_waiting(limited, "ann", "", world.now))
            world.pass_time(61)
            members = tuple(
                Member(name=name, agent="played", agent_options={"account": name}) for name in ("work", "default")
            )
            mine = {"account": "work"}
            stage = Stage(name="swarm", agent="played", agent_options=mine, members=members, least=2)
            swarm = world.add(stages=(stage,), workflow="swarm", agent_options=mine)
            late = world.add(agent_options=mine)
            await world.look()
            runs = {row["member"]: row["id"] for row in world.store.view("runs", id=swarm)}
            await world.end(runs["default"], DONE)
            assert states(world, [swarm, late]) == ["running", "queued"], "nobody knows yet how that account is"
            await world.end(runs["work"], DONE)
            assert states(world, [swarm, late]) == ["completed", "running"]

        live(play)

    def test_a_task_that_may_choose_takes_the_other_account_meanwhile(self) -> None:
        async def play(world: World) -> None:
            tasks = [world.add() for _ in range(2)]
            await world.look()
            for run in world.unfrozen:
                await world.end(run, LIMIT)
            world.pass_time(61)
            await world.look()
            free = world.add()
            await world.look()
            assert sorted(states(world, tasks)) == ["paused", "running"]
            assert world.row(free)["state"] == "running"
            under = world.write(lambda tx: [tx.runs.account_of_run(run) for run in world.unfrozen])
            assert sorted(under) == [("played", "default"), ("played", "work")]

        live(play)


class TestAProvider:
    """R-RES-12: persistent API failure. Nobody runs into it but one, and it ends."""

    @pytest.mark.parametrize("jump", [0.0, YEARS, -YEARS])
    def test_one_probe_at_a_time_until_it_answers(self, jump: float) -> None:
        async def play(world: World) -> None:
            for _ in range(6):
                world.add(provider="acme")
            other = world.add(provider="other")
            await world.look()
            while concerned := [run for run in world.unfrozen if task_of(world, run) != other]:
                await world.end(concerned[0], DOWN)
            assert states(world, [other]) == ["running"], "another provider is not concerned"
            await world.end(world.unfrozen[0], DONE)
            for round_ in range(1, 4):
                assert holds(world)["provider:acme"].rounds == round_
                world.pass_time(5)
                await world.look()
                assert world.unfrozen == [], "its time has not come"
                until = holds(world)["provider:acme"].until
                assert until is not None
                world.pass_time(until - world.now.wall + 0.1)
                world.set_clock(jump if round_ == 1 else 0.0)
                await world.look()
                assert len(world.unfrozen) == 1
                await world.start()
                assert len(world.unfrozen) == 1
                await world.end(world.unfrozen[0], DOWN)
            first, second, third = [event["task"] for event in kinds(world, "dispatch.probing")]
            assert first != second != third, "they take turns"
            world.pass_time(400)
            await world.look()
            await world.end(world.unfrozen[0], DONE)
            assert len(world.unfrozen) == 4, "the others follow"
            assert holds(world) == {}
            assert kinds(world, "task.failed") == []

        live(play)

    def test_beyond_the_budget_all_are_paused_with_one_alert_and_one_command_lets_them_go_on(self) -> None:
        async def play(world: World) -> None:
            tasks = [world.add(provider="acme") for _ in range(6)]
            needing = world.add(provider="acme", needs=(tasks[0],))
            await world.look()
            for run in list(world.unfrozen):
                await world.end(run, DOWN)
            for _ in range(300):
                if "queued" not in states(world, tasks) and not world.unfrozen:
                    break
                world.pass_time(300)
                await world.look()
                for run in world.unfrozen:
                    await world.end(run, DOWN)
            assert states(world, tasks) == ["paused"] * 6
            assert {world.row(task)["pause_reason"] for task in tasks} == {"outage"}
            assert world.row(needing)["state"] == "queued", "it waits for a task, not for the provider"
            assert alerts(world) == ["provider:acme"]
            assert sum(spends(world, task).count("outage") for task in tasks) < 100
            released, resumed = release(world.home, "provider:acme")
            assert (released, sorted(resumed)) == (["provider:acme"], sorted(tasks))
            assert alerts(world) == []
            await world.look()
            assert len(world.unfrozen) == 4

        live(play, limits=RetryLimits(outage=2 * 3600.0))

    def test_a_probe_that_outlasts_the_budget_raises_the_providers_alert(self) -> None:
        async def play(world: World) -> None:
            task = world.add(provider="acme")
            await world.look()
            for _ in range(2):
                await world.end(world.unfrozen[0], DOWN)
                world.pass_time(60)
                await world.look()
            assert holds(world)["provider:acme"].has_running_probe()
            world.pass_time(3 * 3600)
            await world.look()
            assert world.row(task)["state"] == "running", "nobody is given up while somebody tries"
            await world.end(world.unfrozen[0], DOWN)
            assert world.row(task)["pause_reason"] == "outage"
            assert alerts(world) == ["provider:acme"]

        live(play, limits=RetryLimits(outage=2 * 3600.0))

    def test_a_task_that_always_breaks_it_does_not_hold_up_the_others(self) -> None:
        async def play(world: World) -> None:
            poison = world.add(provider="acme", priority=9)
            await world.look()
            for _ in range(2):
                await world.end(world.unfrozen[0], DOWN)
                world.pass_time(40)
                await world.look()
            assert holds(world)["provider:acme"].is_held
            good = [world.add(provider="acme") for _ in range(3)]
            while world.row(good[0])["state"] == "queued":
                for run in world.unfrozen:
                    await world.end(run, DOWN if task_of(world, run) == poison else DONE)
                world.pass_time(10)
                await world.look()
            assert spends(world, poison).count("outage") <= 4

        live(play)


class TestNearALimit:
    def test_a_warning_lets_agents_start_one_by_one_until_the_reset(self) -> None:
        async def play(world: World) -> None:
            first = world.add(agent_options={"account": "work"})
            await world.look()
            assert world.supervisor is not None
            (run,) = world.unfrozen
            for used in (0.9, 0.93):
                warning = NearLimit(used=used, scope="five_hour", reset=world.now.wall + 600)
                world.supervisor._resumes._holding.note_near_limit(run, warning)
                await world.look()
            assert len(kinds(world, "dispatch.held")) == 1, "once per episode"
            world.pass_time(1)
            more = [world.add(agent_options={"account": "work"}) for _ in range(3)]
            anyone = world.add()
            await world.look()
            assert states(world, [first, anyone]) == ["running", "running"]
            assert sorted(states(world, more)) == ["queued", "queued", "running"]
            await world.start()
            assert sorted(states(world, more)) == ["queued", "queued", "running"]
            world.pass_time(601)
            await world.look()
            assert sorted(states(world, more)) == ["queued", "running", "running"], "as far as there is room"
            assert [hold for hold in holds(world).values() if hold.scope is Scope.NEAR] == []

        live(play)

    def test_a_warning_that_comes_while_another_is_written_is_not_lost(self) -> None:
        """A look runs in the writer's thread, and agents warn whenever they like."""

        async def play(world: World) -> None:
            for account in ("work", "home"):
                world.add(agent_options={"account": account})
            await world.look()
            first, second = world.unfrozen
            assert world.supervisor is not None
            holding = world.supervisor._resumes._holding
            warning = NearLimit(used=0.9, scope="five_hour", reset=world.now.wall + 600)
            holding.note_near_limit(first, warning)

            def look(tx: Transaction) -> None:
                holding.look(tx)
                holding.note_near_limit(second, warning)

            world.write(look)
            holding.written()
            await world.look()
            near = [name for name, hold in holds(world).items() if hold.scope is Scope.NEAR]
            assert len(near) == 2, near

        live(play)


class TestMassDeath:
    """R-CRASH-07."""

    @pytest.mark.parametrize("crashes", [1, 3])
    def test_six_of_eight_are_one_trouble_and_cost_nobody_anything(self, crashes: int) -> None:
        """With one crash allowed (`crashes` is the one that stops) the very first would have failed its task."""

        async def play(world: World) -> None:
            tasks = [world.add() for _ in range(8)]
            await world.look()
            victims = world.unfrozen[:6]
            world.processes.runs[victims[0]].end(KILLED, world.now.wall)
            while not kinds(world, "run.ended"):  # noqa: ASYNC110 - a fact in the store
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)  # long enough for a decision that is not put off
            for run in victims[1:]:
                world.processes.runs[run].end(KILLED, world.now.wall)
            await world.look()
            assert sorted(states(world, tasks)) == ["queued"] * 6 + ["running"] * 2
            assert [spends(world, task) for task in tasks] == [[]] * 8
            records = [(row["recent"], row["decision"]) for row in world.store.view("crashes", task=None, since=0)]
            assert [recent for recent, _ in records] == [0] * 6, "as the budget counts them"
            assert all("part of a mass death, so it is not counted" in decision for _, decision in records), records
            assert alerts(world) == ["mass-death"]
            assert len(kinds(world, "dispatch.held")) == 1
            await world.start()
            world.pass_time(200)
            await world.look()
            assert len(world.unfrozen) == 2, "held, even by the next supervisor"
            world.pass_time(200)
            await world.look()
            assert len(world.unfrozen) == 3, "one starts first"
            probe = world.unfrozen[-1]
            await world.end(probe, KILLED)
            died = task_of(world, probe)
            if crashes == 3:
                assert spends(world, died) == ["crash", "runs"], "its own death is an ordinary crash: this ends"
            world.pass_time(500)
            await world.look()
            assert len(world.unfrozen) == 2
            world.pass_time(500)
            await world.look()
            assert len(world.unfrozen) == 3
            await world.end(world.unfrozen[-1], DONE)
            assert len(world.unfrozen) == (7 if crashes == 3 else 6), "all follow"
            assert alerts(world) == ([] if crashes == 3 else [f"crash:task:{died}"])
            assert not holds(world)["fleet:all"].is_held, "remembered, but nothing waits for it"

        live(play, agents=8, limits=RetryLimits(crash=crashes))

    def test_members_that_died_with_many_others_fail_nothing(self) -> None:
        """R-CRASH-07: a swarm of which all members died is one of those tasks, not one that failed; they go again."""

        async def play(world: World) -> None:
            members = tuple(Member(name=name, agent="played") for name in ("one", "two", "three"))
            stage = Stage(name="swarm", agent="played", members=members, least=2)
            swarm = world.add(stages=(stage,), workflow="swarm")
            tasks = [swarm, *(world.add() for _ in range(5))]
            await world.look()
            assert len(world.unfrozen) == 8
            mine = [row["id"] for row in world.store.view("runs", id=swarm)]
            await world.end(mine[0], DONE)
            for run in [*mine[1:], *world.unfrozen]:
                if world.processes.runs[run].lives:
                    world.processes.runs[run].end(KILLED, world.now.wall)
            await world.look()
            assert states(world, tasks) == ["queued"] * 6, world.row(swarm)["reason"]
            assert [spends(world, task) for task in tasks] == [[]] * 6
            release(world.home, None)
            await world.look()
            names = [row["member"] for row in world.store.view("runs", id=swarm)]
            assert sorted(names) == ["one", "three", "three", "two", "two"]
            for run in world.unfrozen:
                await world.end(run, DONE)
            assert states(world, tasks) == ["completed"] * 6

        live(play, agents=8)

    @pytest.mark.parametrize("down", [0, 1])
    def test_what_a_member_meets_is_told_of_its_own_provider(self, down: int) -> None:
        """R-RES-12: not of the one of the first member, and what it met is not taken back by the others' success."""

        async def play(world: World) -> None:
            names = ("near", "far")
            members = tuple(Member(name=name, agent="played", provider=name) for name in names)
            stage = Stage(name="swarm", agent="played", provider="near", members=members, least=1 + down)
            swarm = world.add(stages=(stage,), workflow="swarm", provider="near")
            await world.look()
            runs = {row["member"]: row["id"] for row in world.store.view("runs", id=swarm)}
            for number, name in enumerate(names):
                world.processes.runs[runs[name]].end(DOWN if number == down else DONE, world.now.wall)
            await world.look()
            assert states(world, [swarm]) == ["completed" if down == 0 else "queued"], world.row(swarm)["reason"]
            assert {name: hold.failures for name, hold in holds(world).items()} == {f"provider:{names[down]}": 1}

        live(play)

    def test_a_swarm_whose_members_all_crash_is_no_mass_death(self) -> None:
        """R-CRASH-07 is about many tasks: what one prompt does to its members holds nobody else up."""

        async def play(world: World) -> None:
            members = tuple(Member(name=f"m{number}", agent="played") for number in range(6))
            swarm = world.add(stages=(Stage(name="swarm", agent="played", members=members),), workflow="swarm")
            await world.look()
            for run in world.unfrozen:
                world.processes.runs[run].end(KILLED, world.now.wall)
            await world.look()
            assert states(world, [swarm]) == ["failed"]
            assert holds(world) == {}

        live(play, agents=8)

    def test_deaths_one_by_one_give_back_what_the_first_had_cost(self) -> None:
        async def play(world: World) -> None:
            tasks = [world.add() for _ in range(8)]
            await world.look()
            for number, run in enumerate(world.unfrozen[:5], start=1):
                await world.end(run, KILLED)
                world.pass_time(5)
                paid = [spends(world, task) for task in tasks]
                assert sum(map(len, paid)) == (2 * number if number < 5 else 0)
            released, _ = release(world.home, None)
            assert released == ["fleet:all"]
            await world.look()
            assert len(world.unfrozen) == 8
            assert alerts(world) == []

        live(play, agents=8)

    def test_four_or_slow_ones_are_ordinary_crashes(self) -> None:
        async def play(world: World) -> None:
            for _ in range(8):
                world.add()
            await world.look()
            for run in world.unfrozen[:6]:
                await world.end(run, KILLED)
                world.pass_time(8)
            assert holds(world) == {}
            assert len(kinds(world, "task.requeued")) == 6

        live(play, agents=8)
