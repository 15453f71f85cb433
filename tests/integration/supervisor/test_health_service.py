"""The health service on a clock of ours: real run directories, a real store; only time is played."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.faults.stage import Stage
from tests.fleet import Fleet

from holdfast.agents.port import sign_reader
from holdfast.agents.scripted import ScriptedAgent
from holdfast.base import clock
from holdfast.base.ids import new_id
from holdfast.core.model import StopWhy, Strategy, Workspace
from holdfast.core.states import WorkspaceState
from holdfast.core.task_settings import HealthRules
from holdfast.processes.identity import identify
from holdfast.processes.port import ViewChanges
from holdfast.store.port.transaction import Ownership
from holdfast.supervisor.health.alerts import NO_FILE_CHANGED, NOT_ALL_FILES
from holdfast.supervisor.health.monitor import OVERSLEPT_BY, READ_ON_AFTER, SAVE_EVERY, HealthService
from holdfast.supervisor.health.run_facts import RunObservation
from holdfast.supervisor.ports import WatchedRun
from holdfast.workspaces.snapshots.change_detection import FoundChange


class Ward:
    """One run under watch, and a clock that stands still unless we move it."""

    def __init__(self, stage: Stage, closing: contextlib.ExitStack) -> None:
        self.ahead = 0.0
        base = clock.monotonic()
        self.stops: list[tuple[StopWhy, str]] = []
        self.context = stage.context(closing)
        self.health = HealthService(self.context, lambda: base + self.ahead)
        self.run = Path(stage.home) / "runs" / "run1"
        (self.run / "channel").mkdir(parents=True)
        for name in ("out.log", "err.log"):
            (self.run / name).touch()
        self.task_id = stage.add("true")

    def begin(
        self,
        rules: HealthRules,
        *,
        events: bool = True,
        adopted: bool = False,
        claimed: Callable[[], bool] = lambda: False,
    ) -> None:
        async def stop(why: StopWhy, reason: str) -> None:
            self.stops.append((why, reason))
            self.health.ending("run1", 5.0)

        me = identify(os.getpid())
        self.health.began(
            WatchedRun(
                run_id="run1",
                task_id=self.task_id,
                rules=rules,
                signs=sign_reader(ScriptedAgent()) if events else None,
                timeout=36000.0,
                grace=5.0,
                keeper=me,
                agent=me,
                is_adopted=adopted,
                stop=stop,
                has_claimed_result=claimed,
            )
        )

    def write(self, text: str) -> None:
        with (self.run / "out.log").open("a") as file:
            file.write(text)

    async def give_workspace(self, path: Path) -> None:
        """As the attempt makes it, before its agent is launched."""
        task = await self.context.writer.write(lambda tx: tx.tasks.claim(self.context.host_id, clock.now()))
        assert task is not None
        repo_id = task.spec.repo_id
        workspace = Workspace(
            id=new_id(),
            task_id=task.id,
            repo_id=repo_id,
            strategy=Strategy.WORKTREE,
            path=str(path),
            branch=None,
            base_commit=None,
            state=WorkspaceState.INTENDED,
            disposition=None,
        )
        ownership = Ownership(task_id=task.id, fence=task.fence, owner=self.context.host_id)
        await self.context.writer.write(lambda tx: tx.workspaces.intend(ownership, workspace, clock.now()))

    async def pass_time(self, seconds: float) -> None:
        """The machine continues: everything is looked at when it is due."""
        end = self.ahead + seconds
        while self.ahead < end:
            self.ahead = min(end, self.ahead + 1.0)
            self.health._bell.ring()
            await self.settle()

    async def until(self, fact: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
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
        made.ahead += 3600 + OVERSLEPT_BY
        made.health._bell.ring()
        await made.settle()
        await made.pass_time(8)
        assert made.stops == []
        await made.pass_time(4)
        await made.until(lambda: made.stops)
        assert [why for why, _reason in made.stops] == [StopWhy.STUCK]

    play(stage, act)


def test_a_running_run_gets_changed_thresholds(stage: Stage) -> None:
    """Config, hot reload: `stop.alarm_after` and `monitor.every` hold for runs that began before the change."""

    async def change(made: Ward, **numbers: Any) -> None:
        settings = made.context.settings
        made.context.settings = replace(settings, thresholds=replace(settings.thresholds, **numbers))
        await made.health.tick()

    async def act(made: Ward) -> None:
        await change(made, look_every=3600.0)
        made.begin(HealthRules(stuck_after=math.inf, startup_timeout=math.inf, loop_steps=0), events=False)
        await made.pass_time(10)
        watch = made.health._watches["run1"]
        assert watch.due > made.health._now() + 60
        await change(made, look_every=2.0, alarm_after=60.0)
        await made.settle()
        assert watch.due <= made.health._now() + 2
        made.health.ending("run1", 5.0)
        await made.pass_time(60)
        assert "alert.raised" not in stage.events(made.task_id)
        await made.pass_time(10)
        await made.until(lambda: "alert.raised" in stage.events(made.task_id))

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
        await made.pass_time(SAVE_EVERY - 1)
        assert not (made.run / "reading.json").exists()
        await made.pass_time(2)
        await made.until((made.run / "reading.json").exists)
        assert '"offset": 6' in (made.run / "reading.json").read_text()
        os.unlink(made.run / "reading.json")
        os.mkfifo(made.run / "reading.json.new")  # an agent that wants to hold us up
        made.write("more\n")
        await made.pass_time(SAVE_EVERY + 2)
        assert not (made.run / "reading.json").exists()

    play(stage, act)


def tool(name: str = "make", **more: object) -> str:
    return json.dumps({"holdfast": "tool", "id": 1, "name": name, **more}) + "\n"


@pytest.mark.parametrize("opens_tool", [True, False])
def test_a_run_is_not_judged_before_its_output_is_read(stage: Stage, opens_tool: bool) -> None:
    """R-TERM-04: at the end of a long log there may be a tool that explains the silence."""

    async def act(made: Ward) -> None:
        made.write("".join(f"line {number}\n" for number in range(200_000)))
        made.write(tool(deadline=3600) if opens_tool else "the end\n")
        made.begin(HealthRules(stuck_after=2.0), adopted=True)
        watch = made.health._watches["run1"]
        await made.pass_time(6)
        assert not (watch.is_behind and made.stops)
        await made.until(lambda: not watch.is_behind)
        if opens_tool:
            await made.pass_time(6)
            assert (made.stops, watch.view.told) == ([], "")
        else:
            await made.until(lambda: made.stops)

    play(stage, act)


def test_a_flood_has_one_reader_and_leaves_the_loop_to_others(stage: Stage) -> None:
    async def act(made: Ward) -> None:
        made.write("".join(f"line {number}\n" for number in range(400_000)))
        made.begin(HealthRules())
        watch, lags, looks = made.health._watches["run1"], [0.0], [0]
        look = watch.view.look

        def counted(now: float) -> ViewChanges:
            looks[0] += 1
            return look(now)

        watch.view.look = counted  # type: ignore[method-assign]
        began = clock.monotonic()
        for _hint in range(50):
            made.write("one more\n")
            made.health._note_change("run1")
            made.health._schedule(watch, made.health._now())
            before = clock.monotonic()
            await asyncio.sleep(0.005)
            lags.append(clock.monotonic() - before)
        assert looks[0] <= (clock.monotonic() - began) / READ_ON_AFTER + 2
        assert sorted(lags)[len(lags) // 2] < 0.5  # to read all of it takes longer

    play(stage, act)


@pytest.mark.parametrize("when", ["changed", "unchanged", "unknown"])
def test_files_count_also_for_an_agent_that_never_said_anything_new(stage: Stage, tmp_path: Path, when: str) -> None:
    """R-TERM-07; and what could not be looked at is not called unchanged."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "file").touch()
    for path in (work / "file", work):
        os.utime(path, (1e9, 1e9))

    async def act(made: Ward) -> None:
        if when != "unknown":
            await made.give_workspace(work)
        made.begin(HealthRules(on_stuck="notify"))
        watch = made.health._watches["run1"]
        if when == "changed":
            os.utime(work / "file", (time.time() + 60, time.time() + 60))
        made.write('{"holdfast": "event", "name": "\\ud800"}\n' * 50)
        if when == "changed":
            await made.until(lambda: watch.view.talk.progress_at is not None)
            assert "agent.stuck" not in stage.events(made.task_id)
            return
        await made.until(lambda: watch.view.told)
        (told,) = [event for event in stage.told(made.task_id) if event["kind"] == "agent.stuck"]
        assert told["reason"] == "looping"
        assert told["data"]["evidence"][-1] == (NO_FILE_CHANGED if when == "unchanged" else NOT_ALL_FILES)

    play(stage, act)


