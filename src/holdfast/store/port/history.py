"""The store's contract for retention, for the history of crashes, and for deliveries of alerts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.base.dataclass import dataclass
from holdfast.base.instant import Instant
from holdfast.core.model import Repo
from holdfast.core.tasks.alerts import (
    AlertChange,
    Delivery,
    DeliveryPlan,
    Ending,
    RecentNotices,
    TogetherNotice,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class EventWindow:
    """The part of the history that one call examined. `last`: the last event of it. None: no later event is old
    enough."""

    last: int | None
    dropped: int


@dataclass(frozen=True, kw_only=True, slots=True)
class OldTask:
    """A task that may be forgotten, and its runs. The directories of the runs are removed before the task is
    forgotten."""

    id: str
    seq: int
    runs: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RepoRecords:
    """The things that a repository's tasks have outside the store."""

    runs: tuple[str, ...]
    workspaces: tuple[str, ...]


class OldRecords(Protocol):
    """The deletion of old records. Every call is bounded by `limit`. `before` is a moment on the wall clock."""

    def drop_events(self, after: int, before: float, limit: int) -> EventWindow: ...
    def filter_finished_runs(self, run_ids: Sequence[str], before: float) -> Sequence[str]:
        """Return those of `run_ids` that were settled before that moment and whose task has ended."""
        ...

    def find_old_tasks(self, below: int, before: float, limit: int) -> tuple[Sequence[OldTask], int | None]:
        """Examine the next `limit` tasks below position `below` of the queue. Return the old ones among them, and the
        position at which to continue (None at the end)."""
        ...

    def forget_task(self, task: OldTask, before: float) -> bool:
        """Delete the task and all that belongs to it. False if the task may no longer be forgotten."""
        ...

    def records_of_repo(self, repo_id: str) -> RepoRecords: ...
    def refuse_unfinished(self, repo: Repo) -> None:
        """Raise Conflict if a task of the repository is unfinished, or if an unfinished task needs one of them."""
        ...

    def forget_repo(self, repo: Repo, now: Instant) -> None:
        """Delete a repository with all its tasks and everything that belongs to them. None of the tasks may be
        unfinished."""
        ...

    def drop_small_records(self, before: float, limit: int) -> int:
        """Delete old answered requests, acknowledged alerts, stopped supervisors and usage. Return how many rows
        were deleted."""
        ...


class Crashes(Protocol):
    """The history of crashes: kept for longer than runs and tasks, and bounded in number.

    Its rows are written by `tasks.settle`, in the same transaction.
    """

    def forget(self, before: float, most: int, limit: int) -> int:
        """Delete at most `limit` crashes that were recorded before that moment or are the oldest beyond `most`."""
        ...


class Deliveries(Protocol):
    """The outbox of alerts: deliveries to people.

    A notice is written in the transaction that raises, acknowledges or closes its alert. The events facet does that.
    Then the supervisor plans the notice (which targets), counts an attempt before it is made, and records the result.
    Every write is a compare-and-set on the number of attempts: two senders cannot both record the same attempt.
    """

    def find_unplanned(self, limit: int) -> Sequence[AlertChange]:
        """Return notices that have no targets yet, oldest first."""
        ...

    def find_endings(self, limit: int) -> Sequence[Ending]:
        """Return the endings of tasks that were not examined for notices yet, oldest first, ready to be shown."""
        ...

    def read_recent(self, window: float, now: Instant) -> RecentNotices:
        """Return a summary of the notices of the last `window` seconds."""
        ...

    def see_endings(self, seq: int) -> None:
        """Record that all endings up to the event `seq` were examined for notices."""
        ...

    def put_together(self, together: TogetherNotice, now: Instant) -> None: ...
    def plan(self, notice: AlertChange, plan: DeliveryPlan) -> None: ...
    def next_deliveries(self) -> Sequence[Delivery]:
        """Return the oldest waiting delivery of each target. The deliveries to one target are sent in order, so the
        later ones wait."""
        ...

    def begin(self, delivery: Delivery, delay: float, now: Instant) -> Delivery:
        """Count an attempt before it is made. If the supervisor dies during the attempt, the next attempt may begin
        after `delay` seconds."""
        ...

    def record_sent(self, delivery: Delivery, told: str, now: Instant) -> None: ...
    def failed(self, delivery: Delivery, told: str, delay: float, now: Instant) -> None: ...
    def give_up(self, delivery: Delivery, told: str, now: Instant) -> None: ...
    def waiting(self) -> int:
        """Return how many notices or deliveries still have to be planned or sent."""
        ...

    def forget(self, before: float, limit: int) -> int:
        """Delete notices from before that moment that have no waiting delivery."""
        ...
