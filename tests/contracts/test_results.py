"""What every store must do for results and for lists: once, under the fence, and gone with what they belong to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import pytest
from tests.contracts.store_contract import CLEAN, FAIL, Scene, ended_with
from tests.contracts.test_sqlite_store import SqliteBench

from holdfast.base.errors import Conflict, NotOwner
from holdfast.core.runs.outcome import Outcome
from holdfast.core.tasks.task_lists import KnownTaskKey
from holdfast.core.workflows.result import GateResult, StageResult

FULL = StageResult(
    stage=1,
    name="build",
    visit=2,
    attempt=3,
    member="claude",
    agent="scripted",
    outcome="failed",
    reason="its gate failed",
    ruling="changes",
    passed=False,
    text="line\n\x1b[31m日本",
    files=("a.py", "dir/b [c].txt"),
    changed=2,
    commit="1" * 40,
    gate=GateResult(command="make test", passed=False, how="exited with 1", output="boom\n"),
    started_at=1.5,
    ended_at=2.5,
)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    bench = SqliteBench(tmp_path)
    yield Scene(bench)
    bench.close_all()


def test_a_result_comes_back_as_it_was_and_is_recorded_once(scene: Scene) -> None:
    """A field that an adapter forgets shows here; a run's own times are filled in where nobody knows better."""
    defaults = {each.name: each.default for each in fields(StageResult)}
    assert all(getattr(FULL, name) != default for name, default in defaults.items() if name not in ("run_id", "number"))
    ownership = scene.running()
    run_id = scene.ended_run(ownership, ended_with(Outcome.FAILED))
    first = scene.write(lambda tx: tx.results.record(ownership, replace(FULL, run_id=run_id)))
    bare = scene.write(lambda tx: tx.results.record(ownership, StageResult(stage=0, name="work")))
    again = scene.write(lambda tx: tx.results.record(ownership, StageResult(stage=0, name="other", run_id=run_id)))
    assert (first, first.number, bare.number) == (replace(FULL, run_id=run_id), 1, 2)
    assert (again, again.number) == (first, 1), "whoever comes second finds what is there"
    scene.reopen()
    assert list(scene.write(lambda tx: tx.results.of_task(ownership.task_id))) == [first, bare]

    other = scene.running()
    timed = scene.ended_run(other)
    found = scene.write(lambda tx: tx.results.record(other, StageResult(stage=0, name="work", run_id=timed)))
    assert (found.started_at, found.ended_at) == (scene.now.wall, scene.now.wall)


def test_results_need_the_fence_belong_to_a_generation_and_go_with_their_task(scene: Scene) -> None:
    ownership = scene.running()
    run_id = scene.ended_run(ownership, ended_with(Outcome.FAILED))
    with pytest.raises(NotOwner):
        scene.write(
            lambda tx: tx.results.record(
                replace(ownership, fence=ownership.fence + 1), StageResult(stage=0, name="work")
            )
        )
    scene.write(lambda tx: tx.results.record(ownership, StageResult(stage=0, name="work", run_id=run_id)))
    scene.settle(ownership, FAIL, run_id, ended_with(Outcome.FAILED), CLEAN)
    assert len(scene.write(lambda tx: tx.results.of_task(ownership.task_id))) == 1
    scene.retry(ownership.task_id)
    assert list(scene.write(lambda tx: tx.results.of_task(ownership.task_id))) == [], "a retry begins again"
    scene.cancel(ownership.task_id)
    scene.tick(100)
    [old], _lowest = scene.write(lambda tx: tx.history.find_old_tasks(10**9, scene.now.wall, 10))
    assert scene.write(lambda tx: tx.history.forget_task(old, scene.now.wall))
    assert scene.store.view("results", id=ownership.task_id) == []


def test_a_key_is_taken_once_for_each_repository(scene: Scene) -> None:
    """Issue 8, intake: the key outlives its task, and goes with its repository."""
    other = scene.write(lambda tx: tx.workspaces.register_repo("/src/other", "/src/other/.git", scene.now))
    task = scene.add()

    def take(repo_id: str, key: str) -> None:
        scene.write(lambda tx: tx.task_lists.take(repo_id, key, task.id, scene.now))

    take(scene.repo.id, "a")
    take(other.id, "a")
    with pytest.raises(Conflict):
        take(scene.repo.id, "a")
    scene.write(lambda tx: tx.task_lists.take(other.id, "gone", "nobody", scene.now))
    known = scene.write(lambda tx: tx.task_lists.known(other.id, ["a", "b", "gone"]))
    assert known == {
        "a": KnownTaskKey(task_id=task.id, state="queued"),
        "gone": KnownTaskKey(task_id="nobody", state=None),
    }
    assert scene.write(lambda tx: tx.task_lists.known(scene.repo.id, ["gone"])) == {}
    scene.write(lambda tx: tx.history.forget_repo(other, scene.now))
    rows = scene.store.view("intake", path="/src/app", keys='["a", "gone"]')
    assert [(row["key"], row["state"]) for row in rows] == [("a", "queued")]
