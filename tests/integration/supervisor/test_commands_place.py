"""The place where set-up commands, gates and teardown commands run, without any engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.integration.supervisor.played import World

from holdfast.base.errors import LaunchError
from holdfast.core.model import Strategy, Workspace
from holdfast.core.runs.retry_budgets import RetryLimits
from holdfast.core.states import WorkspaceState
from holdfast.core.task_settings import WorkspaceRules
from holdfast.core.workflows.result import GateResult
from holdfast.core.workflows.workflow import Stage
from holdfast.store.port.transaction import Ownership, Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.runs import stages
from holdfast.supervisor.workspaces.setup import set_up_workspace, tear_down_workspace

INSIDE = "in a container"
ON_HOST = [strategy for strategy in Strategy if strategy not in (Strategy.CONTAINER, Strategy.NONE)]


class Recorder:
    """The port of set-up commands, and the port of containers: records what is run, and where."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, object]] = []

    def command_runner(self, _spec: object, _workspace: object) -> str:
        return INSIDE

    async def set_up(self, _workspace: object, *rest: object) -> None:
        self.ran.append(("setup", rest[-1]))

    async def tear_down(self, _workspace: object, *rest: object) -> None:
        self.ran.append(("teardown", rest[-1]))

    async def gate(self, _workspace: object, *rest: object) -> GateResult:
        self.ran.append(("gate", rest[-1]))
        return GateResult(command="x", passed=True, how="exited with 0")

    def cut_short(self, _task_id: str) -> None:
        return


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(stages, "_record_gate_start", lambda *_asked: None)
    made = World(RetryLimits())
    yield made
    asyncio.run(made.close())


def play(world: World, chain: list[Strategy], *, from_parent: bool = True) -> tuple[list[tuple[str, object]], str]:
    """Run all three kinds of command for the last task of a chain of subtasks. Return what was run and where, and the
    refusal of the set-up."""
    recorder, task_id, refusal = Recorder(), "", ""
    rules = WorkspaceRules(setup=("make setup",), teardown=("make clean",))
    stage = Stage(name="one", agent="played", gate="make test")
    for strategy in chain:
        above = task_id or None
        task_id = world.add(
            strategy=strategy, workspace=rules, parent_id=above, base_from_parent=from_parent and above is not None
        )

    async def write(operation: Callable[[Transaction], Any]) -> Any:
        return world.write(operation)

    ports = SimpleNamespace(workspace_setup=recorder, agent_containers=recorder, environment=lambda _wanted: {})
    shared = SimpleNamespace(home=world.home, ports=ports, writer=SimpleNamespace(write=write), clock=lambda: world.now)
    context = cast(Context, shared)
    task = world.write(lambda tx: tx.tasks.get(task_id))
    workspace = Workspace(
        id="w", task_id=task.id, repo_id=world.repo.id, strategy=chain[-1], path=world.home, branch=None,
        base_commit=None, state=WorkspaceState.READY, disposition=None,
    )  # fmt: skip
    try:
        asyncio.run(set_up_workspace(context, task, world.repo, workspace))
    except LaunchError as error:
        refusal = str(error)
    gate = asyncio.run(
        stages.run_gate(context, task, Ownership(task_id=task.id, fence=task.fence, owner=""), stage, workspace)
    )
    asyncio.run(tear_down_workspace(context, task, world.repo, workspace))
    assert gate.passed is not bool(refusal)
    told = [one["reason"] for one in world.store.view("events_of", task=task_id, after=0, limit=100)]
    assert any("could not be run" in str(reason) for reason in told) is bool(refusal)
    return recorder.ran, refusal


@pytest.mark.parametrize("strategy", ON_HOST)
def test_no_command_runs_on_this_machine_in_a_tree_of_a_container_agent(world: World, strategy: Strategy) -> None:
    """Findings F2 and F3: commands of a container task run in a container. A task on this machine that starts from the
    branch of a container task, even through another task, runs none, and the refusal has the next command."""
    ran, refusal = play(world, [Strategy.CONTAINER])
    assert ran == [("setup", INSIDE), ("gate", INSIDE), ("teardown", INSIDE)]
    assert refusal == ""
    assert play(world, [strategy, strategy]) == ([("setup", None), ("gate", None), ("teardown", None)], "")
    for chain in ([Strategy.CONTAINER, strategy], [Strategy.CONTAINER, strategy, strategy]):
        ran, refusal = play(world, chain)
        assert ran == []
        assert "holdfast merge" in refusal
        assert "--workspace container" in refusal
    ran, refusal = play(world, [Strategy.CONTAINER, strategy], from_parent=False)  # its base is the user's own
    assert [place for _what, place in ran] == [None, None, None]
    assert play(world, [strategy, Strategy.CONTAINER])[0][0] == ("setup", INSIDE)
