"""What every store must do for named workers, as code: taken over by an adapter's module like store_contract.py."""

from __future__ import annotations

from typing import Any

import pytest
from tests.contracts.store_contract import REQUEUE, Scene, ended_with, grip_of
from tests.contracts.store_contract import scene as scene

from holdfast.base.errors import Conflict, HoldfastError, NotFound
from holdfast.core.dispatch.terms import ClaimTerms, Lane
from holdfast.core.dispatch.workers import CrashDecision, WorkerRecord, WorkerState
from holdfast.core.model import Task
from holdfast.core.runs.crashes import CrashReaction
from holdfast.core.runs.outcome import Outcome
from holdfast.core.runs.policy import Decision
from holdfast.store.port.dispatch import WorkerCrash
from holdfast.store.port.transaction import Operation

WEB = Lane(name="web")
KEPT = Decision(action=REQUEUE.action, reason="it crashed", spends=REQUEUE.spends, keeps_worker=True)
GOES_ON = CrashDecision(
    answer=CrashReaction.RESTART, reason="crash 1 of 3", state=WorkerState.READY, crashes=1, counts=True
)
STOPS = CrashDecision(
    answer=CrashReaction.NOTIFY, reason="not asked to", state=WorkerState.STOPPED, crashes=1, counts=True
)
BENCHED = CrashDecision(
    answer=CrashReaction.NOTIFY, reason="crash 3 of 3", state=WorkerState.BENCHED, crashes=3, counts=True
)


def enrol(scene: Scene, *names: str) -> None:
    scene.write(lambda tx: tx.workers.enrol(names, scene.now))


def worker(scene: Scene, name: str = "web") -> WorkerRecord:
    found = scene.write(lambda tx: tx.workers.get(name))
    assert found is not None
    return found


def claim(scene: Scene, host: str, lane: Lane | None) -> Task | None:
    return scene.write(lambda tx: tx.tasks.claim(host, scene.now, ClaimTerms(lane=lane)))


def something_waits(scene: Scene, lane: Lane | None) -> bool:
    return scene.write(lambda tx: tx.tasks.has_claimable_task(scene.now, ClaimTerms(lane=lane)))


def crash(scene: Scene, task_id: str, run_id: str, decision: CrashDecision, **more: Any) -> None:
    told = WorkerCrash(
        worker="web",
        task_id=task_id,
        run_id=run_id,
        decision=decision,
        why="killed by signal 9",
        recovered=f"task {task_id} is free for any worker",
        **more,
    )
    scene.write(lambda tx: tx.workers.record_crash(told, scene.now))


def crashed_run(scene: Scene, host: str, decision: Decision = REQUEUE) -> tuple[str, str]:
    """A task of worker web whose run crashed, settled: (task, run)."""
    scene.add()
    task = claim(scene, host, WEB)
    assert task is not None
    ownership = grip_of(task)
    verdict = ended_with(Outcome.CRASHED)
    run_id = scene.ended_run(ownership, verdict)
    scene.settle(ownership, decision, run_id, verdict)
    return task.id, run_id


def told(scene: Scene) -> list[str]:
    return [event["kind"] for event in scene.events() if event["kind"].startswith("worker.")]


