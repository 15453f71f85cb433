"""A parallel stage at its edges: what takes longer than the stage, who comes back to it, what dies with many others."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import pytest
from tests.faults.stage import Stage
from tests.fleet import Fleet
from tests.swarm import draft, queue_swarm, results

from holdfast.api.queries import Queries
from holdfast.base import clock
from holdfast.core.workflows.draft import AgentChoice, MemberDraft, StageDraft, WorkflowDraft
from holdfast.core.workflows.workflow import OnFailure
from holdfast.processes.launcher import KeeperRun
from holdfast.supervisor.runs.attempt import Attempt
from holdfast.supervisor.runs.run import RunDriver

pytestmark = pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")


@pytest.fixture
def stage(fleet: Fleet) -> Stage:
    return Stage(fleet)


def shell(script: str) -> AgentChoice:
    return AgentChoice(command=("sh", "-c", script))


def test_a_member_whose_workspace_takes_longer_than_the_stage_is_counted(stage: Stage) -> None:
    """R-CRON-05: its time is up while it is still being prepared. A task that only went back to the queue would
    prepare it again and again, at nobody's expense."""
    file = Path(stage.fleet.env["HOME"]) / ".config" / "holdfast" / "config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("[workspace]\nsetup = ['case $PWD in *--slow) sleep 1000;; esac']\n")
    task_id = queue_swarm(stage.fleet, draft({"good": "echo ok", "slow": "echo slow"}, timeout=600.0, apart=True))

    async def drive() -> None:
        with contextlib.ExitStack() as closing:
            context, passed = stage.context(closing), [0.0]
            context.clock = lambda: clock.now()._replace(boottime=clock.now().boottime + passed[0])
            task = await context.writer.write(lambda tx: tx.tasks.claim(context.host_id, context.clock()))
            assert task is not None
            driving = asyncio.create_task(Attempt(context, task).drive())
            async with asyncio.timeout(60):
                while "good" not in results(stage.fleet, task_id):  # noqa: ASYNC110 - a fact in the store
                    await asyncio.sleep(0.02)
            passed[0] = 611.0
            context.shared.places.changed()
            await driving

    asyncio.run(drive())
    task = stage.task(task_id)
    outcomes = {name: one.outcome for name, one in results(stage.fleet, task_id).items() if name}
    assert outcomes == {"good": "completed", "slow": "timeout"}, task["reason"]
    assert task["state"] == "completed"
    stage.recover()
    stage.assert_nothing_left()


def test_who_comes_back_to_a_stage_begins_at_what_the_task_has_committed_since(stage: Stage) -> None:
    """R-CRON-05 with `apart`: the second time, a member sees the second version, not the tree of its first time; what
    it committed each time stays on a branch."""
    root = stage.fleet.root
    build = StageDraft(name="build", chosen=shell("echo x >> turns; git add .; git commit --quiet -m more"))
    look = (
        f"wc -l < turns >> {root}/seen; wc -l < turns > own; git add own; git commit --quiet -m own; echo left > left"
    )
    review = StageDraft(name="review", members=(MemberDraft(name="one", chosen=shell(look)),), apart=True)
    rule = StageDraft(
        name="rule",
        chosen=shell(f"[ -e {root}/sent ] || {{ touch {root}/sent; exit 1; }}"),
        on_failure=OnFailure.BACK,
        back_to="build",
    )
    task_id = queue_swarm(stage.fleet, WorkflowDraft(name="turns", stages=(build, review, rule)))
    for _ in range(6):
        asyncio.run(stage.drive([]))
    assert stage.task(task_id)["state"] == "completed", stage.task(task_id)["reason"]
    assert (root / "seen").read_text().split() == ["1", "2"]
    mine = [branch for branch in stage.fleet.branches() if "--one" in branch]
    assert sorted(stage.fleet.file_on_branch(branch, "own") for branch in mine) == ["1", "2"]
    stage.recover()
    stage.assert_nothing_left()


