"""The service that keeps checkpoints, on a clock of ours: a real store, git and agent; only time is played."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.faults.stage import Stage
from tests.fleet import Fleet
from tests.integration.supervisor.test_agent_reports import until

from holdfast.base import clock
from holdfast.base.errors import WorkspaceProblem
from holdfast.core.model import PauseReason, Task
from holdfast.core.runs.outcome import Outcome, Verdict
from holdfast.core.runs.policy import Decision, PolicyAction
from holdfast.processes.observe.process_tree import read_activity
from holdfast.store.port.transaction import Ownership, Transaction
from holdfast.store.port.workspaces import Checkpoint
from holdfast.supervisor.context import Context
from holdfast.supervisor.dispatch.holds import HoldUpkeep
from holdfast.supervisor.dispatch.resume import Resumes
from holdfast.supervisor.runs.attempts import Attempts
from holdfast.supervisor.services import checkpoints
from holdfast.supervisor.services.checkpoints import CheckpointService
from holdfast.supervisor.workspaces.prepare import ensure_workspace


@pytest.fixture
def stage(fleet: Fleet) -> Stage:
    return Stage(fleet)


class Desk:
    """One agent that writes when it is told to, and the service that watches it."""

    def __init__(self, context: Context, service: CheckpointService, task_id: str, root: Path) -> None:
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
        service = CheckpointService(context, lambda: base + (desks[0].ahead if desks else 0.0))
        context.services.checkpoints = service
        context.ports = replace(context.ports, activity=read_activity)
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
    strategy: Any = context.ports.strategy_of(None)  # type: ignore[arg-type]  # the stage has one for all
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
            strategy: Any = desk.context.ports.strategy_of(None)  # type: ignore[arg-type]  # the stage has one for all
            take, sizes = strategy.checkpoint, iter(range(1000, 2000))

            async def too_large(*_arguments: Any) -> object:
                raise WorkspaceProblem(f"it holds {next(sizes)} bytes")

            strategy.checkpoint = too_large
            for _ in range(3):
                await desk.say("date +%N > two.txt")
                await desk.look(31.0)
            assert stage.events(desk.task_id).count("checkpoint.failed") == 2, "a tree that grows is told once"
            strategy.checkpoint = take
            await desk.say("date +%N > two.txt")
            await desk.look(31.0)
            assert (await desk.last()).number == 3  # type: ignore[union-attr]  # it is there
            (run_id,) = desk.service._watches
            desk.service.asked(run_id, "a note")
            await desk.look(0.0)
            assert (await desk.last()).why == "asked by its agent: a note"  # type: ignore[union-attr]  # it is there

    asyncio.run(work())


def test_an_agent_that_asks_all_the_time_gets_one_now_and_then(stage: Stage, tmp_path: Path) -> None:
    """R-RES-11: each costs the machine something and leaves an event; nothing may continue without a bound."""

    async def work() -> None:
        async with at_work(stage, tmp_path) as desk:
            (run_id,) = desk.service._watches
            for number in range(5):
                desk.service.asked(run_id, f"note {number}")
                await desk.look(0.0)
            assert desk.taken == 1
            assert 0 < desk.service._until_due() <= 10, "the last word is not forgotten"
            await desk.look(10.0)
            assert (await desk.last()).why == "asked by its agent: note 4"  # type: ignore[union-attr]  # it is there

    asyncio.run(work())


def test_nobody_who_cancels_a_task_waits_for_a_checkpoint(stage: Stage, tmp_path: Path) -> None:
    """R-RES-11, R-TERM-11: neither for the last one of its run, nor for the room that dropped ones give back."""

    async def work() -> None:
        async with at_work(stage, tmp_path) as desk:
            strategy: Any = desk.context.ports.strategy_of(None)  # type: ignore[arg-type]  # the stage has one for all
            entered, take = asyncio.Event(), strategy.checkpoint

            async def stuck(*_arguments: Any) -> object:
                entered.set()
                await asyncio.sleep(3600)
                return None

            strategy.checkpoint = stuck
            (run_id,) = desk.service._watches
            subject = desk.service._watches[run_id].subject
            ending = asyncio.create_task(
                desk.service.save_at_end(subject.task, subject.ownership, run_id, None, "requeued")
            )
            await entered.wait()
            desk.service.skip_wait_for_run(run_id)
            async with asyncio.timeout(60):
                await ending
            strategy.checkpoint = take

            held = asyncio.Event()

            class Reclaimer:
                async def reclaim(self, *_arguments: Any) -> bool:
                    held.set()
                    await asyncio.sleep(3600)
                    return True

                def checkpoint_refs(self, _repo: Any) -> dict[str, str]:
                    return {"refs/checkpoint/gone/1": "0" * 40}

            desk.context.ports = replace(desk.context.ports, reclaimer=Reclaimer())
            desk.service._unpruned = 99
            pruning = asyncio.create_task(desk.service._prune())
            await held.wait()
            desk.service.over("another run")
            async with asyncio.timeout(60):
                await pruning
            assert desk.service._unpruned == 99, "it is done later"
            assert desk.service._pruning is None

    asyncio.run(work())


def test_a_checkpoint_that_hangs_does_not_hold_a_settle(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-RES-11: the checkpoint under way is of the same run, and its thread cannot be ended."""
    monkeypatch.setattr(checkpoints, "AT_END", 0.2)

    async def work() -> None:
        async with at_work(stage, tmp_path) as desk:
            (run_id,) = desk.service._watches
            subject, hanging = desk.service._watches[run_id].subject, asyncio.Event()
            current = asyncio.create_task(hanging.wait())
            desk.service._current = run_id, current  # type: ignore[assignment]  # it only waits
            async with asyncio.timeout(30):
                await desk.service.save_at_end(subject.task, subject.ownership, run_id, None, "requeued")
            assert not current.done()
            assert stage.events(desk.task_id).count("checkpoint.failed") == 1
            desk.service._current = None
            hanging.set()
            await current

    asyncio.run(work())


