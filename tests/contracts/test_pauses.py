"""What `store/port/transaction.py` promises: pauses of operators, forced resumes, what is due."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.contracts.store_contract import PAUSE, START, Scene, at_once, ended_with, grip_of, scene
from tests.contracts.test_sqlite_store import bench

from holdfast.base.errors import Conflict, HoldfastError, NotFound
from holdfast.core.dispatch.accounts import BlockedTasks
from holdfast.core.dispatch.terms import ClaimTerms, OperatorBlocks
from holdfast.core.model import PauseReason, RequestKind, StopWhy
from holdfast.core.runs.outcome import Outcome
from holdfast.core.runs.policy import Decision, PolicyAction

__all__ = ["bench", "scene"]
PAUSED = Decision(action=PolicyAction.PAUSE, reason="paused by ann", pause=PauseReason.OPERATOR)


def pause(scene: Scene, task_id: str, until: float | None = None) -> None:
    scene.write(lambda tx: tx.tasks.pause_waiting(task_id, "ann", "lunch", until, scene.now))


def ask(scene: Scene, task_id: str) -> int:
    return scene.write(lambda tx: tx.requests.ask(RequestKind.PAUSE, task_id, "ann", "", {}, scene.now))


def pending(scene: Scene) -> list[int]:
    return [request.id for request in scene.write(lambda tx: tx.requests.pending())]


def test_a_waiting_task_is_paused_at_once_and_keeps_its_delay(scene: Scene) -> None:
    """R-RES-01: reason, state and due time in one step, with its event."""
    task = scene.add(not_before=START.wall + 3600)
    pause(scene, task.id, START.wall + 60)
    row = scene.row(task.id)
    assert (row["state"], row["pause_reason"], row["resume_after"]) == ("paused", "operator", START.wall + 60)
    assert (row["reason"], row["not_before"]) == ("paused by ann: lunch", START.wall + 3600)
    told = scene.events(task.id)[-1]
    assert (told["kind"], told["data"]["by"], told["data"]["resume_after"]) == ("task.paused", "ann", START.wall + 60)
    before = scene.everything()
    with pytest.raises(Conflict, match="is paused"):
        pause(scene, task.id)
    with pytest.raises(NotFound, match=r"^Task not found: nosuch$"):
        pause(scene, "nosuch")
    assert scene.everything() == before
    assert scene.resume(task.id).attempt == 0, "an operator's own pause spends no resume"
    assert scene.row(task.id)["not_before"] == START.wall + 3600


def test_what_runs_or_has_ended_is_not_paused_here(scene: Scene) -> None:
    ownership = scene.running()
    for decision in (None, Decision(action=PolicyAction.FAIL, reason="no", failure="failed")):
        if decision is not None:
            scene.settle(ownership, decision)
        before = scene.everything()
        with pytest.raises(Conflict):
            pause(scene, ownership.task_id)
        assert scene.everything() == before


def test_a_limit_that_came_while_the_request_was_on_its_way_becomes_the_operators(scene: Scene) -> None:
    """It would continue by itself; but what waits for a person already stays what it is."""
    task_id = scene.paused()
    pause(scene, task_id)
    row = scene.row(task_id)
    assert (row["pause_reason"], row["resume_after"]) == ("operator", None)
    assert scene.write(lambda tx: tx.tasks.tasks_due_to_resume(scene.tick(1_000))) == []
    waits = scene.paused(replace(PAUSE, pause=PauseReason.BUDGET, resume_after=None))
    with pytest.raises(Conflict):
        pause(scene, waits)


def test_the_settle_answers_the_request_and_a_later_resume_withdraws_one(scene: Scene) -> None:
    """No pause may come after the resume that followed it."""
    ownership = scene.running()
    ask(scene, ownership.task_id)
    scene.settle(ownership, PAUSED, scene.ended_run(ownership, ended_with(Outcome.PAUSED)), ended_with(Outcome.PAUSED))
    assert pending(scene) == []
    late = ask(scene, ownership.task_id)
    scene.write(lambda tx: tx.tasks.resume(ownership.task_id, "auto", scene.now, operator=False))
    assert pending(scene) == [late], "nobody took it back: only its time had come"
    pause(scene, ownership.task_id)
    scene.resume(ownership.task_id)
    assert pending(scene) == []
    assert scene.spends(ownership.task_id) == [], "an operator's pause costs nothing, nor does the resume after it"


@pytest.mark.parametrize("limit", [0, 1])
def test_force_goes_beyond_the_limit_and_is_recorded(scene: Scene, limit: int) -> None:
    """R-RES-02: who, and that it was by force; it is still one of two that wins."""
    host = scene.open_host()
    ownership = scene.running(host, max_resumes=limit)
    task_id = ownership.task_id
    for number in range(limit + 1):
        scene.settle(ownership, PAUSE, scene.ended_run(ownership, ended_with(Outcome.RATE_LIMITED)))
        if number < limit:
            scene.resume(task_id)
            ownership = scene.take(host)

    def force(tx: Any) -> Any:
        return tx.tasks.resume(task_id, "ann", scene.now, force=True)

    answers = scene.race(force)
    assert sum(isinstance(answer, HoldfastError) for answer in answers) == 1
    told = [event for event in scene.events(task_id) if event["kind"] == "task.resumed"][-1]
    assert told["data"] == {
        "resume_attempts": limit + 1,
        "max_resume_attempts": limit,
        "by": "ann",
        "forced": True,
    }
    assert scene.row(task_id)["resume_attempts"] == limit + 1


def test_force_lets_one_run_past_a_shut_account(scene: Scene) -> None:
    shut = ClaimTerms(blocked=BlockedTasks(accounts=frozenset({"claude/work"}), agents=frozenset({"claude"})))
    task_id = scene.paused(agent="claude", agent_options={"account": "work"})
    scene.resume(task_id)
    host = scene.open_host()
    assert scene.write(lambda tx: tx.tasks.claim(host, scene.now, shut)) is None
    pause(scene, task_id)
    scene.write(lambda tx: tx.tasks.resume(task_id, "ann", scene.now, force=True))
    claimed = scene.write(lambda tx: tx.tasks.claim(host, scene.now, shut))
    assert claimed is not None
    assert claimed.forced
    back = Decision(action=PolicyAction.REQUEUE, reason="down")
    scene.settle(grip_of(claimed), back)
    assert scene.get(task_id).forced, "no run was begun: the word still stands"
    ownership = scene.take(host)
    scene.settle(ownership, back, scene.ended_run(ownership))
    assert not scene.get(task_id).forced


def test_without_automatic_resumes_only_an_operators_time_is_due(scene: Scene) -> None:
    """R-RES-08: `resume.auto = false`. Nothing is due then, not even a moment that has passed: no busy loop."""
    limited, held = scene.paused(), scene.add()
    pause(scene, held.id, START.wall + 30)
    later = scene.now._replace(wall=scene.now.wall + 1_000)
    assert scene.write(lambda tx: tx.tasks.tasks_due_to_resume(later)) == [held.id, limited]
    assert scene.write(lambda tx: tx.tasks.tasks_due_to_resume(later, auto=False)) == [held.id]
    assert scene.write(lambda tx: tx.tasks.next_due_time(scene.now, auto=False)) == START.wall + 30
    assert scene.write(lambda tx: tx.tasks.unfinished_count(OperatorBlocks(auto=False))) == 1
    scene.cancel(held.id)
    assert scene.write(lambda tx: tx.tasks.next_due_time(scene.now, auto=False)) is None
    assert scene.write(lambda tx: tx.tasks.unfinished_count(OperatorBlocks(auto=False))) == 0
    assert scene.write(lambda tx: tx.tasks.next_due_time(scene.now)) == PAUSE.resume_after
    assert scene.write(lambda tx: tx.tasks.unfinished_count()) == 1


@pytest.mark.parametrize(
    ("first", "second", "stands"),
    [
        (StopWhy.PAUSE, StopWhy.DOWN, "pause"),
        (StopWhy.DOWN, StopWhy.PAUSE, "pause"),
        (StopWhy.PAUSE, StopWhy.CANCEL, "cancel"),
        (StopWhy.CANCEL, StopWhy.PAUSE, "cancel"),
        (StopWhy.STUCK, StopWhy.PAUSE, "pause"),
        (StopWhy.PAUSE, StopWhy.STUCK, "pause"),
    ],
)
def test_the_stronger_wish_is_on_record(scene: Scene, first: StopWhy, second: StopWhy, stands: str) -> None:
    ownership = scene.running()
    run_id = scene.started_run(ownership)
    scene.stop(ownership, run_id, first)
    scene.stop(ownership, run_id, second)
    assert scene.runs(ownership.task_id)[0]["stop_why"] == stands


def test_a_pause_and_a_claim_at_once(scene: Scene) -> None:
    """One of them gets the task, and it is never both."""
    for _ in range(5):
        task, host = scene.add(), scene.open_host()
        stores = scene.bench.store(), scene.bench.store()
        at_once(
            lambda tx_store=stores[0], one=task: tx_store.write(  # type: ignore[misc]
                lambda tx: tx.tasks.pause_waiting(one.id, "ann", "", None, scene.now)
            ),
            lambda tx_store=stores[1], by=host: tx_store.write(lambda tx: tx.tasks.claim(by, scene.now)),  # type: ignore[misc]
        )
        found = scene.row(task.id)
        assert (found["state"], found["owner"]) in (("paused", None), ("running", host))
