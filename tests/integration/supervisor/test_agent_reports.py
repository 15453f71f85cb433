"""How soon reports are heard, and how often they are told: a real attempt with a real agent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.faults.stage import Stage
from tests.fleet import Fleet

from holdfast.supervisor.runs import agent_reports
from holdfast.supervisor.runs.attempt import Attempt
from holdfast.supervisor.runs.attempts import Attempts
from holdfast.supervisor.services import agent_reports as reports
from holdfast.supervisor.services.agent_reports import ReportService

SAY = (
    """printf '{"token":"%s","report":"REPORT","message":"%s"}\\n' """
    """"$HOLDFAST_RUN_TOKEN" "$i" >> "$HOLDFAST_CHANNEL/reports\""""
)
PATIENCE = 60.0


@pytest.fixture
def stage(fleet: Fleet) -> Stage:
    return Stage(fleet)


@contextlib.asynccontextmanager
async def attempt_at_work(stage: Stage, script: str) -> AsyncIterator[tuple[Attempt, ReportService]]:
    """One task, driven as the supervisor would, while reports are listened to."""
    task_id = stage.add(script)
    with contextlib.ExitStack() as closing:
        context = stage.context(closing)
        attempts = Attempts(context)
        task = await context.writer.write(lambda tx: tx.tasks.claim(context.host_id, context.clock()))
        assert task is not None
        attempts.start(task)
        listening_to = ReportService(attempts, context.clock)
        running = asyncio.create_task(listening_to.run())
        try:
            await until(
                lambda: (
                    attempts.get(task_id) is not None and _attempt(attempts, task_id).runs[0].report_reader is not None
                )
            )
            yield _attempt(attempts, task_id), listening_to
            async with asyncio.timeout(PATIENCE):
                await attempts.wait_all()
        finally:
            running.cancel()
            await asyncio.wait([running])


def _attempt(attempts: Attempts, task_id: str) -> Attempt:
    found = attempts.get(task_id)
    assert found is not None
    return found


async def until(fact: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not fact():  # noqa: ASYNC110 - facts of other processes
            await asyncio.sleep(0.01)


def test_a_hint_is_followed_at_once_and_only_for_its_run(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """`changed` is what a watcher of files calls; the slow look at everything only backs it up."""
    monkeypatch.setattr(reports, "LOOK_EVERY", 1000.0)
    said, go = stage.fleet.root / "said", stage.fleet.root / "go"
    script = f"{SAY.replace('REPORT', 'complete')}; touch {said}; until [ -e {go} ]; do sleep 0.1; done"

    async def work() -> None:
        async with attempt_at_work(stage, script) as (attempt, listening_to):
            await until(said.exists)
            listener = attempt.runs[0].report_reader
            assert listener is not None
            await listening_to.look({"another run"})
            assert listener.claim is None
            listening_to.changed(listener.run_id)
            await until(lambda: listener.claim)
            go.touch()

    asyncio.run(work())
    [task] = stage.tasks()
    assert task["state"] == "completed"


def test_a_flood_of_progress_is_one_event_now_and_then(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest is told when its time has come, and the last one when the agent has ended."""
    monkeypatch.setattr(reports, "LOOK_EVERY", 0.02)
    monkeypatch.setattr(agent_reports, "PROGRESS_EVERY", 0.4)
    script = f"i=0; while [ $i -lt 60 ]; do i=$((i+1)); {SAY.replace('REPORT', 'progress')}; sleep 0.02; done"

    async def work() -> None:
        async with attempt_at_work(stage, script):
            pass

    asyncio.run(work())
    [task] = stage.tasks()
    told = [int(event["data"]["message"]) for event in stage.told(str(task["id"])) if event["kind"] == "agent.progress"]
    assert told == sorted(set(told))
    assert 3 <= len(told) <= 12  # about 1.2 s or more, the last one included
    assert told[-1] == 60


def test_an_idle_agent_costs_one_stat(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file is opened and nothing is written while nothing changed."""
    monkeypatch.setattr(reports, "LOOK_EVERY", 0.01)
    go = tmp_path / "go"
    script = f"{SAY.replace('REPORT', 'progress')}; until [ -e {go} ]; do sleep 0.1; done"
    script = f"i=once; {script}"

    async def work() -> None:
        async with attempt_at_work(stage, script) as (attempt, listening_to):
            listener = attempt.runs[0].report_reader
            assert listener is not None
            await until(lambda: stage.events(attempt.task.id).count("agent.progress"))
            await until(lambda: not listener.has_news())  # its event is there before the listener knows that it is
            heard = 0
            hear = listener.hear

            async def counted(*, last: bool = False) -> None:
                nonlocal heard
                heard += not last
                await hear(last=last)

            monkeypatch.setattr(listener, "hear", counted)
            for _ in range(20):
                await listening_to.look()
            assert heard == 0
            go.touch()

    asyncio.run(work())