def test_a_fresh_start_is_one_for_members_with_trees_of_their_own_too(stage: Stage) -> None:
    """R-RES-09: `retry --fresh` begins at the base; what was committed before stays where it is."""
    seen = stage.fleet.root / "seen"
    commits = "echo x >> own; git add own; git commit --quiet -m own"
    script = f"ls own >> {seen} 2>/dev/null || echo none >> {seen}; {commits}; exit 3"
    task_id = queue_swarm(stage.fleet, draft({"one": script}, apart=True))
    asyncio.run(stage.drive([]))
    assert stage.task(task_id)["state"] == "failed"
    stage.recover()
    stage.fleet.cli("retry", task_id, "--fresh")
    asyncio.run(stage.drive([]))
    assert stage.task(task_id)["state"] == "failed"
    assert seen.read_text().split() == ["none", "none"]
    assert len([branch for branch in stage.fleet.branches() if "--one" in branch]) == 2


def test_the_branches_of_members_are_their_tasks_and_pruning_loses_none(stage: Stage) -> None:
    """R-TREE: `branches` knows whose they are; what it prunes can be brought back, each of them."""
    commits = "echo $0 > own; git add own; git commit --quiet -m own"
    task_id = queue_swarm(
        stage.fleet, draft({name: commits.replace("$0", name) for name in ("one", "two")}, apart=True)
    )
    asyncio.run(stage.drive([]))
    stage.recover()
    fleet = stage.fleet
    tips = {fleet.git("rev-parse", branch) for branch in fleet.branches()}
    assert len(tips) == 2
    found = fleet.json("branches")
    assert {row["task"] for row in found} == {task_id}, found
    fleet.cli("branches", "prune", "--all-ended")
    assert fleet.branches() == []
    assert {row["commit"] for row in fleet.show(task_id)["salvages"]} == tips


def test_the_workspace_of_a_task_is_not_that_of_a_member_and_keeping_keeps_all(stage: Stage) -> None:
    """`show`, `shell`, `diff` speak of the task's own tree; `keep` (R-CLEAN-04) is for every tree of it."""
    task_id = queue_swarm(stage.fleet, draft({"one": "exit 3"}, apart=True), keep_workspace=True)
    asyncio.run(stage.drive([]))
    assert stage.task(task_id)["workspace"]["path"].endswith(f"/{task_id}")
    stage.fleet.cli("keep", task_id)
    rows = Queries(stage.home).workspaces()
    assert [(row["state"], row["expires_at"]) for row in rows] == [("preserved", None)] * 2


def test_keepers_are_told_of_life_while_their_group_rests_after_trouble(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-TERM: a full disk, say. Until it is tried again nobody drives the members, but their supervisor lives: a keeper
    that hears nothing would end its agent."""
    waits = f"until [ -e {stage.go} ]; do sleep 0.1; done"
    task_id = queue_swarm(stage.fleet, draft({"one": waits, "two": waits}))
    attempts: list[Attempt] = []
    beaten: set[str] = set()

    async def fails(driver: RunDriver, _run: object) -> None:
        if len(attempts[0].runs) == 2 and all(one.report_reader is not None for one in attempts[0].runs):
            raise OSError(28, "no space left")

    def told(run: KeeperRun, _incarnation: str) -> None:
        beaten.add(os.path.basename(run._directory.path))

    with monkeypatch.context() as broken:
        broken.setattr(RunDriver, "_start_watching", fails)
        with pytest.raises(OSError, match="no space left"):
            asyncio.run(stage.drive(attempts))
    with monkeypatch.context() as listening:
        listening.setattr(KeeperRun, "beat", told)
        attempts[0].beat()
    assert beaten == {str(run["id"]) for run in stage.task(task_id)["runs"]}
    stage.go.touch()
    stage.recover()
    assert stage.task(task_id)["state"] == "completed"
    stage.assert_nothing_left()