class TestWorkers:
    def test_the_settings_say_who_there_is(self, scene: Scene) -> None:
        """New: ready; gone: retired, and its history stays; back: ready. Saying it again says nothing."""
        enrol(scene, "web", "docs")
        enrol(scene, "web", "docs")
        enrol(scene, "docs")
        enrol(scene, "docs")
        assert [(w.name, w.state) for w in scene.write(lambda tx: tx.workers.all())] == [
            ("docs", WorkerState.READY),
            ("web", WorkerState.RETIRED),
        ]
        with pytest.raises(NotFound, match="no worker 'web' any more"):
            scene.write(lambda tx: tx.workers.restart("web", "ann", scene.now))
        enrol(scene, "docs", "web")
        assert worker(scene).state is WorkerState.READY
        assert told(scene) == ["worker.started", "worker.started", "worker.stopped", "worker.started"]

    def test_an_operators_word_is_kept(self, scene: Scene) -> None:
        scene.write(lambda tx: tx.workers.stop("web", "ann", scene.now))
        enrol(scene, "web")
        scene.reopen()
        assert (worker(scene).state, worker(scene).reason) == (WorkerState.STOPPED, "stopped by ann")
        with pytest.raises(Conflict, match="stopped already"):
            scene.write(lambda tx: tx.workers.stop("web", "ann", scene.now))
        scene.write(lambda tx: tx.workers.stop("web", "ann", scene.now, at_once=True))
        assert worker(scene).at_once
        before = scene.everything()
        with pytest.raises(Conflict, match="stopped already"):
            scene.write(lambda tx: tx.workers.stop("web", "ann", scene.now, at_once=True))
        assert scene.everything() == before
        scene.write(lambda tx: tx.workers.start("web", "ann", scene.now))
        assert not worker(scene).at_once
        with pytest.raises(Conflict, match="started already"):
            scene.write(lambda tx: tx.workers.start("web", "ann", scene.now))

    def test_two_who_start_it_at_once(self, scene: Scene) -> None:
        """One wins; the other is told so and changes nothing."""
        scene.write(lambda tx: tx.workers.stop("web", "ann", scene.now))
        answers = scene.race(lambda tx: tx.workers.start("web", "ann", scene.now))
        assert sorted(isinstance(answer, HoldfastError) for answer in answers) == [False, True]
        assert told(scene) == ["worker.stopped", "worker.started"]

    def test_a_claim_names_its_worker_until_it_is_settled(self, scene: Scene) -> None:
        """Also in its run, and across an adoption."""
        enrol(scene, "web")
        host = scene.open_host()
        scene.add()
        task = claim(scene, host, WEB)
        assert task is not None
        assert task.worker == "web"
        assert scene.events(task.id)[-1]["data"]["worker"] == "web"
        adopted = scene.adopt(task, other := scene.open_host())
        assert adopted.worker == "web"
        scene.settle(grip_of(adopted), REQUEUE, scene.ended_run(grip_of(adopted)))
        assert scene.get(task.id).worker is None
        again = claim(scene, other, None)
        assert again is not None
        assert again.worker is None
        assert [run["worker"] for run in scene.runs(task.id)] == ["web"]

    def test_a_task_may_wait_for_its_worker(self, scene: Scene) -> None:
        """R-CRASH-05: `release_claims = false`. Nobody else takes it, until the worker is stopped for good."""
        enrol(scene, "web")
        host = scene.open_host()
        task_id, run_id = crashed_run(scene, host, KEPT)
        crash(scene, task_id, run_id, STOPS)
        for lane in (None, Lane(name="docs")):
            assert claim(scene, host, lane) is None
            assert not something_waits(scene, lane)
        assert scene.write(lambda tx: tx.tasks.unfinished_count()) == 0, "it waits for an operator"
        scene.write(lambda tx: tx.workers.restart("web", "ann", scene.now))
        assert scene.write(lambda tx: tx.tasks.unfinished_count()) == 1
        taken = claim(scene, host, WEB)
        assert taken is not None
        assert taken.id == task_id
        run_id = scene.ended_run(grip_of(taken), ended_with(Outcome.CRASHED))
        scene.settle(grip_of(taken), KEPT, run_id, ended_with(Outcome.CRASHED))
        crash(scene, task_id, run_id, STOPS)
        decided_at = scene.row(task_id)["updated_at"]
        scene.tick(100.0)
        scene.beat(host)
        scene.write(lambda tx: tx.workers.stop("web", "ann", scene.now))
        assert scene.row(task_id)["updated_at"] == decided_at, "that is when its wait was decided"
        with pytest.raises(Conflict, match="stopped already"):
            scene.write(lambda tx: tx.workers.stop("web", "ann", scene.now))
        assert [e["data"]["released"] for e in scene.events() if "released" in e["data"]] == [[task_id]]
        assert claim(scene, host, None) is not None

    def test_a_worker_that_is_gone_frees_what_was_kept_for_it(self, scene: Scene) -> None:
        enrol(scene, "web")
        host = scene.open_host()
        task_id, _run = crashed_run(scene, host, KEPT)
        enrol(scene)
        assert scene.get(task_id).worker is None
        assert claim(scene, host, None) is not None

    def test_crashes_are_counted_once_and_until_forgiven(self, scene: Scene) -> None:
        """R-CRASH-04: durable, in order, per worker; an operator's restart clears them."""
        enrol(scene, "web", "docs")
        host = scene.open_host()
        for _ in range(2):
            scene.tick()
            task_id, run_id = crashed_run(scene, host)
            crash(scene, task_id, run_id, GOES_ON)
            crash(scene, task_id, run_id, GOES_ON)
        scene.reopen()
        assert [at.wall for at in scene.write(lambda tx: tx.workers.crashes("web"))] == [
            scene.now.wall - 1,
            scene.now.wall,
        ]
        assert scene.write(lambda tx: tx.workers.crashes("docs")) == []
        assert told(scene) == ["worker.started"] * 4
        assert scene.store.view("alerts", all=True) == []
        scene.write(lambda tx: tx.workers.restart("web", "ann", scene.now))
        assert scene.write(lambda tx: tx.workers.crashes("web")) == []

    @pytest.mark.parametrize("way_out", ["restart", "start", "stop", "quiet", "retire"])
    def test_one_alert_per_episode(self, scene: Scene, way_out: str) -> None:
        """R-CRASH-06: critical, with what to do; closed by whatever ends the episode."""
        enrol(scene, "web")
        task_id, run_id = crashed_run(scene, scene.open_host())
        crash(scene, task_id, run_id, BENCHED, error_tail="panic: no model\n")
        (alert,) = scene.store.view("alerts", all=False)
        assert (alert["key"], alert["level"], alert["count"], alert["task"]) == (
            "crash:worker:web",
            "critical",
            1,
            task_id,
        )
        for words in ("3 recent crash(es)", "killed by signal 9", "is free for any worker"):
            assert words in str(alert["message"])
        assert "holdfast worker restart web" in str(alert["remedy"])
        assert "panic: no model" in str(alert["details"])
        benched, now = worker(scene), scene.now
        ways: dict[str, Operation[object]] = {
            "restart": lambda tx: tx.workers.restart("web", "ann", now),
            "start": lambda tx: tx.workers.start("web", "ann", now),
            "stop": lambda tx: tx.workers.stop("web", "ann", now),
            "quiet": lambda tx: tx.workers.unbench(benched, now),
            "retire": lambda tx: tx.workers.enrol((), now),
        }
        scene.write(ways[way_out])
        assert scene.store.view("alerts", all=False) == []
        assert told(scene)[1] == "worker.benched"

    def test_who_looked_before_somebody_else_acted_changes_nothing(self, scene: Scene) -> None:
        """Every move is a compare-and-set: a bench that an operator turned into a stop is not over by itself."""
        enrol(scene, "web")
        task_id, run_id = crashed_run(scene, scene.open_host())
        crash(scene, task_id, run_id, BENCHED)
        seen = worker(scene)
        scene.write(lambda tx: tx.workers.stop("web", "ann", scene.now))
        before = scene.everything()
        with pytest.raises(Conflict, match="no longer benched"):
            scene.write(lambda tx: tx.workers.unbench(seen, scene.now))
        assert (scene.everything(), worker(scene).state) == (before, WorkerState.STOPPED)

    def test_a_mass_death_is_pardoned(self, scene: Scene) -> None:
        """R-CRASH-07: it counts no more, and whom it stopped continues; what an operator stopped stays stopped."""
        enrol(scene, "web")
        host = scene.open_host()
        task_id, run_id = crashed_run(scene, host)
        crash(scene, task_id, run_id, STOPS)
        scene.write(lambda tx: tx.workers.forgive_crashes([run_id], scene.now))
        assert worker(scene).state is WorkerState.READY
        assert scene.write(lambda tx: tx.workers.crashes("web")) == []
        assert scene.store.view("alerts", all=False) == []
        task_id, run_id = crashed_run(scene, host)
        crash(scene, task_id, run_id, STOPS)
        scene.write(lambda tx: tx.workers.restart("web", "ann", scene.now))
        scene.write(lambda tx: tx.workers.stop("web", "ann", scene.now))
        scene.write(lambda tx: tx.workers.forgive_crashes([run_id], scene.now))
        assert worker(scene).state is WorkerState.STOPPED
