"""What a store must do for issues of outside trackers, and what is due for each."""

from __future__ import annotations

import pytest
from tests.contracts.store_contract import COMPLETE, FAIL, REQUEUE, START, Scene, ended_with, scene
from tests.contracts.test_sqlite_store import bench

from holdfast.core.runs.outcome import Outcome
from holdfast.core.states import TaskState
from holdfast.core.tasks.trackers import IssueLink, LinkState, LinkStep, next_link_step, tracker_backoff
from holdfast.store.port.transaction import Ownership

__all__ = ["bench", "scene"]


def intend(scene: Scene, issue: str = "bd-1") -> IssueLink | None:
    return scene.write(lambda tx: tx.issue_links.intend(scene.repo.id, issue, "us", scene.now))


def taken(scene: Scene, issue: str = "bd-1") -> IssueLink:
    """An issue that is ours, with its task in the queue."""
    link = intend(scene, issue)
    assert link is not None
    task = scene.add()
    scene.write(lambda tx: tx.issue_links.link_task(link, task.id, scene.now))
    return held(scene, task.id)


def held(scene: Scene, task_id: str) -> IssueLink:
    link = scene.write(lambda tx: tx.issue_links.of_task(task_id))
    assert link is not None
    return link


def move(scene: Scene, link: IssueLink, state: LinkState) -> IssueLink | None:
    return scene.write(lambda tx: tx.issue_links.move(link, state, "because", scene.now))


def again(scene: Scene, link: IssueLink) -> IssueLink | None:
    return scene.write(lambda tx: tx.issue_links.record_intent_again(link, "us", scene.now))


def end(scene: Scene, ownership: Ownership, how: object, outcome: Outcome) -> TaskState:
    verdict = ended_with(outcome)
    state = scene.settle(ownership, how, scene.ended_run(ownership, verdict), verdict)  # type: ignore[arg-type]
    scene.write(lambda tx: tx.issue_links.after_settle(ownership.task_id, state, outcome, scene.now))
    return state


