"""The health service on a clock of ours: real run directories, a real store; only time is played."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.faults.stage import Stage
from tests.fleet import Fleet

from holdfast import clock
from holdfast.agents.scripted import ScriptedAgent
from holdfast.core.model import StopWhy
from holdfast.core.rules import HealthRules
from holdfast.processes.identity import identify
from holdfast.supervisor.context import Patient
from holdfast.supervisor.health import ABSENT, SAVE_EVERY, Health


class Ward:
    """One run under watch, and a clock that stands still unless we move it."""

    def __init__(self, stage: Stage, closing: contextlib.ExitStack) -> None:
        self.ahead = 0.0
        base = clock.monotonic()
        self.stops: list[tuple[StopWhy, str]] = []
        self.health = Health(stage.context(closing), lambda: base + self.ahead)
        self.run = Path(stage.home) / "runs" / "run1"
        (self.run / "channel").mkdir(parents=True)
        for name in ("out.log", "err.log"):
            (self.run / name).touch()
        self.task_id = stage.add("true")

    def begin(self, rules: HealthRules, *, events: bool = True) -> None:
        async def stop(why: StopWhy, reason: str) -> None:
            self.stops.append((why, reason))
            self.health.ending("run1", 5.0)

        me = identify(os.getpid())
        self.health.began(
            Patient(
                run_id="run1",
                task_id=self.task_id,
                rules=rules,
                sign=ScriptedAgent().sign if events else None,
                timeout=36000.0,
                grace=5.0,
                keeper=me,
                agent=me,
                adopted=False,
                stop=stop,
            )
        )

    def write(self, text: str) -> None:
        with (self.run / "out.log").open("a") as file:
            file.write(text)

    async def pass_time(self, seconds: float) -> None:
        """The machine goes on: everything is looked at when it is due."""
        end = self.ahead + seconds
        while self.ahead < end:
            self.ahead = min(end, self.ahead + 1.0)
            self.health._bell.ring()
            await self.settle()

    async def until(self, fact: Callable[[], object]) -> None:
        async with asyncio.timeout(30):
            while not fact():  # noqa: ASYNC110 - a fact rings no bell
                await asyncio.sleep(0.01)

    async def settle(self) -> None:
        for _turn in range(5):
            await asyncio.sleep(0.005)


@pytest.fixture
def stage(fleet: Fleet) -> Stage:
    return Stage(fleet)


@asynccontextmanager
async def ward(stage: Stage) -> AsyncIterator[Ward]:
    with contextlib.ExitStack() as closing:
        made = Ward(stage, closing)
        running = asyncio.create_task(made.health.run())
        try:
            yield made
        finally:
            running.cancel()
            await asyncio.wait([running])
            made.health.close()


def play(stage: Stage, act: Callable[[Ward], object]) -> None:
    async def whole() -> None:
        async with ward(stage) as made:
            await act(made)  # type: ignore[misc]  # each is a coroutine function

    asyncio.run(whole())


def test_a_supervisor_that_stood_still_looks_twice(stage: Stage) -> None:
    """R-TERM-04: frozen together with its agents for an hour, it does not hold that hour against them."""

    async def act(made: Ward) -> None:
        made.write("hello\n")
        made.begin(HealthRules(stuck_after=60.0))
        await made.pass_time(50)
        made.ahead += 3600 + ABSENT
        made.health._bell.ring()
        await made.settle()
        await made.pass_time(8)
        assert made.stops == []
        await made.pass_time(4)
        await made.until(lambda: made.stops)
        assert [why for why, _reason in made.stops] == [StopWhy.STUCK]

    play(stage, act)


def test_without_an_absence_the_threshold_holds(stage: Stage) -> None:
    async def act(made: Ward) -> None:
        made.write("hello\n")
        made.begin(HealthRules(stuck_after=60.0))
        await made.pass_time(59)
        assert made.stops == []
        await made.pass_time(2)
        await made.until(lambda: made.stops)
        assert [why for why, _reason in made.stops] == [StopWhy.STUCK]
        await made.pass_time(10)
        await made.until(lambda: "alert.raised" in stage.events(made.task_id))  # there is nobody who would end it
        await made.pass_time(50)
        assert len(made.stops) == 1
        kinds = stage.events(made.task_id)
        assert (kinds.count("agent.stuck"), kinds.count("alert.raised")) == (1, 1)

    play(stage, act)


def test_the_channel_is_heard_and_counts_as_life(stage: Stage) -> None:
    """R-TERM-12: a heartbeat or report is life; whoever wants to read the channel is called."""
    heard: list[str] = []

    async def act(made: Ward) -> None:
        made.health.on_channel = heard.append
        made.begin(HealthRules(startup_timeout=30.0, stuck_after=30.0))
        await made.pass_time(25)
        (made.run / "channel" / "heartbeat").touch()
        await made.until(lambda: heard)
        await made.pass_time(25)
        assert made.stops == []
        await made.pass_time(10)
        await made.until(lambda: made.stops)
        assert len(made.stops) == 1

    play(stage, act)
    assert set(heard) == {"run1"}


def test_what_was_read_is_kept_now_and_then(stage: Stage) -> None:
    async def act(made: Ward) -> None:
        made.begin(HealthRules())
        made.write("hello\n")
        await made.until(lambda: made.health._watches["run1"].is_unsaved)
        await made.pass_time(SAVE_EVERY - 2)
        assert not (made.run / "reading.json").exists()
        await made.pass_time(4)
        await made.until((made.run / "reading.json").exists)
        assert '"offset": 6' in (made.run / "reading.json").read_text()
        os.unlink(made.run / "reading.json")
        os.mkfifo(made.run / "reading.json.new")  # an agent that wants to hold us up
        made.write("more\n")
        await made.pass_time(SAVE_EVERY + 2)
        assert not (made.run / "reading.json").exists()

    play(stage, act)