def test_what_is_due_does_not_spend_a_resume_on_a_checkpoint_that_is_gone(stage: Stage) -> None:
    """R-RES-06: it was to go back when it was paused again; meanwhile what holds its checkpoints vanished."""
    task_id = stage.add("true")

    async def work() -> None:
        with contextlib.ExitStack() as closing:
            context = stage.context(closing)
            now = context.clock()

            def pause(tx: Transaction) -> None:
                task = tx.tasks.claim(context.host_id, now)
                assert task is not None
                assert task.owner is not None
                ownership = Ownership(task_id=task.id, fence=task.fence, owner=task.owner)
                kept = Checkpoint(
                    task_id=task.id, number=1, repo_id=task.spec.repo_id, workspace_id="ws", ref="refs/checkpoint/x/1",
                    commit="0" * 40, base=None, key="k", files=1, why="a test",
                )  # fmt: skip
                tx.checkpoints.save(ownership, kept, 5, now)
                tx.checkpoints.choose(task.id, 1, "ann", now)
                verdict = Verdict(outcome=Outcome.PAUSED, reason="a test")
                past = Decision(
                    action=PolicyAction.PAUSE, reason="a test", pause=PauseReason.RATE_LIMIT, resume_after=now.wall - 1
                )
                tx.tasks.settle(ownership, None, verdict, past, None, now)

            await context.writer.write(pause)
            await Resumes(context, HoldUpkeep(context)).tick()

    asyncio.run(work())
    task = stage.task(task_id)
    assert (task["state"], task["resume_attempts"], task["resume_after"]) == ("paused", 0, None)
    assert "is gone" in task["reason"]


@asynccontextmanager
async def with_checkpoint(stage: Stage) -> AsyncIterator[tuple[Context, Task, Ownership, Path]]:
    """A claimed task with a workspace, of which a checkpoint is kept."""
    stage.add("true")
    with contextlib.ExitStack() as closing:
        context = stage.context(closing)
        task = await context.writer.write(lambda tx: tx.tasks.claim(context.host_id, context.clock()))
        assert task is not None
        assert task.owner is not None
        ownership = Ownership(task_id=task.id, fence=task.fence, owner=task.owner)
        workspace = await ensure_workspace(context, task, ownership)
        await CheckpointService(context).save_at_end(task, ownership, None, None, "a test")
        assert await context.writer.write(lambda tx: tx.checkpoints.last(task.id)) is not None
        yield context, task, ownership, Path(workspace.path)


def test_a_workspace_that_is_there_again_stays_as_it_is(stage: Stage) -> None:
    """R-RES-11: it was lost for a while (a disk that was not mounted), and its last checkpoint chosen in its place:
    what lies there is newer, and nobody asked for another state."""

    async def work() -> None:
        async with with_checkpoint(stage) as (context, task, ownership, tree):
            await context.writer.write(
                lambda tx: tx.checkpoints.choose(task.id, 1, "us", context.clock(), automatic=True)
            )
            (tree / "newer.txt").write_text("newer")
            await ensure_workspace(context, task, ownership)
            assert (tree / "newer.txt").read_text() == "newer"
            assert await context.writer.write(lambda tx: tx.checkpoints.chosen(task.id)) is None

    asyncio.run(work())


def test_commits_beyond_a_checkpoint_are_saved_though_the_directory_is_gone(stage: Stage) -> None:
    """R-RES-11: an operator goes back, and the branch moves with HEAD: what it held has a name before that."""

    async def work() -> None:
        async with with_checkpoint(stage) as (context, task, ownership, tree):
            (tree / "later.txt").write_text("later")
            stage.fleet.git("add", "later.txt", cwd=tree)
            stage.fleet.git("commit", "--quiet", "-m", "later", cwd=tree)
            beyond = stage.fleet.git("rev-parse", "HEAD", cwd=tree)
            shutil.rmtree(tree)
            await context.writer.write(lambda tx: tx.checkpoints.choose(task.id, 1, "ann", context.clock()))
            await ensure_workspace(context, task, ownership)
            assert stage.fleet.git("rev-parse", "HEAD", cwd=tree) != beyond
            [salvage] = context.store.view("salvages", task=task.id)
            shadow = Path(stage.home) / "shadows" / f"{task.spec.repo_id}.git"
            assert beyond in stage.fleet.git("rev-list", str(salvage["commit"]), cwd=shadow).split()

    asyncio.run(work())


def test_a_stop_ends_one_that_is_under_way(stage: Stage, tmp_path: Path) -> None:
    """R-RES-11: nobody waits for it, nothing is told, and the next one is whole."""

    async def work() -> None:
        async with at_work(stage, tmp_path) as desk:
            strategy: Any = desk.context.ports.strategy_of(None)  # type: ignore[arg-type]  # the stage has one for all
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
            async with asyncio.timeout(60):
                await looking
            assert desk.service.tasks == []
            assert await desk.last() is None
            assert "checkpoint.failed" not in stage.events(desk.task_id)
            strategy.checkpoint = take

    asyncio.run(work())