class TestLinks:
    def test_an_issue_is_intended_once_and_its_task_starts_only_while_it_is_ours(self, scene: Scene) -> None:
        """R-CRASH-03, R-CRASH-08: released by the settle of a crash, in its transaction; then claimed again, or not."""
        link = taken(scene)
        assert intend(scene) is None, "never two tasks for one issue"
        host = scene.open_host()
        ownership = scene.take(host)
        assert end(scene, ownership, REQUEUE, Outcome.EXTERNAL_KILL) is TaskState.QUEUED
        link = held(scene, ownership.task_id)
        assert link.state is LinkState.RELEASING
        assert scene.claim(host) is None, "its issue is not ours now"
        scene.reopen()
        released = move(scene, link, LinkState.RELEASED)
        assert released is not None
        assert move(scene, link, LinkState.RELEASED) is None, "a compare-and-set"
        assert intend(scene) is None, "its own task waits for it"
        intended = again(scene, released)
        assert intended is not None
        assert scene.claim(host) is None
        assert move(scene, intended, LinkState.CLAIMED) is not None
        assert scene.claim(host) is not None

    @pytest.mark.parametrize("outcome", [Outcome.TIMEOUT, Outcome.STOPPED])
    def test_only_a_crash_gives_an_issue_back(self, scene: Scene, outcome: Outcome) -> None:
        """R-CRASH-01: a stop that was asked for, or a timeout, is none."""
        taken(scene)
        host = scene.open_host()
        ownership = scene.take(host)
        end(scene, ownership, REQUEUE, outcome)
        assert held(scene, ownership.task_id).state is LinkState.CLAIMED
        assert scene.claim(host) is not None

    def test_what_came_to_nothing_is_not_taken_again_but_by_a_retry(self, scene: Scene) -> None:
        """That would loop: fail, give back, take, fail, …"""
        taken(scene)
        ownership = scene.take(scene.open_host())
        end(scene, ownership, FAIL, Outcome.FAILED)
        link = held(scene, ownership.task_id)
        assert link.state is LinkState.CLAIMED, "the service gives it back, by what the task's state says"
        assert next_link_step(link, scene.now, closes=True, room=False) is LinkStep.RELEASE
        releasing = move(scene, link, LinkState.RELEASING)
        assert releasing is not None
        move(scene, releasing, LinkState.RELEASED)
        assert intend(scene) is None
        scene.retry(ownership.task_id)
        waiting = held(scene, ownership.task_id)
        assert next_link_step(waiting, scene.now, closes=True, room=True) is LinkStep.CLAIM_AGAIN
        assert again(scene, waiting) is not None

    def test_one_that_was_lost_or_closed_may_come_again_and_its_old_task_stands_back(self, scene: Scene) -> None:
        link = taken(scene)
        ownership = scene.take(scene.open_host())
        move(scene, link, LinkState.LOST)
        assert intend(scene) is None, "its task still runs"
        end(scene, ownership, FAIL, Outcome.FAILED)
        newer = taken(scene)
        assert newer.task_id != ownership.task_id
        scene.retry(ownership.task_id)
        assert again(scene, held(scene, ownership.task_id)) is None, "another task of ours has it"
        waiting = held(scene, ownership.task_id)
        assert scene.write(lambda tx: tx.issue_links.release_lost_claim(waiting, "taken", scene.now)), (
            "it waits: it may be cancelled"
        )

    def test_a_finished_task_is_forgotten_with_its_link_but_not_while_something_is_owed(self, scene: Scene) -> None:
        taken(scene)
        ownership = scene.take(scene.open_host())
        end(scene, ownership, COMPLETE, Outcome.COMPLETED)
        scene.tick(1000)

        def forgettable() -> int:
            found, _below = scene.write(lambda tx: tx.history.find_old_tasks(2**60, scene.now.wall, 100))
            return len(found)

        assert forgettable() == 0, "its issue has to be closed first"
        closing = move(scene, held(scene, ownership.task_id), LinkState.CLOSING)
        assert closing is not None
        move(scene, closing, LinkState.CLOSED)
        assert forgettable() == 1
        found, _below = scene.write(lambda tx: tx.history.find_old_tasks(2**60, scene.now.wall, 100))
        assert scene.write(lambda tx: tx.history.forget_task(found[0], scene.now.wall))
        assert scene.store.view("links") == []

    def test_trouble_is_told_once_waits_longer_and_ends_with_a_clock_that_was_set_back(self, scene: Scene) -> None:
        """R-CRASH-08: logged, retried, never fatal."""
        for failures in (1, 2, 3):
            scene.write(lambda tx: tx.issue_links.record_trouble(scene.repo.id, "beads", "no answer", scene.now, 300.0))
            waits = scene.write(lambda tx: tx.issue_links.waiting_trackers(scene.now))
            assert waits == {scene.repo.id: tracker_backoff(failures, 300.0)}
        assert tracker_backoff(5000, 300.0) == 300.0
        years_ago = scene.now._replace(wall=scene.now.wall - 3e8)
        assert scene.write(lambda tx: tx.issue_links.waiting_trackers(years_ago)) == {}
        kinds = [event["kind"] for event in scene.store.view("events", after=0, task=None, limit=100)]
        assert kinds.count("tracker.trouble") == 1
        scene.write(lambda tx: tx.issue_links.end_backoffs())
        assert scene.write(lambda tx: tx.issue_links.waiting_trackers(scene.now)) == {}
        for _twice in range(2):
            scene.write(lambda tx: tx.issue_links.answered(scene.repo.id, "beads", scene.now))
        kinds = [event["kind"] for event in scene.store.view("events", after=0, task=None, limit=100)]
        assert kinds.count("tracker.recovered") == 1

    def test_a_home_keeps_its_name_and_an_intent_without_a_task_can_be_dropped(self, scene: Scene) -> None:
        assert scene.write(lambda tx: tx.issue_links.our_name("first")) == "first"
        scene.reopen()
        assert scene.write(lambda tx: tx.issue_links.our_name("second")) == "first"
        link = intend(scene)
        assert link is not None
        scene.write(lambda tx: tx.issue_links.drop(link, "not ours", scene.now))
        assert intend(scene) is not None
        assert scene.write(lambda tx: tx.issue_links.room(2)) == 2


def test_what_is_due_for_every_pair_of_states() -> None:
    """A table: each link state against each state of its task."""
    due = {
        (state, task): next_link_step(
            IssueLink(id=1, repo_id="r", issue="i", state=state, assignee="us", task_id="t", task_state=task),
            START,
            closes=True,
            room=True,
        )
        for state in LinkState
        for task in (None, *TaskState)
    }
    assert {step for (state, _task), step in due.items() if state is LinkState.RELEASING} == {LinkStep.RELEASE}
    assert {task for (state, task), step in due.items() if step is LinkStep.CLOSE and state is LinkState.CLAIMED} == {
        TaskState.COMPLETED
    }
    assert {state for (state, task), step in due.items() if step is LinkStep.CLAIM_AGAIN} == {
        LinkState.INTENDED,
        LinkState.RELEASED,
        LinkState.LOST,
    }
    for final in (LinkState.CLOSED, LinkState.LEFT):
        assert {step for (state, _task), step in due.items() if state is final} == {None}
    assert due[LinkState.LOST, TaskState.COMPLETED] is None, "what a person has is left alone"
    assert due[LinkState.CLAIMED, TaskState.PAUSED] is LinkStep.CHECK, "a paused task keeps its claim"
