"""Many trashed workspaces: the cost of the clean-up grows with their number, not with its square."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from holdfast.base import clock
from holdfast.core.dispatch.pressure import Pressure
from holdfast.core.model import Strategy, Workspace
from holdfast.core.states import WorkspaceState
from holdfast.supervisor.context import Context, SharedState
from holdfast.supervisor.settings import SupervisorSettings
from holdfast.supervisor.workspaces.cleanup import CleanupService


def test_many_are_deleted_with_few_looks() -> None:
    """R-TREE-08: 3,000 of them took 47 s of CPU, nearly all for reading the list again after each one."""
    left = {
        str(number): Workspace(
            id=str(number), task_id="t", repo_id="r", strategy=Strategy.WORKTREE, path="/none", branch=None,
            base_commit=None, state=WorkspaceState.TRASHED, disposition="clean",
        )
        for number in range(200)
    }  # fmt: skip
    looks = 0

    def to_clean(_now: object) -> list[Workspace]:
        nonlocal looks
        looks += 1
        return list(left.values())

    workspaces = SimpleNamespace(
        to_clean=to_clean, repo=lambda _id: None, move=lambda workspace, *_rest: left.pop(workspace.id)
    )
    tx = SimpleNamespace(workspaces=workspaces, tasks=SimpleNamespace(get=lambda _id: SimpleNamespace(spec=None)))

    async def write(operation: Callable[[Any], Any]) -> Any:
        return operation(tx)

    async def delete_trash(_workspace: Workspace) -> None:
        await asyncio.sleep(0)

    context = SimpleNamespace(
        shared=SharedState(),
        writer=SimpleNamespace(write=write),
        clock=clock.now,
        bell=SimpleNamespace(ring=lambda: None),
        settings=SupervisorSettings(agents=1),
        ports=SimpleNamespace(
            strategy_of=lambda _spec: SimpleNamespace(delete_trash=delete_trash),
            pressure=lambda: Pressure(memory=None, load=None, stall=None, disk=None),
        ),
    )

    async def all_of_them() -> None:
        cleanup = CleanupService(cast(Context, context))
        await cleanup.tick()
        await cleanup.wait_idle(30)

    asyncio.run(all_of_them())
    assert not left
    assert looks < 50, looks
