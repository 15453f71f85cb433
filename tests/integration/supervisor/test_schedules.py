"""Schedules, through whole supervisors under a clock that the test moves (played.py)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.integration.supervisor.played import Ending, World
from tests.integration.supervisor.timetable import Board

from holdfast.core.model import Event
from holdfast.core.runs.outcome import Outcome
from holdfast.core.runs.retry_budgets import RetryLimits
from holdfast.core.schedules.schedule import Misfire, Overlap, Schedule, ScheduleRecord
from holdfast.store.sqlite.engine import copies
from holdfast.supervisor.services import reload

DONE = Ending(name="done", said=Outcome.COMPLETED)
BEGIN = datetime(2026, 11, 16, 0, 30, tzinfo=UTC).timestamp()
HOUR, DAY, YEAR = 3600.0, 86400.0, 365 * 86400.0
EVERY_SECOND = Schedule(name="tick", repo="/repo", cron="* * * * * *")
HOURLY = Schedule(name="hourly", repo="/repo", cron="0 * * * *")
Play = Callable[["Clockwork"], Awaitable[None]]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are finished as soon as they are seen."""
    monkeypatch.setattr(reload, "SETTLE", 0.0)


class Clockwork(World):
    """A world whose supervisors go by a board."""

    def __init__(self, agents: int = 4) -> None:
        super().__init__(RetryLimits(), agents=agents)
        self.board = self.schedule_files = Board(self.repo, lambda: self.now)

    def wall(self) -> float:
        return self.now.wall

    async def at(self, moment: float) -> None:
        """Time passes until then, without a look; then there is one."""
        self.pass_time(moment - self.wall())
        await self.look()

    async def down_for(self, seconds: float) -> None:
        await self._leave()
        self.pass_time(seconds)
        await self.start()

    def told(self, kind: str) -> list[dict[str, Any]]:
        return [
            event for event in self.store.view("events", after=0, task=None, limit=100_000) if event["kind"] == kind
        ]

    @property
    def fires(self) -> list[float]:
        return [json.loads(event["data"])["fire_time"] for event in self.told("schedule.fired")]

    @property
    def tasks(self) -> list[str]:
        """Of schedules, in the order in which they were fired."""
        return [str(event["task"]) for event in self.told("schedule.fired")]

    @property
    def states(self) -> list[str]:
        return [str(self.row(task)["state"]) for task in self.tasks]

    @property
    def alerts(self) -> list[str]:
        return [str(row["key"]) for row in self.store.view("alerts", all=0)]

    def record(self) -> ScheduleRecord:
        [record] = self.write(lambda tx: tx.schedules.all())
        return record  # type: ignore[no-any-return]  # what a write returns

    async def end_all(self) -> None:
        for run in self.unfrozen:
            await self.end(run, DONE)


def live(play: Play, *schedules: Schedule, agents: int = 4) -> None:
    async def go() -> None:
        world = Clockwork(agents)
        try:
            world.pass_time(BEGIN - world.wall())
            world.board.write(*schedules)
            await world.start()
            await play(world)
        finally:
            await world.close()

    asyncio.run(go())


def a(schedule: Schedule, **changes: Any) -> Schedule:
    return replace(schedule, **changes)


def hour(number: int) -> float:
    """The number-th full hour from the beginning."""
    return BEGIN + HOUR * (number - 0.5)


class TestWhatWasMissed:
    def test_twelve_hours_of_outage_are_one_catch_up(self) -> None:
        """R-CRON-03: of every second; and what comes then is on time again."""

        async def play(world: Clockwork) -> None:
            await world.down_for(12 * HOUR)
            assert world.fires == [world.wall()]
            await world.look()
            assert len(world.fires) == 1
            await world.end_all()
            await world.at(world.wall() + 1)
            assert world.fires[1:] == [world.wall()]

        live(play, EVERY_SECOND)

    def test_nothing_of_before_it_was_seen_fires_nor_of_before_it_was_changed(self) -> None:
        """R-CRON-01."""

        async def play(world: Clockwork) -> None:
            await world.at(hour(1) - 1)
            assert world.fires == []
            world.board.write(a(HOURLY, cron="59 * * * *"))
            await world.look()
            assert world.fires == []
            await world.down_for(HOUR / 2)
            assert world.fires == []
            await world.at(hour(2) - 60)
            assert world.fires == [hour(2) - 60]

        live(play, HOURLY)

    def test_none_is_made_up_for_where_that_is_not_wanted(self) -> None:
        """R-CRON-01: a minute late is on time."""

        async def play(world: Clockwork) -> None:
            await world.down_for(HOUR)
            assert world.fires == []
            assert len(world.told("schedule.skipped")) == 1
            await world.at(hour(2) + 59)
            assert world.fires == [hour(2)]

        live(play, a(HOURLY, misfire=Misfire.SKIP))

    def test_all_of_them_come_one_after_the_other_the_latest_few(self) -> None:
        """R-CRON-01: also where overlapping ones are skipped."""

        async def play(world: Clockwork) -> None:
            await world.down_for(10 * HOUR)
            for number in (8, 9, 10):
                assert world.fires[-1] == hour(number)
                assert world.states[-1] == "running"
                await world.end_all()
            assert world.fires == [hour(number) for number in (8, 9, 10)]
            [told] = [json.loads(one["data"]) for one in world.told("schedule.skipped")]
            assert (told["first"], told["fire_time"], told["count"]) == (hour(1), hour(7), 7)

        live(play, a(HOURLY, misfire=Misfire.ALL, most=3))


