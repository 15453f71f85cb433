"""What every store must do about subtasks: each cell of core/tasks/subtasks.py, in the parent's own transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.contracts.store_contract import (
    CANCEL,
    CLEAN,
    COMPLETE,
    FAIL,
    PAUSE,
    REQUEUE,
    START,
    Scene,
    at_once,
    ended_with,
    refusals,
)
from tests.contracts.test_sqlite_store import SqliteBench

from holdfast.base.errors import Conflict
from holdfast.core.model import RequestKind, Task, TaskSpec
from holdfast.core.runs.outcome import Outcome
from holdfast.core.runs.policy import Decision
from holdfast.core.states import TaskState
from holdfast.core.task_settings import SubtaskRules
from holdfast.core.tasks.subtasks import FATES, PARENT_MOVES, SubtaskFate, fate_of_subtask
from holdfast.store.port.transaction import Ownership, Transaction


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    bench = SqliteBench(tmp_path)
    yield Scene(bench)
    bench.close_all()


class Family:
    """A running parent with a subtask in every state; and one more, which waits below the one that completed."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.host = scene.open_host()
        self.ownership = scene.running(self.host)
        self.parent = self.ownership.task_id
        self.children = {state: self._child(state) for state in TaskState}
        self.grandchild = scene.add(parent_id=self.children[TaskState.COMPLETED]).id
        self.before = self.states()

    def _child(self, state: TaskState) -> str:
        if state is TaskState.QUEUED:
            return self.scene.add(parent_id=self.parent).id
        if state is TaskState.PAUSED:
            return self.scene.paused(host=self.host, parent_id=self.parent)
        ownership = self.scene.running(self.host, parent_id=self.parent)
        decisions = {TaskState.COMPLETED: COMPLETE, TaskState.FAILED: FAIL, TaskState.CANCELLED: CANCEL}
        if state in decisions:
            self.scene.settle(ownership, decisions[state], self.scene.ended_run(ownership), disposition=CLEAN)
        return ownership.task_id

    def states(self) -> dict[TaskState, TaskState]:
        return {state: self.scene.state(child) for state, child in self.children.items()}

    def asked(self) -> list[str]:
        pending = self.scene.write(lambda tx: tx.requests.pending())
        return [str(request.task_id) for request in pending if request.kind is RequestKind.CANCEL]


def _settled(scene: Scene, family: Family, decision: Decision) -> None:
    scene.settle(family.ownership, decision, scene.ended_run(family.ownership), disposition=CLEAN)


def _paused(scene: Scene, family: Family) -> None:
    _settled(scene, family, PAUSE)


def _resumed(scene: Scene, family: Family) -> None:
    _paused(scene, family)
    assert scene.resume(family.parent).allowed


def _claimed(scene: Scene, family: Family) -> None:
    _requeued(scene, family)
    assert scene.take(family.host).task_id == family.parent  # it outranks them


def _requeued(scene: Scene, family: Family) -> None:
    _settled(scene, family, REQUEUE)


def _failed_by_the_resume_limit(scene: Scene, family: Family) -> None:
    _paused(scene, family)
    while scene.resume_due(family.parent).allowed:
        ownership = scene.take(family.host)
        scene.settle(ownership, PAUSE, scene.ended_run(ownership))


def _retried(scene: Scene, family: Family) -> None:
    _settled(scene, family, FAIL)
    scene.retry(family.parent)


def _cancelled_while_it_waits(scene: Scene, family: Family) -> None:
    _paused(scene, family)
    scene.cancel(family.parent)


