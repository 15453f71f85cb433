"""What every store must do about crashes: recorded once, in the transaction that settles, and never in silence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contracts.store_contract import CLEAN, COMPLETE, COMPLETED, FAIL, KEEP, START, Scene, ended_with
from tests.contracts.test_sqlite_store import SqliteBench

from holdfast.base.errors import NotOwner
from holdfast.base.instant import Instant
from holdfast.core.runs.outcome import Outcome, Verdict
from holdfast.core.runs.policy import Decision, decide
from holdfast.core.runs.retry_budgets import RetryLimits
from holdfast.core.states import TaskState
from holdfast.store.port.transaction import Ownership

SEGFAULT = ended_with(Outcome.CRASHED, error_tail="first line\nSegmentation fault\n")


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    bench = SqliteBench(tmp_path)
    yield Scene(bench)
    bench.close_all()


def crash(
    scene: Scene, ownership: Ownership, verdict: Verdict = SEGFAULT, limits: RetryLimits | None = None
) -> Decision:
    """One run of that task dies; the decision is the policy's own, from the store's ledger."""
    run_id = scene.ended_run(ownership, verdict)
    task = scene.get(ownership.task_id)
    ledger = scene.write(lambda tx: tx.tasks.ledger(task))
    decision = decide(verdict, ledger, limits or RetryLimits(), scene.now)
    scene.settle(ownership, decision, run_id, verdict, CLEAN)
    return decision


def again(scene: Scene) -> Ownership:
    """Past the back-off, by a supervisor that is new each time."""
    scene.reopen()
    scene.tick(10)
    return scene.take(scene.open_host())


class TestCrashRecords:
    def test_a_crash_is_recorded_with_all_that_is_known_of_it(self, scene: Scene) -> None:
        """R-CRASH-02, R-CRASH-03, R-CRASH-09: in the transaction that gives the claim up; the event tells the same."""
        ownership = scene.running()
        workspace = scene.workspace_for(ownership)
        died_at = scene.now.wall
        crash(scene, ownership)
        (row,) = scene.store.view("crashes", task=None, since=0.0)
        assert (row["task"], row["worker"], row["at"]) == (ownership.task_id, None, died_at)
        assert (row["outcome"], row["error_text"]) == ("crashed", "first line\nSegmentation fault")
        assert (row["workspace"], row["claim_released"], row["restarted"]) == (workspace.path, 1, 1)
        assert (row["recent"], row["run"]) == (1, scene.runs(ownership.task_id)[0]["id"])
        kinds = scene.kinds(ownership.task_id)
        assert kinds[-2:] == ["task.requeued", "crash.recorded"]
        assert scene.get(ownership.task_id).owner is None

    @pytest.mark.parametrize(
        "outcome",
        [outcome for outcome in Outcome if outcome not in ("external_kill", "out_of_memory", "crashed", "unknown")],
    )
    def test_what_is_no_crash_is_not_recorded(self, scene: Scene, outcome: Outcome) -> None:
        """R-CRASH-01: an intended stop, a limit, a failure of its own, a host that was lost: none is a crash."""
        crash(scene, scene.running(), ended_with(outcome))
        assert scene.store.view("crashes", task=None, since=0.0) == []
        assert "crash.recorded" not in scene.kinds()

    def test_a_claim_that_was_taken_over_is_not_touched(self, scene: Scene) -> None:
        """R-CRASH-03: never someone else's claim, never a closed task; and nothing is recorded by whoever lost it."""
        ownership = scene.running()
        run_id = scene.ended_run(ownership, SEGFAULT)
        other = scene.open_host()
        adopted = scene.adopt(scene.get(ownership.task_id), other)
        before = scene.everything()
        decision = decide(SEGFAULT, (), RetryLimits(), scene.now)
        with pytest.raises(NotOwner):
            scene.settle(ownership, decision, run_id, SEGFAULT, CLEAN)
        assert scene.everything() == before
        assert scene.store.view("crashes", task=None, since=0.0) == []
        new = Ownership(task_id=ownership.task_id, fence=adopted.fence, owner=other)
        scene.settle(new, decision, run_id, SEGFAULT, CLEAN)
        scene.cancel(ownership.task_id)
        with pytest.raises(NotOwner):
            scene.settle(new, decision, run_id, SEGFAULT, CLEAN)
        assert scene.state(ownership.task_id) is TaskState.CANCELLED
        assert len(scene.store.view("crashes", task=None, since=0.0)) == 1, "whoever finds it, it counts once"

    def test_the_third_within_the_window_stops_and_alerts(self, scene: Scene) -> None:
        """R-CRASH-04, R-CRASH-06: counted across supervisors; the alert has all that a person needs; a retry closes it,
        and the next episode is a new one."""
        ownership = scene.running()
        task_id = ownership.task_id
        for episode in (1, 2):
            for number in (1, 2, 3):
                decision = crash(scene, ownership)
                assert decision.crashes is not None
                assert decision.crashes.count == number
                assert scene.state(task_id) is (TaskState.FAILED if number == 3 else TaskState.QUEUED)
                if number < 3:
                    ownership = again(scene)
            (alert,) = scene.store.view("alerts", all=False)
            assert (alert["key"], alert["level"], alert["count"]) == (f"crash:task:{task_id}", "critical", 1)
            assert "3 of 3 crashes within 600 s" in str(alert["message"])
            assert f"holdfast retry {task_id}" in str(alert["remedy"])
            assert "Segmentation fault" in str(alert["details"])
            scene.reopen()
            scene.retry(task_id)
            assert scene.store.view("alerts", all=False) == [], "retried: its cause is over"
            assert len(scene.store.view("alerts", all=True)) == episode
            ownership = again(scene)
        assert scene.kinds(task_id).count("alert.raised") == 2
        rows = scene.store.view("crashes", task=task_id, since=0.0)
        assert [row["restarted"] for row in rows] == [1, 1, 0] * 2
        assert [row["recent"] for row in rows] == [1, 2, 3] * 2

    @pytest.mark.parametrize(
        ("age", "stops"), [(599.999, True), (600.0, False)], ids=["just inside", "exactly at the edge"]
    )
    @pytest.mark.parametrize("booted", [False, True], ids=["one boot", "another boot"])
    def test_the_edge_of_the_window_is_outside(self, scene: Scene, age: float, stops: bool, booted: bool) -> None:
        """R-CRASH-04: two crashes at T; the third at T + window is not the third any more."""
        ownership = scene.running()
        limits = RetryLimits(crash=2)
        crash(scene, ownership, limits=limits)
        scene.reopen()
        scene.now = START._replace(wall=scene.now.wall + age, boottime=scene.now.boottime + age)
        if booted:
            scene.now = Instant(wall=scene.now.wall, boottime=5.0, boot_id="boot-two")
        crash(scene, scene.take(scene.open_host()), limits=limits)
        assert scene.state(ownership.task_id) is (TaskState.FAILED if stops else TaskState.QUEUED)

    def test_a_completion_closes_what_was_wrong(self, scene: Scene) -> None:
        ownership = scene.running()
        key = f"task:{ownership.task_id}:auth"
        scene.write(lambda tx: tx.events.raise_alert(key, "m", "r", scene.now, task_id=ownership.task_id))
        scene.write(lambda tx: tx.events.raise_alert("unsaved:w", "m", "r", scene.now, task_id=ownership.task_id))
        scene.settle(ownership, COMPLETE, scene.ended_run(ownership), COMPLETED, KEEP)
        assert [alert["key"] for alert in scene.store.view("alerts", all=False)] == ["unsaved:w"]

    def test_history_outlives_its_task_and_is_bounded(self, scene: Scene) -> None:
        """R-CRASH-02: durable history; old ones go, and the oldest beyond the most."""
        ownership = scene.running()
        for _ in range(5):
            crash(scene, ownership, limits=RetryLimits(crash=99))
            scene.tick(100)
            ownership = again(scene)
        first = float(scene.store.view("crashes", task=None, since=0.0)[0]["recorded_at"])  # type: ignore[arg-type]  # a row's value
        assert scene.write(lambda tx: tx.crashes.forget(first + 1, 100, 10)) == 1
        assert scene.write(lambda tx: tx.crashes.forget(0.0, 2, 1)) == 1, "a bounded piece"
        assert scene.write(lambda tx: tx.crashes.forget(0.0, 2, 10)) == 1
        assert len(scene.store.view("crashes", task=None, since=0.0)) == 2

    def test_a_failure_of_its_own_raises_no_alert(self, scene: Scene) -> None:
        ownership = scene.running()
        verdict = ended_with(Outcome.FAILED)
        scene.settle(ownership, FAIL, scene.ended_run(ownership, verdict), verdict, CLEAN)
        assert scene.store.view("alerts", all=True) == []
