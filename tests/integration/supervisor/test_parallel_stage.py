"""A parallel stage without a supervisor around it: what one member meets does not reach the others, nor is it lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.faults.stage import Stage
from tests.fleet import Fleet, lives, wait_until
from tests.swarm import draft, queue_swarm, results

from holdfast.base import clock
from holdfast.base.errors import Conflict, NotOwner
from holdfast.core.model import RequestKind, StopWhy
from holdfast.core.runs.outcome import Outcome, Verdict
from holdfast.core.runs.policy import Decision, PolicyAction
from holdfast.core.workflows.draft import AgentChoice, MemberDraft, StageDraft, WorkflowDraft
from holdfast.rehearsal.scenario import check
from holdfast.store.port.transaction import Host, Ownership, RunRole
from holdfast.store.sqlite.engine.store import SqliteStore
from holdfast.supervisor.dispatch.slots import Slots
from holdfast.supervisor.runs.attempt import Attempt
from holdfast.supervisor.settings import Thresholds

pytestmark = pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")


@pytest.fixture
def stage(fleet: Fleet) -> Stage:
    return Stage(fleet)


def outcomes(stage: Stage, task_id: str) -> dict[str, str]:
    return {name: result.outcome for name, result in results(stage.fleet, task_id).items() if name}


def scripted(*steps: dict[str, Any]) -> AgentChoice:
    return AgentChoice(scenario=tuple(check({"step": list(steps)}, "test")))


def shell(script: str) -> AgentChoice:
    return AgentChoice(command=("sh", "-c", script))


def mixed(timeout: float = 60.0, least: int = 1, **members: AgentChoice) -> WorkflowDraft:
    drafts = tuple(MemberDraft(name=name, chosen=chosen) for name, chosen in members.items())
    return WorkflowDraft(
        name="mixed", stages=(StageDraft(name="review", members=drafts, timeout=timeout, least=least),)
    )


def test_at_the_deadline_what_is_left_is_killed_and_what_it_said_is_kept(stage: Stage) -> None:
    """R-CRON-05: timeout + 10 s (here half a second), for one whose grace would be longer; who had no place yet has a
    result all the same; and everything is gone within two seconds."""
    deaf = f"trap '' TERM; echo $$ > {stage.at_work}; echo partial; while :; do sleep 0.1; done"
    task_id = queue_swarm(
        stage.fleet, draft({"good": "echo ok", "deaf": deaf, "late": "echo late"}, timeout=8.0, at_once=2)
    )
    began = time.monotonic()

    async def drive() -> None:
        with contextlib.ExitStack() as closing:
            context = stage.context(closing)
            context.settings = replace(context.settings, thresholds=Thresholds(collect_for=0.5))
            context.shared.places.room = lambda: 0  # only the claim's own place: one after the other
            task = await context.writer.write(lambda tx: tx.tasks.claim(context.host_id, context.clock()))
            assert task is not None
            await Attempt(context, task).drive()

    asyncio.run(drive())
    assert time.monotonic() - began >= 8.5
    assert outcomes(stage, task_id) == {"good": "completed", "deaf": "timeout", "late": "timeout"}
    found = results(stage.fleet, task_id)
    assert found["deaf"].text == "partial"
    assert (found["late"].run_id, "before it got a free slot" in found["late"].reason) == (None, True)
    assert not lives(int(stage.at_work.read_text()))
    assert stage.task(task_id)["state"] == "completed"
    stage.recover()
    stage.assert_nothing_left()


def test_who_cannot_start_or_is_killed_is_counted_and_the_rest_go_on(stage: Stage) -> None:
    """R-CRON-05: a command that is not there, a keeper that somebody kills; the task neither fails nor freezes."""
    pid, go = stage.fleet.root / "pid", stage.go
    task_id = queue_swarm(
        stage.fleet,
        mixed(
            missing=AgentChoice(command=("/no/such/agent",)),
            killed=shell(f"echo $$ > {pid}; until [ -e {stage.fleet.root}/never ]; do sleep 0.1; done"),
            good=shell(f"until [ -e {go} ]; do sleep 0.1; done; echo fine"),
        ),
    )

    async def drive() -> None:
        driving = asyncio.create_task(stage.drive([]))
        async with asyncio.timeout(60):
            while not (pid.exists() and pid.read_text()):  # noqa: ASYNC110 - facts of other processes
                await asyncio.sleep(0.01)
        os.kill(int(pid.read_text()), signal.SIGKILL)
        go.touch()
        await driving

    asyncio.run(drive())
    assert outcomes(stage, task_id) == {"missing": "launch_error", "killed": "external_kill", "good": "completed"}
    task = stage.task(task_id)
    assert (task["state"], task["reason"].partition(": ")[2]) == (
        "completed",
        "1 of 3 completed: 1 external_kill, 1 launch_error",
    )
    assert "crash.recorded" in stage.events(task_id)
    stage.recover()
    stage.assert_nothing_left()


def test_a_limit_of_all_pauses_the_task_and_only_they_go_again(stage: Stage) -> None:
    """R-RES-08 for a group: who had completed keeps its result; the others are run again after the pause."""
    full = stage.fleet.root / "full"
    full.touch()
    runs = stage.fleet.root / "runs"
    task_id = queue_swarm(
        stage.fleet,
        mixed(
            least=2,
            good=shell(f"echo good >> {runs}"),
            limited=scripted({"limit": {"kind": "usage", "for": "1h", "while": str(full)}}),
        ),
    )
    asyncio.run(stage.drive([]))
    task = stage.task(task_id)
    assert (task["state"], task["pause_reason"]) == ("paused", "usage_limit"), task["reason"]
    assert "1 of 2 completed: 1 usage_limited" in task["reason"]
    assert task["resume_after"] is not None
    full.unlink()
    stage.fleet.cli("resume", task_id, "--force")
    asyncio.run(stage.drive([]))
    task = stage.task(task_id)
    assert task["state"] == "completed", task
    ran = [str(run["member"]) for run in task["runs"]]
    assert sorted(ran) == ["good", "limited", "limited"], ran
    assert runs.read_text() == "good\n"
    stage.recover()
    stage.assert_nothing_left()


def test_one_of_whom_nobody_can_prove_that_it_ended_freezes_the_task_and_nobody_starts_beside_it(stage: Stage) -> None:
    """Its records vanish with its keeper: the others' results are kept, and an operator's word ends it."""
    task_id = queue_swarm(stage.fleet, draft({"one": f"echo $$ > {stage.at_work}; exec sleep 1000", "two": "echo 2"}))

    async def cut() -> None:
        driving = asyncio.create_task(stage.drive([]))
        async with asyncio.timeout(60):
            while not (stage.at_work.exists() and "two" in results(stage.fleet, task_id)):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        driving.cancel()
        await asyncio.wait([driving])

    asyncio.run(cut())
    [run] = [run for run in stage.task(task_id)["runs"] if run["state"] == "started"]
    folder = Path(stage.home) / "runs" / str(run["id"])
    keeper = int(json.loads((folder / "pid.json").read_text())["keeper"]["pid"])
    for pid in (keeper, int(stage.at_work.read_text())):
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda pid=pid: not lives(pid), "it is dead")  # type: ignore[misc]
    for name in ("pid.json", "intent.json", "exit.json", "empty.json"):
        (folder / name).unlink(missing_ok=True)
    attempts: list[Attempt] = []

    async def again() -> None:
        with contextlib.ExitStack() as closing:
            context = stage.context(closing)
            [left] = await context.writer.write(lambda tx: tx.tasks.running_elsewhere(context.host_id))
            task = await context.writer.write(lambda tx: tx.tasks.adopt(left, context.host_id, context.clock()))
            attempts.append(Attempt(context, task))
            await attempts[-1].drive()

    asyncio.run(again())
    assert attempts[0].frozen
    assert "task.frozen" in stage.events(task_id)
    assert outcomes(stage, task_id) == {"two": "completed"}
    assert stage.task(task_id)["state"] == "running"
    store = SqliteStore(stage.home)
    store.write(lambda tx: tx.requests.ask(RequestKind.CANCEL, task_id, "tess", "", {"assume_dead": True}, clock.now()))
    store.close()
    stage.recover()
    assert stage.task(task_id)["state"] == "cancelled"
    stage.assert_nothing_left()


COMMITS = "echo a > a.txt; git add a.txt; git commit --quiet -m A"


def test_members_with_workspaces_of_their_own_keep_their_work_apart(stage: Stage) -> None:
    """R-CRON-05 with `apart`: each has its tree and its branch; what it committed, or left when it completed, is on
    that branch and named in its result; a branch without commits goes, and so does every tree."""
    scripts = {
        "commits": COMMITS,
        "leaves": "ls a.txt; echo b > b.txt",
        "nothing": "pwd",
        "dirty": "echo c > c.txt; exit 3",
    }
    task_id = queue_swarm(stage.fleet, draft(scripts, apart=True))
    asyncio.run(stage.drive([]))
    assert outcomes(stage, task_id) == {
        "commits": "completed", "leaves": "completed", "nothing": "completed", "dirty": "failed",
    }  # fmt: skip
    assert results(stage.fleet, task_id)["nothing"].text.endswith(f"/{task_id}--nothing")
    stage.recover()
    fleet = stage.fleet
    assert fleet.branches() == [f"holdfast/{task_id}--commits", f"holdfast/{task_id}--leaves"]
    assert fleet.file_on_branch(f"holdfast/{task_id}--leaves", "b.txt") == "b"
    assert fleet.git("ls-tree", "--name-only", f"holdfast/{task_id}--leaves", "a.txt") == ""
    assert [row["files"] for row in fleet.show(task_id)["salvages"]] == [1]  # what the failed one left
    stage.assert_nothing_left()


def test_a_cancelled_member_with_a_tree_of_its_own_leaves_nothing(stage: Stage) -> None:
    """R-TREE-03: all trees of a task are of one guard."""
    scripts = {"one": f"echo 1 > x; touch {stage.at_work}; sleep 1000", "two": "sleep 1000"}
    task_id = queue_swarm(stage.fleet, draft(scripts, apart=True))
    attempts: list[Attempt] = []

    async def drive() -> None:
        driving = asyncio.create_task(stage.drive(attempts))
        async with asyncio.timeout(60):
            while not stage.at_work.exists():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await attempts[0].stop(StopWhy.CANCEL, fast=True)
        await driving

    asyncio.run(drive())
    assert stage.task(task_id)["state"] == "cancelled"
    stage.assert_put_away_if_ended(task_id)
    assert stage.fleet.worktrees() == []
    stage.recover()
    assert stage.fleet.branches() == []
    stage.assert_nothing_left()


def test_places_are_never_more_than_there_are() -> None:
    """Groups take what is free, go before claims, and take nothing while a claim is under way."""
    places, rung = Slots(), []
    places.room = lambda: 2
    assert [places.take(), places.take(), places.take()] == [True, True, False]
    places.change_wanted(1)
    assert places.reserved_for_members == 3
    with places.notify_on_change(lambda: rung.append(1)):
        places.give_back()
        with places.block_during_claim():
            assert not places.take()
    assert len(rung) == 2
    assert places.take()
    places.change_wanted(-1)
    places.give_back(2)
    assert places.reserved_for_members == 0


def test_the_store_settles_a_member_once_and_only_under_its_fence(stage: Stage) -> None:
    """One open run per member, whatever happens; and the task is not settled while one of them is open."""
    task_id = queue_swarm(stage.fleet, draft({"one": "true", "two": "true"}))
    store, now = SqliteStore(stage.home), clock.now()
    host = Host(id="host", boot_id=now.boot_id, pid=1, start_ticks=1, version="test", agents=1)
    done, over = Verdict(outcome=Outcome.COMPLETED, reason="ok"), Decision(action=PolicyAction.COMPLETE, reason="ok")
    try:
        store.write(lambda tx: tx.hosts.open(host, 30.0, now))
        task = store.write(lambda tx: tx.tasks.claim("host", now))
        assert task is not None
        ownership = Ownership(task_id=task_id, fence=task.fence, owner="host")
        for run_id, name in (("r1", "one"), ("r2", "two")):
            role = RunRole(member=name)
            store.write(lambda tx, run=run_id, role=role: tx.runs.intend(ownership, run, now, role=role))  # type: ignore[misc]
        with pytest.raises(Conflict):
            store.write(lambda tx: tx.runs.intend(ownership, "r3", now, role=RunRole(member="one")))
        store.write(lambda tx: tx.runs.ended(ownership, "r1", done, now))
        with pytest.raises(NotOwner):
            store.write(lambda tx: tx.tasks.settle_member(replace(ownership, fence=9), "r1", done, over, now))
        store.write(lambda tx: tx.tasks.settle_member(ownership, "r1", done, over, now))
        with pytest.raises(Conflict):
            store.write(lambda tx: tx.tasks.settle_member(ownership, "r1", done, over, now))
        with pytest.raises(Conflict):
            store.write(lambda tx: tx.tasks.settle(ownership, None, done, over, None, now))
        assert [run.id for run in store.write(lambda tx: tx.runs.open_runs(task_id))] == ["r2"]
    finally:
        store.close()