def test_an_alert_comes_with_its_event_and_goes_with_its_cause(stage: Stage) -> None:
    async def act(made: Ward) -> None:
        made.write("hello\n")
        made.begin(HealthRules(stuck_after=60.0, on_stuck="notify"))
        watch = made.health._watches["run1"]
        await made.pass_time(62)
        await made.until(lambda: "agent.stuck" in stage.events(made.task_id))
        kinds = stage.events(made.task_id)
        assert "alert.raised" in kinds
        assert [alert["key"] for alert in made.context.store.view("alerts", all=False)] == ["stuck:run1"]
        await made.until(lambda: watch.view.told)
        made.write("awake\n")
        await made.until(lambda: "agent.recovered" in stage.events(made.task_id))
        assert made.context.store.view("alerts", all=False) == []

    play(stage, act)


@pytest.mark.parametrize("how", ["claimed", "ended", "stopped", "over", "awake"])
def test_nothing_is_told_of_a_run_that_needs_no_verdict_any_more(stage: Stage, how: str) -> None:
    """What it did while its files were looked at counts."""

    async def act(made: Ward) -> None:
        made.begin(HealthRules(), claimed=lambda: how == "claimed")
        watch = made.health._watches["run1"]
        looked = made.health._find_file_change

        async def meanwhile(asked: RunObservation) -> FoundChange:
            change = await looked(asked)
            if how == "ended":
                (made.run / "exit.json").touch()
            elif how == "stopped":
                made.health.ending("run1", 5.0)
            elif how == "over":
                made.health.over("run1")
            elif how == "awake":
                made.write("something new\n")
            seen.append(change)
            return change

        seen: list[FoundChange] = []
        made.health._find_file_change = meanwhile  # type: ignore[method-assign, assignment]
        made.write('{"holdfast": "event", "name": "tick"}\n' * 50)
        await made.until(lambda: seen)
        await made.until(lambda: not made.health.tasks)
        assert "agent.stuck" not in stage.events(made.task_id)
        assert (made.stops, watch.view.told) == ([], "")

    play(stage, act)
