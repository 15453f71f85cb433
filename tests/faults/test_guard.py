"""The guard of a workspace, left in every way there is (R-TREE-03)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.faults.conftest import assert_no_process
from tests.faults.stage import Stage, cleanup_bound
from tests.fleet import Fleet
from tests.harness.await_walker import Ended, walk

from holdfast.base.concurrency import run_in_thread
from holdfast.core.runs.outcome import Outcome, Verdict
from holdfast.core.states import WorkspaceState
from holdfast.store.port.transaction import Ownership
from holdfast.supervisor.context import Context
from holdfast.supervisor.runs.settle import settle
from holdfast.supervisor.workspaces.cleanup import CleanupService
from holdfast.supervisor.workspaces.guard import WorkspaceGuard
from holdfast.supervisor.workspaces.prepare import ensure_workspace
from holdfast.supervisor.workspaces.sweep import SweepService

CANCELLED = Verdict(outcome=Outcome.CANCELLED, reason="cancelled by tess: enough")


@pytest.fixture
def stage(fleet: Fleet) -> Stage:
    return Stage(fleet)


async def work(context: Context, way: str) -> str:
    """A task with a workspace, guarded, and the guard left by one of the ways; the path of its workspace."""
    task = await context.writer.write(lambda tx: tx.tasks.claim(context.host_id, context.clock()))
    assert task is not None
    assert task.owner is not None
    ownership = Ownership(task_id=task.id, fence=task.fence, owner=task.owner)
    path = ""
    with contextlib.suppress(ZeroDivisionError):
        async with WorkspaceGuard(context, task.id) as guard:
            path = (await ensure_workspace(context, task, ownership)).path
            if way == "fails, and is tried again":
                raise ZeroDivisionError
            assert await settle(context, task, ownership, None, CANCELLED)
            assert os.path.isdir(path)  # it goes when the guard is left, and not before
            waiting = await CleanupService(context)._waiting()
            assert path not in [one.path for one in waiting]  # nobody else puts it away meanwhile
            if way == "kept":
                guard.keep()
            if way == "fails after its end":
                raise ZeroDivisionError
            if way == "git is missing":
                await run_in_thread(
                    subprocess.run, ["git", "pack-refs", "--all"], cwd=Path(context.home).parent / "repo", check=True
                )
                os.environ["PATH"] = context.home
            if way == "it vanished":
                shutil.rmtree(path)
                shutil.rmtree(Path(context.home).parent / "repo" / ".git" / "worktrees")
    return path


WAYS = {
    "returns": ("trashed", None),
    "fails after its end": ("trashed", "ZeroDivisionError: "),
    "it vanished": ("gone", None),
    "kept": ("ready", None),
    "fails, and is tried again": ("ready", None),
    "git is missing": ("trashed", None),
}


def test_every_way_out_of_a_guard(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-TREE-03: it cleans on every way out of a task that has ended, `keep()` disarms it, what is missing is no
    trouble; its event says how, how long, and what cut the work short. R-TREE-04: without git, too."""
    found: dict[str, tuple[dict[str, Any], str]] = {}
    monkeypatch.setenv("PATH", os.environ["PATH"])  # one of the ways changes it

    async def every_way() -> None:
        with contextlib.ExitStack() as closing:
            context = stage.context(closing)
            for way in WAYS:
                task_id = stage.add("true")
                path = await work(context, way)
                assert not context.shared.in_hand
                found[way] = (stage.task(task_id), path)

    asyncio.run(every_way())
    for way, (state, interrupted) in WAYS.items():
        task, path = found[way]
        assert task["workspace"]["state"] == state, way
        assert os.path.isdir(path) == (state == WorkspaceState.READY), way
        assert (path in stage.fleet.worktrees()) == (state == WorkspaceState.READY), way
        events = [event for event in stage.told(task["id"]) if event["kind"] in ("workspace.trashed", "workspace.gone")]
        if state == WorkspaceState.READY:
            assert events == [], way
            continue
        [event] = events
        without = ", without git" if way == "git is missing" else ""
        assert event["data"]["method"] == ("rename" if state == "trashed" else "nothing was there") + without
        assert 0 < event["data"]["duration_ms"] < cleanup_bound() * 1000
        assert event["data"]["cancellation_reason"] == (interrupted or CANCELLED.reason), way


def test_a_guard_that_is_left_by_a_cancellation_at_any_await(stage: Stage) -> None:
    """R-TREE-01, R-TREE-03: cancelled anywhere, and again during the clean-up: a task that has ended has no directory
    and no git entry any more when the guard is left; one that has not keeps both."""
    current: list[str] = []

    def make() -> Any:
        current[:] = [stage.add("true")]
        return whole()

    async def whole() -> None:
        with contextlib.ExitStack() as closing:
            await work(stage.context(closing), "returns")

    def check(ended: Ended[None]) -> None:
        assert ended.cleanup_seconds < cleanup_bound()
        stage.assert_put_away_if_ended(current[0])
        assert_no_process(stage.fleet)

    walk(make, check, second=True, most=2, apart=True)


def test_what_somebody_did_since_the_ending_is_saved_too(stage: Stage) -> None:
    """The ending saved its work, and nobody put the workspace away: a crash, a failure. It may be a week later."""
    task_id = stage.add("true")

    async def later() -> str:
        with contextlib.ExitStack() as closing:
            context = stage.context(closing)
            path = await work(context, "kept")
            Path(path, "work").write_text("precious")
            cleanup = CleanupService(context)
            await cleanup.tick()
            await cleanup.wait_idle(cleanup_bound())
            return path

    path = asyncio.run(later())
    assert not os.path.exists(path)
    [saved] = stage.task(task_id)["salvages"]
    assert saved["files"] == 1


def test_a_sweep_waits_for_a_guard_without_haste(stage: Stage) -> None:
    """What a guard has in hand is not the clean-up's: its teardown may take minutes, and a sweep waits for its end."""
    stage.add("true")

    async def sweep() -> int:
        with contextlib.ExitStack() as closing:
            context = stage.context(closing)
            await work(context, "kept")
            found = (await context.writer.write(lambda tx: tx.workspaces.to_clean(context.clock())))[0]
            context.shared.in_hand.add(found.task_id)
            looks, write = 0, context.writer.write

            async def counted(operation: Any) -> Any:
                nonlocal looks
                looks += 1
                return await write(operation)

            context.writer.write = counted  # type: ignore[method-assign,assignment]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await SweepService(context, CleanupService(context))._wait_for_cleanup(frozenset({found.id}))
            return looks

    assert asyncio.run(sweep()) < 20
