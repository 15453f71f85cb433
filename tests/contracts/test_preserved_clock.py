"""What is preserved for a week, and a clock that is set (store/port/workspaces.py)."""

from __future__ import annotations

from tests.contracts.store_contract import FAIL, KEEP, Scene, ended_with, scene
from tests.contracts.test_sqlite_store import bench

from holdfast.core.model import Workspace
from holdfast.core.runs.outcome import Outcome
from holdfast.core.states import TaskState

__all__ = ["bench", "scene"]
WEEK, YEAR = 7 * 86400.0, 365 * 86400.0


def preserved(scene: Scene) -> None:
    ownership = scene.running()
    scene.workspace_for(ownership)
    verdict = ended_with(Outcome.FAILED)
    scene.settle(ownership, FAIL, scene.ended_run(ownership, verdict), verdict, KEEP)
    found = scene.current(ownership.task_id)
    assert found is not None
    scene.write(lambda tx: tx.preserved.preserve(found, KEEP, TaskState.FAILED, WEEK, scene.now))


def expired(scene: Scene, leapt: float = 0.0) -> list[Workspace]:
    return list(scene.write(lambda tx: tx.preserved.expired(scene.now, lambda _since: scene.now.wall - leapt)))


def test_a_week_has_not_passed_because_the_clock_says_so(scene: Scene) -> None:
    """Promise 1: found by `clock:kept/before/+10y,-10y`."""
    preserved(scene)
    scene.tick(10 * YEAR)
    assert expired(scene, leapt=10 * YEAR) == []
    assert len(expired(scene)) == 1
    scene.tick(WEEK)
    assert len(expired(scene, leapt=10 * YEAR)) == 1


def test_a_clock_that_was_set_back_keeps_it_for_a_week_and_not_for_years(scene: Scene) -> None:
    """Promise 2; asked twice, it changes nothing more."""
    preserved(scene)
    scene.tick(-10 * YEAR)
    for _again in range(2):
        scene.write(lambda tx: tx.preserved.restart_expiry_timers(scene.now))
    scene.tick(WEEK - 1)
    assert expired(scene) == []
    scene.tick(2)
    assert len(expired(scene)) == 1