MOVES: dict[str, tuple[TaskState, Callable[[Scene, Family], None]]] = {
    "pauses": (TaskState.PAUSED, _paused),
    "is resumed": (TaskState.QUEUED, _resumed),
    "is requeued": (TaskState.QUEUED, _requeued),
    "is retried": (TaskState.QUEUED, _retried),
    "is claimed": (TaskState.RUNNING, _claimed),
    "completes": (TaskState.COMPLETED, lambda scene, family: _settled(scene, family, COMPLETE)),
    "fails": (TaskState.FAILED, lambda scene, family: _settled(scene, family, FAIL)),
    "fails by the resume limit": (TaskState.FAILED, _failed_by_the_resume_limit),
    "is cancelled at work": (TaskState.CANCELLED, lambda scene, family: _settled(scene, family, CANCEL)),
    "is cancelled while it waits": (TaskState.CANCELLED, _cancelled_while_it_waits),
}


@pytest.mark.parametrize("move", MOVES)
def test_what_a_parents_move_means_for_subtasks_in_every_state(move: str, scene: Scene) -> None:
    """R-RES-10, and every other cell of the table."""
    after, go = MOVES[move]
    family = Family(scene)
    go(scene, family)
    assert scene.state(family.parent) is after
    gone = {state for state, now in family.before.items() if fate_of_subtask(after, now) is SubtaskFate.CANCELLED}
    ending = {state for state, now in family.before.items() if fate_of_subtask(after, now) is SubtaskFate.ENDING}
    assert {state for state, now in family.states().items() if now is not family.before[state]} == gone
    assert all(now is TaskState.CANCELLED for state, now in family.states().items() if state in gone)
    assert family.asked() == [family.children[state] for state in TaskState if state in ending]
    if after is TaskState.CANCELLED:
        assert scene.state(family.grandchild) is TaskState.CANCELLED, "all of the tree goes"
        assert family.parent in str(scene.row(family.grandchild)["reason"])


def test_the_moves_cover_the_table() -> None:
    assert set(FATES) == set(PARENT_MOVES) == set(TaskState) == {after for after, _go in MOVES.values()}
    assert all(set(row) == set(TaskState) for row in FATES.values())


@pytest.mark.parametrize(("decision", "state"), [(COMPLETE, "completed"), (FAIL, "failed"), (CANCEL, "cancelled")])
def test_a_subtasks_end_is_told_to_its_parent_and_changes_nothing_there(
    decision: Decision, state: str, scene: Scene
) -> None:
    parent = scene.paused()
    ownership = scene.running(parent_id=parent)
    before = scene.row(parent)
    scene.settle(ownership, decision, scene.ended_run(ownership), disposition=CLEAN)
    assert scene.row(parent) == before
    events = [event for event in scene.events(parent) if event["kind"].startswith("subtask.")]
    assert [event["data"] for event in events] == [
        {"child": ownership.task_id},
        {"child": ownership.task_id, "state": state},
    ]


def test_a_running_subtask_is_asked_once_and_its_own_end_reaches_further(scene: Scene) -> None:
    host = scene.open_host()
    top = scene.running(host)
    middle = scene.running(host, parent_id=top.task_id)
    bottom = scene.running(host, parent_id=middle.task_id)
    for ownership in (top, middle, bottom):
        scene.settle(ownership, CANCEL, scene.ended_run(ownership), disposition=CLEAN)
    pending = scene.write(lambda tx: tx.requests.pending())
    assert [(request.task_id, request.by) for request in pending] == [
        (middle.task_id, "holdfast"),
        (bottom.task_id, "holdfast"),
    ]


def test_who_cancels_may_spare_the_subtasks(scene: Scene) -> None:
    """While it waits by the call, while it runs by the request; unless somebody else asked for all of it."""
    waiting = scene.paused()
    spared = scene.add(parent_id=waiting).id
    scene.write(lambda tx: tx.tasks.cancel_waiting(waiting, "ann", "", scene.now, subtasks=False))
    assert scene.state(spared) is TaskState.QUEUED

    for wishes, left in (([False], TaskState.QUEUED), ([False, True], TaskState.CANCELLED)):
        ownership = scene.running()
        child = scene.add(parent_id=ownership.task_id).id
        for wish in wishes:
            scene.write(partial(_ask, scene, ownership, {"subtasks": wish}))
        scene.settle(ownership, CANCEL, scene.ended_run(ownership), disposition=CLEAN)
        assert scene.state(child) is left


