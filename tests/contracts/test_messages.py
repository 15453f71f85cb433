"""The facet `messages` of a store: what a message changes in a task that has ended or is paused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.contracts.store_contract import CANCEL, FAIL, PAUSE, Scene, scene
from tests.contracts.test_checkpoints import NOW, Shop, shop
from tests.contracts.test_pauses import PAUSED, ask, pending
from tests.contracts.test_sqlite_store import bench

from holdfast.core.model import PauseReason
from holdfast.core.runs.policy import PolicyAction

__all__ = ["bench", "scene", "shop"]
LEFT = {
    "failed": FAIL,
    "cancelled": CANCEL,
    "paused": PAUSED,
    "waits for a limit": PAUSE,
    "waits for money": replace(PAUSE, pause=PauseReason.BUDGET, resume_after=None),
}


def send(scene: Scene, task_id: str) -> None:
    scene.write(lambda tx: tx.messages.send(task_id, "go on", "ann", scene.now))


@pytest.mark.parametrize("how", LEFT)
def test_a_message_queues_a_task_in_one_step(scene: Scene, how: str) -> None:
    """F1: nothing of its end or pause is left. A pause that was asked for before it does not come after it."""
    ownership = scene.running()
    task_id = ownership.task_id
    scene.settle(ownership, LEFT[how], scene.ended_run(ownership))
    before = scene.get(task_id)
    scene.write(lambda tx: tx.events.raise_alert(f"task:{task_id}:x", "it ended", "look", scene.now, task_id=task_id))
    ask(scene, task_id)
    send(scene, task_id)
    after = scene.get(task_id)
    row = scene.row(task_id)
    assert (row["state"], row["reason"]) == ("queued", "continues with message 1 by ann")
    left = ("outcome", "failure_reason", "pause_reason", "resume_after", "not_before", "ended_at")
    assert {name: row[name] for name in left if row[name] is not None} == {}
    assert (after.generation, after.resume_attempts) == (before.generation + 1, 0)
    assert (after.branch, after.session_id, after.spec) == (before.branch, before.session_id, before.spec)
    assert pending(scene) == []
    assert scene.store.view("alerts", all=0) == []
    assert scene.kinds(task_id)[-3:] == ["message.sent", "alert.acknowledged", "task.queued"]
    send(scene, task_id)
    assert scene.get(task_id).generation == after.generation, "the second one waits with the first"
    again = scene.take(scene.open_host())
    run_id = scene.intend_run(again)
    turn = scene.write(lambda tx: tx.messages.deliver(tx.tasks.get(task_id), run_id, scene.now))
    assert [(one.number, one.text) for one in turn.new] == [(1, "go on"), (2, "go on")]
    turn = scene.write(lambda tx: tx.messages.deliver(tx.tasks.get(task_id), run_id, scene.now))
    assert turn.new == ()


@pytest.mark.parametrize("action", [PolicyAction.FAIL, PolicyAction.PAUSE])
def test_what_somebody_did_since_is_saved_before_going_back(shop: Shop, action: PolicyAction) -> None:
    """R-RES-11: as with a resume. A lost workspace still comes back from its checkpoint."""
    shop.save(1)
    shop.store.write(lambda tx: tx.checkpoints.choose("task1", 1, "us", NOW, automatic=True))
    shop.store.write(lambda tx: tx.checkpoints.record_saved_content(shop.ownership))
    shop.settle(action, pause=PauseReason.OPERATOR if action is PolicyAction.PAUSE else None)
    shop.store.write(lambda tx: tx.messages.send("task1", "go on", "ann", NOW))
    chosen = shop.store.write(lambda tx: tx.checkpoints.chosen("task1"))
    assert chosen is not None
    assert not chosen.saved


@pytest.mark.parametrize("action", [PolicyAction.FAIL, PolicyAction.PAUSE])
def test_a_checkpoint_that_a_person_chose_stands_in_a_pause_alone(shop: Shop, action: PolicyAction) -> None:
    """R-RES-11: a message resumes a paused task, so it keeps the choice. After an end it begins where the task is."""
    shop.save(1)
    shop.store.write(lambda tx: tx.checkpoints.choose("task1", 1, "ann", NOW))
    shop.settle(action, pause=PauseReason.OPERATOR if action is PolicyAction.PAUSE else None)
    shop.store.write(lambda tx: tx.messages.send("task1", "go on", "ann", NOW))
    chosen = shop.store.write(lambda tx: tx.checkpoints.chosen("task1"))
    assert (chosen is not None) == (action is PolicyAction.PAUSE)
