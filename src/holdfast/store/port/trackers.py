"""The store's contract for outside trackers: which task belongs to which issue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from holdfast.base.instant import Instant
from holdfast.core.runs.outcome import Outcome
from holdfast.core.states import TaskState
from holdfast.core.tasks.trackers import IssueLink, LinkState


def overwritten_alert(repo_id: str, issue: str) -> str:
    """Return the key of the alert that our claim replaced another claim on an issue. The alert stays until a person
    acknowledges it."""
    return f"issue:{repo_id}:{issue}"


class IssueLinks(Protocol):
    """Links between tasks and issues of an outside tracker."""

    def our_name(self, suggested: str) -> str:
        """Return the name of this home in trackers. The first suggestion is kept and all later ones are ignored."""
        ...

    def intend(self, repo_id: str, issue: str, assignee: str, now: Instant) -> IssueLink | None:
        """Record the intent to claim an issue, before the tracker is asked for the issue. Return None if this home has
        the issue, has an unfinished task for it, or gave it up."""
        ...

    def record_intent_again(self, link: IssueLink, assignee: str, now: Instant) -> IssueLink | None:
        """Record the intent to claim an issue again, for a task that waits for its issue. Return None if another task
        of this home has the issue, or if the task does not wait any more."""
        ...

    def link_task(self, link: IssueLink, task_id: str, now: Instant) -> None:
        """Record that the issue is ours and that this is its task, in the transaction that adds the task."""
        ...

    def move(
        self, link: IssueLink, state: LinkState, reason: str, now: Instant, data: Mapping[str, object] | None = None
    ) -> IssueLink | None:
        """Move a link by one compare-and-set, with its event. Return None if the link has moved since it was read."""
        ...

    def drop(self, link: IssueLink, reason: str, now: Instant) -> None:
        """Delete an intent that led to nothing: it has no task, and we have no claim on the issue."""
        ...

    def release_lost_claim(self, link: IssueLink, reason: str, now: Instant) -> bool:
        """Mark the link as lost. True if its task still waits: then the caller cancels the task in this transaction."""
        ...

    def after_settle(self, task_id: str, state: TaskState, outcome: Outcome, now: Instant) -> None:
        """Release the claim on a crashed task's issue at once (R-CRASH-03), in the transaction that settles the
        task."""
        ...

    def of_task(self, task_id: str) -> IssueLink | None: ...
    def open_links(self) -> Sequence[IssueLink]:
        """Return all links for which something may be due."""
        ...

    def room(self, agents: int) -> int:
        """Return how many more tasks could start soon, with `agents` slots."""
        ...

    def answered(self, repo_id: str, kind: str, now: Instant) -> None:
        """Record that the tracker answered. This ends an episode of trouble."""
        ...

    def record_trouble(self, repo_id: str, kind: str, why: str, now: Instant, longest: float) -> None:
        """Record that the tracker did not answer. One event is emitted per episode. The tracker is asked again after
        a back-off."""
        ...

    def waiting_trackers(self, now: Instant) -> Mapping[str, float]:
        """Return the trackers that are not asked now, as a mapping from repository to the seconds until they are asked
        again."""
        ...

    def end_backoffs(self) -> None:
        """End all back-offs, because an operator wants every tracker to be asked."""
        ...
