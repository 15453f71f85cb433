"""The facet `checkpoints` of a store: under the fence, the newest kept, a choice that survives, and what may go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.base.errors import NotFound, NotOwner
from holdfast.base.instant import Instant
from holdfast.core.model import PauseReason, Repo, Task, TaskSpec
from holdfast.core.runs.outcome import Outcome, Verdict
from holdfast.core.runs.policy import Decision, PolicyAction
from holdfast.store.port.transaction import Host, Ownership
from holdfast.store.port.workspaces import Checkpoint
from holdfast.store.sqlite.engine.store import SqliteStore

NOW = Instant(wall=1000.0, boottime=10.0, boot_id="boot")


class Shop:
    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        host = Host(id="host", boot_id="boot", pid=1, start_ticks=1, version="0", agents=1)
        store.write(lambda tx: tx.hosts.open(host, 30.0, NOW))
        self.repo: Repo = store.write(lambda tx: tx.workspaces.register_repo("/repo", "/repo/.git", NOW))
        spec = TaskSpec(id="task1", repo_id=self.repo.id, prompt="work", agent="command")
        store.write(lambda tx: tx.tasks.add(spec, NOW))
        task = store.write(lambda tx: tx.tasks.claim("host", NOW))
        assert task is not None
        self.ownership = Ownership(task_id="task1", fence=task.fence, owner="host")

    def checkpoint(self, number: int) -> Checkpoint:
        return Checkpoint(
            task_id="task1",
            number=number,
            repo_id=self.repo.id,
            workspace_id="ws",
            ref=f"refs/checkpoint/task1/{number}",
            commit=f"c{number}",
            base=None,
            key=f"k{number}",
            files=1,
            why="a test",
            session_id=f"session{number}",
        )

    def save(self, number: int, keep: int = 5) -> None:
        self.store.write(lambda tx: tx.checkpoints.save(self.ownership, self.checkpoint(number), keep, NOW))

    def settle(self, action: PolicyAction, **details: object) -> None:
        verdict = Verdict(outcome=Outcome.CANCELLED, reason="a test")
        decision = Decision(action=action, reason="a test", **details)  # type: ignore[arg-type]  # fields of it
        self.store.write(lambda tx: tx.tasks.settle(self.ownership, None, verdict, decision, None, NOW))

    def task(self) -> Task:
        return self.store.write(lambda tx: tx.tasks.get("task1"))


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    store = SqliteStore(str(tmp_path))
    try:
        yield Shop(store)
    finally:
        store.close()


def test_the_newest_are_kept_and_the_chosen_one(shop: Shop) -> None:
    """R-RES-11: the last 5 by default; one that is about to be gone back to stays until then."""
    for number in (1, 2):
        shop.save(number, keep=2)
    shop.store.write(lambda tx: tx.checkpoints.choose("task1", 1, "ann", NOW))
    for number in (3, 4):
        shop.save(number, keep=2)
    dropped = shop.store.write(lambda tx: tx.checkpoints.dropped())
    assert [one.number for one in dropped] == [2]
    with pytest.raises(NotFound, match="no checkpoint 2: kept are 1, 3, 4"):
        shop.store.write(lambda tx: tx.checkpoints.get("task1", 2))
    assert shop.store.write(lambda tx: tx.checkpoints.next_number("task1")) == 5
    shop.store.write(lambda tx: tx.checkpoints.forget(dropped))
    assert shop.store.write(lambda tx: tx.checkpoints.dropped()) == []
    stale = replace(shop.ownership, fence=shop.ownership.fence + 1)
    with pytest.raises(NotOwner):
        shop.store.write(lambda tx: tx.checkpoints.save(stale, shop.checkpoint(5), 2, NOW))
    with pytest.raises(NotOwner):
        shop.store.write(lambda tx: tx.checkpoints.failed(stale, None, "why", "reason", NOW))
    shop.store.write(lambda tx: tx.checkpoints.failed(shop.ownership, None, "why", "too large", NOW))
    kinds = [str(row["kind"]) for row in shop.store.view("events", after=0, task="task1", limit=100)]
    assert kinds.count("checkpoint.saved") == 4
    assert kinds[-1] == "checkpoint.failed"


def test_a_choice_stands_until_it_is_carried_out(shop: Shop) -> None:
    """R-RES-06, R-RES-11: an operator's word stands before ours; the session of then comes back with it, unless a
    new one is to begin."""
    for number in (1, 2):
        shop.save(number)
    with pytest.raises(NotFound):
        shop.store.write(lambda tx: tx.checkpoints.choose("task1", 9, "ann", NOW))
    shop.store.write(lambda tx: tx.checkpoints.choose("task1", 2, "us", NOW, automatic=True))
    shop.store.write(lambda tx: tx.checkpoints.choose("task1", 1, "ann", NOW))
    shop.store.write(lambda tx: tx.checkpoints.choose("task1", 2, "us", NOW, automatic=True))
    chosen = shop.store.write(lambda tx: tx.checkpoints.chosen("task1"))
    assert chosen is not None
    assert (chosen.checkpoint.number, chosen.by, chosen.automatic, chosen.saved) == (1, "ann", False, False)
    assert shop.task().session_id is None
    shop.store.write(lambda tx: tx.checkpoints.record_saved_content(shop.ownership))
    assert shop.store.write(lambda tx: tx.checkpoints.chosen("task1")).saved  # type: ignore[union-attr]  # it is there
    shop.store.write(lambda tx: tx.checkpoints.record_restored(shop.ownership, 1, "new", "as asked", NOW))
    assert shop.store.write(lambda tx: tx.checkpoints.chosen("task1")) is None
    restored = shop.store.write(lambda tx: tx.checkpoints.get("task1", 1))
    assert restored.workspace_id == "new", "it is the last checkpoint of the workspace that was made from it"
    shop.store.write(lambda tx: tx.checkpoints.choose("task1", 2, "us", NOW, automatic=True))
    shop.store.write(
        lambda tx: tx.checkpoints.record_not_restored(shop.ownership, 2, "its branch has newer commits", NOW)
    )
    assert shop.store.write(lambda tx: tx.checkpoints.chosen("task1")) is None


def test_a_choice_that_cannot_be_carried_out_waits_for_an_operator(shop: Shop) -> None:
    """R-RES-06: nothing is spent, the choice is withdrawn, and the task does not continue by itself."""
    shop.save(1)
    shop.store.write(lambda tx: tx.checkpoints.choose("task1", 1, "ann", NOW))
    shop.store.write(lambda tx: tx.checkpoints.withdraw_choice("task1", 1, "it is gone", NOW))
    assert shop.store.write(lambda tx: tx.checkpoints.chosen("task1")) is not None, "only of a paused task"
    shop.settle(PolicyAction.PAUSE, pause=PauseReason.OPERATOR, resume_after=NOW.wall + 5)
    later = NOW._replace(wall=NOW.wall + 6)
    assert shop.store.write(lambda tx: tx.tasks.tasks_due_to_resume(later)) == ["task1"]
    shop.store.write(lambda tx: tx.checkpoints.withdraw_choice("task1", 1, "it is gone", later))
    assert shop.store.write(lambda tx: tx.tasks.tasks_due_to_resume(later)) == []
    assert shop.store.write(lambda tx: tx.checkpoints.chosen("task1")) is None
    assert shop.task().resume_attempts == 0
    assert shop.task().pause_reason is PauseReason.OPERATOR
    [alert] = shop.store.view("alerts", all=0)
    assert "stays paused" in str(alert["message"])


def test_what_somebody_does_in_a_pause_is_saved_before_going_back(shop: Shop) -> None:
    """R-RES-11: a going back that a pause interrupted saved what lay there before it, not what came since."""
    shop.save(1)
    shop.store.write(lambda tx: tx.checkpoints.choose("task1", 1, "ann", NOW))
    shop.store.write(lambda tx: tx.checkpoints.record_saved_content(shop.ownership))
    shop.settle(PolicyAction.PAUSE, pause=PauseReason.OPERATOR)
    shop.store.write(lambda tx: tx.tasks.resume("task1", "ann", NOW))
    chosen = shop.store.write(lambda tx: tx.checkpoints.chosen("task1"))
    assert chosen is not None
    assert not chosen.saved


def test_a_lost_workspace_comes_back_after_a_retry_too(shop: Shop) -> None:
    """R-RES-11: its set-up failed, say, before the new one was there: the checkpoint is still all there is of it."""
    shop.save(1)
    shop.store.write(lambda tx: tx.checkpoints.choose("task1", 1, "us", NOW, automatic=True))
    shop.settle(PolicyAction.FAIL, failure="failed")
    shop.store.write(lambda tx: tx.tasks.retry("task1", "ann", False, NOW))
    assert shop.store.write(lambda tx: tx.checkpoints.chosen("task1")) is not None
    shop.store.write(lambda tx: tx.tasks.cancel_waiting("task1", "ann", "", NOW))
    shop.store.write(lambda tx: tx.checkpoints.expire(NOW.wall + 1, 0.0))
    assert shop.store.write(lambda tx: tx.checkpoints.chosen("task1")) is not None
    shop.store.write(lambda tx: tx.tasks.retry("task1", "ann", True, NOW))
    assert shop.store.write(lambda tx: tx.checkpoints.chosen("task1")) is None


def test_what_ended_lets_its_checkpoints_go(shop: Shop) -> None:
    """R-RES-11: pruned after completion; of a failed task only later. A retry forgets what was chosen before."""
    shop.save(1)
    shop.store.write(lambda tx: tx.checkpoints.choose("task1", 1, "ann", NOW))
    shop.settle(PolicyAction.FAIL, failure="failed")
    assert shop.store.write(lambda tx: tx.checkpoints.expire(NOW.wall + 1, NOW.wall - 1)) == 0
    shop.store.write(lambda tx: tx.tasks.retry("task1", "ann", False, NOW))
    assert shop.store.write(lambda tx: tx.checkpoints.chosen("task1")) is None
    assert shop.store.write(lambda tx: tx.checkpoints.last("task1")) is not None
    refs = ["refs/checkpoint/task1/1", "refs/checkpoint/task1/2", "refs/checkpoint/gone/1"]
    strangers = shop.store.write(lambda tx: tx.checkpoints.strangers(shop.repo.id, refs))
    assert strangers == ["refs/checkpoint/gone/1"], "an unfinished task may be about to record its newest"
    shop.store.write(lambda tx: tx.tasks.cancel_waiting("task1", "ann", "", NOW))
    assert shop.store.write(lambda tx: tx.checkpoints.expire(NOW.wall + 1, 0.0)) == 0, "the newest may be all there is"
    assert shop.store.write(lambda tx: tx.checkpoints.expire(NOW.wall + 1, NOW.wall + 1)) == 1
    assert [one.ref for one in shop.store.write(lambda tx: tx.checkpoints.dropped())] == refs[:1]
