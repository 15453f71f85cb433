"""The service that keeps checkpoints, on a clock of ours: a real store, git and agent; only time is played."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.faults.stage import Stage
from tests.fleet import Fleet
from tests.integration.test_listening import until

from holdfast import clock
from holdfast.processes.trees import activity
from holdfast.store.checkpointing import Checkpoint
from holdfast.supervisor.attempts import Attempts
from holdfast.supervisor.checkpoints import Checkpoints
from holdfast.supervisor.context import Context


@pytest.fixture
def stage(fleet: Fleet) -> Stage:
    return Stage(fleet)


class Desk:
    """One agent that writes when it is told to, and the service that watches it."""

    def __init__(self, context: Context, service: Checkpoints, task_id: str, root: Path) -> None:
        self.context, self.service, self.task_id, self._root = context, service, task_id, root
        self.ahead = 0.0
        self.taken = 0
        self._said = 0

    async def tree(self) -> Path:
        workspace = await self.context.writer.write(lambda tx: tx.workspaces.current(self.task_id))
        assert workspace is not None
        return Path(workspace.path)

    async def say(self, words: str) -> None:
        """Have the agent run a line of shell."""
        self._said += 1
        (self._root / "words.new").write_text(f"{words}\ntouch {self._root}/done{self._said}\n")
        (self._root / "words.new").rename(self._root / f"words{self._said}")
        await until((self._root / f"done{self._said}").exists)

    async def look(self, seconds: float) -> None:
        self.ahead += seconds
        await self.service.look()

    async def last(self) -> Checkpoint | None:
        return await self.context.writer.write(lambda tx: tx.checkpoints.last(self.task_id))


@asynccontextmanager
async def at_work(stage: Stage, root: Path) -> AsyncIterator[Desk]:
    loop = f"i=1; while [ ! -e {root}/end ]; do if [ -e {root}/words$i ]; then . {root}/words$i; i=$((i+1)); fi; "
    task_id = stage.add(f"{loop} sleep 0.02; done")
    with contextlib.ExitStack() as closing:
        context = stage.context(closing)
        base = clock.monotonic()
        desks: list[Desk] = []
        service = Checkpoints(context, lambda: base + (desks[0].ahead if desks else 0.0))
        context.checkpoints = service
        context.activity = activity
        counted(context, desks)
        attempts = Attempts(context)
        task = await context.writer.write(lambda tx: tx.tasks.claim(context.host_id, context.clock()))
        assert task is not None
        desks.append(Desk(context, service, task_id, root))
        attempts.start(task)
        try:
            await until(lambda: service._watches)
            yield desks[0]
        finally:
            (root / "end").touch()
            async with asyncio.timeout(60):
                await attempts.wait_all()


def counted(context: Context, desks: list[Desk]) -> None:
    strategy: Any = context.strategy_of(None)  # type: ignore[arg-type]  # the stage has one for all
    take = strategy.checkpoint

    async def checkpoint(*arguments: Any) -> object:
        desks[0].taken += 1
        return await take(*arguments)

    strategy.checkpoint = checkpoint


def test_it_keeps_what_changes_and_is_told_once_of_what_it_cannot(stage: Stage, tmp_path: Path) -> None:
    """R-RES-11: not before its time; not when nothing changed; once more when something did; one event per episode."""

    async def work() -> None:
        async with at_work(stage, tmp_path) as desk:
            await desk.say("echo one > one.txt")
            await desk.look(10.0)
            assert desk.taken == 0, "not due yet"
            await desk.look(30.0)
            first = await desk.last()
            assert first is not None
            assert (first.number, first.why, first.files) == (1, "periodically", 1)
            await desk.look(31.0)
            assert desk.taken == 1, "nothing changed: git is not even asked"
            await desk.say("git add one.txt")
            await desk.look(31.0)
            assert (await desk.last()).number == 2  # type: ignore[union-attr]  # it is there
            tree = await desk.tree()
            nested = tree / "nested"
            await desk.say("git init -q nested && touch nested/file")
            for _ in range(3):
                await desk.say("date +%N > two.txt")
                await desk.look(31.0)
            assert nested.exists()
            assert stage.events(desk.task_id).count("checkpoint.failed") == 1
            await desk.say("rm -rf nested")
            await desk.look(31.0)
            assert (await desk.last()).number == 3  # type: ignore[union-attr]  # it is there
            (run_id,) = desk.service._watches
            desk.service.asked(run_id, "a note")
            await desk.look(0.0)
            assert (await desk.last()).why == "asked by its agent: a note"  # type: ignore[union-attr]  # it is there

    asyncio.run(work())


def test_a_stop_ends_one_that_is_under_way(stage: Stage, tmp_path: Path) -> None:
    """R-RES-11: nobody waits for it, nothing is told, and the next one is whole."""

    async def work() -> None:
        async with at_work(stage, tmp_path) as desk:
            strategy: Any = desk.context.strategy_of(None)  # type: ignore[arg-type]  # the stage has one for all
            entered, take = asyncio.Event(), strategy.checkpoint

            async def stuck(*_arguments: Any) -> object:
                entered.set()
                await asyncio.sleep(3600)
                return None

            strategy.checkpoint = stuck
            await desk.say("echo one > one.txt")
            looking = asyncio.create_task(desk.look(40.0))
            await entered.wait()
            (run_id,) = desk.service._watches
            desk.service.over(run_id)
            async with asyncio.timeout(20):
                await looking
            assert desk.service.tasks == []
            assert await desk.last() is None
            assert "checkpoint.failed" not in stage.events(desk.task_id)
            strategy.checkpoint = take

    asyncio.run(work())