class TestTheLastOneHasNotEnded:
    def test_the_next_is_skipped_and_told(self) -> None:
        """R-CRON-01."""

        async def play(world: Clockwork) -> None:
            for number in (1, 2, 3):
                await world.at(hour(number))
            assert world.fires == [hour(1)]
            assert [json.loads(one["data"])["fire_time"] for one in world.told("schedule.skipped")] == [
                hour(2),
                hour(3),
            ]
            await world.end_all()
            assert world.fires == [hour(1)]
            await world.at(hour(4))
            assert world.fires == [hour(1), hour(4)]

        live(play, HOURLY)

    @pytest.mark.parametrize("misfire", list(Misfire))
    def test_the_next_waits_for_it_over_a_restart(self, misfire: Misfire) -> None:
        """R-CRON-01: whatever its end, and however long that takes; of several that wait, the latest."""

        async def play(world: Clockwork) -> None:
            for number in (1, 2, 3):
                await world.at(hour(number))
            await world.down_for(60)
            assert world.fires == [hour(1)]
            await world.end(world.unfrozen[0], Ending(name="fails", said=Outcome.FAILED))
            waited = [2, 3] if misfire is Misfire.ALL else [3]
            assert world.fires[1:] == [hour(waited[0])]
            assert world.told("schedule.skipped") == []
            await world.end_all()
            await world.end_all()
            assert world.fires[1:] == [hour(number) for number in waited]

        live(play, a(HOURLY, overlap=Overlap.QUEUE, misfire=misfire))

    def test_the_next_replaces_it_when_it_is_gone(self) -> None:
        """R-CRON-01: cancelled as an operator would; at no time are there two of them."""

        async def play(world: Clockwork) -> None:
            await world.at(hour(1))
            [first] = world.unfrozen
            world.pass_time(hour(2) - world.wall())
            assert world.supervisor is not None
            await world.supervisor._scheduling.tick()
            assert world.states == ["running"], "nothing new before the old one is proven gone"
            await world.supervisor._scheduling.tick()
            assert len(world.write(lambda tx: tx.requests.pending())) == 1, "asked once"
            await world.look()
            assert world.states == ["cancelled", "running"]
            assert first not in world.unfrozen
            assert world.fires == [hour(1), hour(2)]

        live(play, a(HOURLY, overlap=Overlap.REPLACE))

    def test_capacity_is_no_reason_to_lose_one(self) -> None:
        """R-CRON-03: the only agent is busy: its task waits in the queue, and runs once."""

        async def play(world: Clockwork) -> None:
            world.add()
            await world.at(hour(1) + 1)
            assert world.states == ["queued"]
            await world.at(hour(1) + 100)
            await world.end(world.unfrozen[0], DONE)
            assert world.states == ["running"]
            await world.end_all()
            await world.down_for(60)
            assert world.states == ["completed"]
            assert world.fires == [hour(1)]

        live(play, HOURLY, agents=1)