def _ask(scene: Scene, ownership: Ownership, data: dict[str, object], tx: Transaction) -> int:
    return tx.requests.ask(RequestKind.CANCEL, ownership.task_id, "ann", "", data, scene.now)


def test_after_and_parent_together(scene: Scene) -> None:
    """What waits for a task that failed could never start: that is stronger than being its subtask."""
    ownership = scene.running()
    child = scene.add(parent_id=ownership.task_id).id
    behind = scene.add(parent_id=ownership.task_id, needs=(ownership.task_id,)).id
    after_sibling = scene.add(parent_id=ownership.task_id, needs=(behind,)).id
    scene.settle(ownership, FAIL, scene.ended_run(ownership), disposition=CLEAN)
    assert [scene.state(one) for one in (child, behind, after_sibling)] == [
        TaskState.QUEUED,
        TaskState.CANCELLED,
        TaskState.CANCELLED,
    ]


def test_depth_and_number_have_limits_that_the_first_task_set(scene: Scene) -> None:
    """Nothing loops: an agent that splits its task for ever is refused, whatever the settings are by then."""
    root = scene.add(subtasks=SubtaskRules(max_depth=2, most=3)).id
    free = SubtaskRules(max_depth=99, most=99)
    child = scene.add(parent_id=root, subtasks=free).id
    below = scene.add(parent_id=child, subtasks=free).id
    before = scene.everything()
    with pytest.raises(Conflict, match=r"3 levels below the first task; `subtasks.max_depth` allows 2"):
        scene.add(parent_id=below)
    assert scene.everything() == before
    spec = partial(scene.spec, parent_id=child)
    answers = at_once(*(partial(scene.bench.store().write, partial(_add, spec())) for _ in range(2)))
    assert [str(refused) for refused in refusals(answers)] == [
        "The first task above has 3 subtasks already; `subtasks.max` allows 3. Nothing was queued: do the work within "
        "the task itself."
    ]


def _add(spec: TaskSpec, tx: Transaction) -> Task:
    return tx.tasks.add(spec, START)


def test_a_cancelled_task_gets_no_new_subtasks_and_a_failed_one_does(scene: Scene) -> None:
    cancelled = scene.add().id
    scene.cancel(cancelled)
    with pytest.raises(Conflict, match=f"holdfast retry {cancelled}"):
        scene.add(parent_id=cancelled)
    ownership = scene.running()
    scene.settle(ownership, FAIL, scene.ended_run(ownership), disposition=CLEAN)
    assert scene.add(parent_id=ownership.task_id).state is TaskState.QUEUED


def test_a_parent_is_not_forgotten_before_its_subtasks(scene: Scene) -> None:
    ownership = scene.running()
    child = scene.add(parent_id=ownership.task_id).id
    scene.settle(ownership, COMPLETE, scene.ended_run(ownership), disposition=CLEAN)
    scene.tick(400 * 86400)

    def forgettable() -> set[str]:
        found, _ = scene.write(lambda tx: tx.history.find_old_tasks(2**60, scene.now.wall - 86400, 100))
        return {task.id for task in found}

    assert forgettable() == set()
    scene.cancel(child)
    scene.tick(2 * 86400)
    assert forgettable() == {child}, "its parent goes when it is gone"


def test_the_alert_of_a_subtask_ends_with_it(scene: Scene) -> None:
    """Who is cancelled along with another task needs nobody any more."""
    family = Family(scene)
    paused = family.children[TaskState.PAUSED]
    scene.write(lambda tx: tx.events.raise_alert(f"task:{paused}:x", "It waits.", "Resume.", scene.now, task_id=paused))
    scene.write(
        lambda tx: tx.tasks.settle(family.ownership, None, ended_with(Outcome.CANCELLED), CANCEL, CLEAN, scene.now)
    )
    assert scene.state(paused) is TaskState.CANCELLED
    assert scene.write(lambda tx: tx.events.open_alerts()) == []
