"""What a store must do for which task belongs to which issue of an outside tracker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from holdfast.base.instant import Instant
from holdfast.core.runs.outcome import Outcome
from holdfast.core.states import TaskState
from holdfast.core.tasks.trackers import Link, LinkState


def overwritten_alert(repo_id: str, issue: str) -> str:
    """The key of the alert that our word went over somebody else's; a person acknowledges it."""
    return f"issue:{repo_id}:{issue}"


class Links(Protocol):
    """Which task belongs to which issue of an outside tracker."""

    def our_name(self, suggested: str) -> str:
        """Who this home is to trackers: the first suggestion stays for ever."""
        ...

    def intend(self, repo_id: str, issue: str, assignee: str, now: Instant) -> Link | None:
        """Before the tracker is asked. None: this home has it, has an unfinished task for it, or gave it up."""
        ...

    def intend_again(self, link: Link, assignee: str, now: Instant) -> Link | None:
        """For a task that waits for its issue. None: another task of ours has it, or nothing is to be done any more."""
        ...

    def belongs_to(self, link: Link, task_id: str, now: Instant) -> None:
        """It is ours, and this is its task: in the transaction that adds the task."""
        ...

    def move(
        self, link: Link, state: LinkState, reason: str, now: Instant, data: Mapping[str, object] | None = None
    ) -> Link | None:
        """One compare-and-set with its event. None: it stands elsewhere by now."""
        ...

    def drop(self, link: Link, reason: str, now: Instant) -> None:
        """An intent of which nothing came: no task, and no claim of ours."""
        ...

    def stand_back(self, link: Link, reason: str, now: Instant) -> bool:
        """Lost while its task waits: the task is cancelled in this transaction. False: it does not wait any more."""
        ...

    def after_settle(self, task_id: str, state: TaskState, outcome: Outcome, now: Instant) -> None:
        """R-CRASH-03, in the transaction of the settle: a crashed task's claim goes back at once."""
        ...

    def of_task(self, task_id: str) -> Link | None: ...
    def unsettled(self) -> Sequence[Link]:
        """All that something may be due for."""
        ...

    def room(self, agents: int) -> int:
        """How many more tasks could start soon."""
        ...

    def answered(self, repo_id: str, kind: str, now: Instant) -> None:
        """The tracker answered; an episode of trouble is over."""
        ...

    def troubled(self, repo_id: str, kind: str, why: str, now: Instant) -> None:
        """It did not: told once per episode; asked again after a back-off."""
        ...

    def waiting_trackers(self, now: Instant) -> Mapping[str, float]:
        """Those that are not asked now: repository → seconds until they are."""
        ...

    def ask_at_once(self) -> None:
        """An operator wants every tracker looked at: back-offs are over."""
        ...