class TestClocks:
    def test_set_back_nothing_fires_twice(self) -> None:
        """R-CRON-02: and set back by so much that none had fired there, it continues at once."""

        async def play(world: Clockwork) -> None:
            for number in (1, 2):
                await world.at(hour(number))
                await world.end_all()
            world.set_clock(-1.25 * HOUR)
            await world.look()
            for moment in (hour(1), hour(2)):
                await world.at(moment)
            assert world.fires == [hour(1), hour(2)]
            await world.at(hour(3))
            await world.end_all()
            world.set_clock(-5 * YEAR)
            await world.look()
            await world.at(hour(4) - 5 * YEAR)
            assert world.fires[2:] == [hour(3), hour(4) - 5 * YEAR]

        live(play, HOURLY)

    def test_years_ahead_it_fires_once_and_back_again_it_is_not_silent(self) -> None:
        """R-CRON-02."""

        async def play(world: Clockwork) -> None:
            world.set_clock(10 * YEAR)
            await world.look()
            assert len(world.fires) == 1
            await world.end_all()
            world.set_clock(-10 * YEAR)
            await world.look()
            await world.at(hour(1))
            assert world.fires[1:] == [hour(1)]

        live(play, HOURLY)

    def test_jitter_is_the_same_for_everybody_and_loses_nothing(self) -> None:
        """R-CRON-01: over its width, and below the next occurrence whatever its width."""
        schedule = a(HOURLY, jitter=10 * HOUR)

        async def play(world: Clockwork) -> None:
            late = []
            for number in range(1, 5):
                for minute in range(0, 60, 2):
                    before = len(world.fires)
                    await world.at(hour(number) + 60 * minute)
                    if len(world.fires) > before:
                        late.append(minute)
                        await world.end_all()
            assert world.fires[:3] == [hour(number) for number in (1, 2, 3)]
            assert len(set(late)) > 1

        live(play, schedule)


class TestTrouble:
    def test_a_refused_fire_is_alerted_once_and_made_when_it_can_be(self) -> None:
        """R-CRON-03: its occurrence stays due, even over a restart; tried less and less often."""

        async def play(world: Clockwork) -> None:
            world.board.refuses = "there is no agent 'gone'"
            await world.at(hour(1))
            await world.look()
            assert world.board.asked == 1, "once, not at every look"
            assert world.alerts == ["schedule:/repo:hourly"]
            for _ in range(20):
                await world.at(world.wall() + 30)
            assert world.board.asked < 9
            await world.down_for(10)
            assert world.alerts == ["schedule:/repo:hourly"]
            world.board.refuses = None
            world.set_clock(-30 * DAY)
            await world.look()
            assert world.fires == [hour(1)], "a wait that was decided in the future is over"
            assert world.alerts == []

        live(play, a(HOURLY, misfire=Misfire.SKIP))

    def test_a_fire_that_takes_longer_to_prepare_than_its_period_is_made(self) -> None:
        """R-CRON-03: git is slow; what was due at the beginning is not given up for what came meanwhile."""

        async def play(world: Clockwork) -> None:
            world.board.meanwhile = lambda: world.pass_time(3)
            await world.at(BEGIN + 1)
            assert world.fires == [BEGIN + 1]
            told = [json.loads(one["data"]) for one in world.told("schedule.skipped")]
            assert [one["fire_time"] for one in told] == [BEGIN + 3, BEGIN + 4]
            assert (told[0]["first"], told[0]["count"]) == (BEGIN + 2, 2), "those that no task stands for are told"

        live(play, EVERY_SECOND)

    def test_a_broken_file_changes_nothing_but_for_an_alert(self) -> None:
        """R-CRON-01."""

        async def play(world: Clockwork) -> None:
            world.board.write(problem="line 3: no such key")
            await world.down_for(1)
            assert world.alerts == ["schedules:/config.toml"]
            await world.at(hour(1))
            assert world.fires == [hour(1)]
            await world.end_all()
            world.board.write(HOURLY)
            await world.at(hour(2))
            assert world.alerts == []
            assert world.fires == [hour(1), hour(2)]
            world.board.write()
            await world.end_all()
            await world.at(hour(3))
            assert len(world.fires) == 2

        live(play, HOURLY)

    def test_what_is_disabled_is_not_made_up_for(self) -> None:
        """R-CRON-04."""

        async def play(world: Clockwork) -> None:
            world.write(lambda tx: tx.schedules.disable(HOURLY.key, "ada", world.now))
            await world.at(hour(3) + 5)
            assert world.fires == []
            world.write(lambda tx: tx.schedules.enable(HOURLY.key, "ada", world.now))
            await world.look()
            assert world.fires == []
            await world.at(hour(4))
            assert world.fires == [hour(4)]

        live(play, HOURLY)

    def test_a_store_that_was_brought_back_makes_up_for_nothing(self) -> None:
        """R-CRON-02: what has fired since the backup is not known to it."""

        async def play(world: Clockwork) -> None:
            copy = f"{world.home}/copy.db"
            copies.copy_out(world.home, copy)
            await world.at(hour(1))
            assert world.fires == [hour(1)]
            await world._leave()
            world.pass_time(60)
            copies.raise_numbers(
                copy, copies.highest_numbers_of(world.home), Event(kind="store.restored", message=""), world.now
            )
            copies.replace_content(world.home, copy)
            await world.start()
            assert world.fires == []
            await world.at(hour(2))
            assert world.fires == [hour(2)]

        live(play, HOURLY)
