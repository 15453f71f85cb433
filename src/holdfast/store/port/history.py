"""What a store must do to forget what is old."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.base.instant import Instant
from holdfast.core.model import Repo
from holdfast.core.tasks.alerts import Delivery, Notice, Plan


@dataclass(frozen=True, kw_only=True, slots=True)
class EventWindow:
    """A piece of the history that was looked at. `last` is None when nothing from here on is old enough."""

    last: int | None
    dropped: int


@dataclass(frozen=True, kw_only=True, slots=True)
class OldTask:
    """A task that may be forgotten, and its runs, whose directories go first."""

    id: str
    seq: int
    runs: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RepoRecords:
    """What a repository's tasks have outside the store."""

    runs: tuple[str, ...]
    workspaces: tuple[str, ...]


class History(Protocol):
    """Forgetting what is old. Every call is bounded by `limit`; `before` is a moment on the wall clock."""

    def drop_events(self, after: int, before: float, limit: int) -> EventWindow: ...
    def finished_runs(self, run_ids: Sequence[str], before: float) -> Sequence[str]:
        """Those of `run_ids` that were settled before that moment and whose task has ended."""
        ...

    def forgettable(self, below: int, before: float, limit: int) -> tuple[Sequence[OldTask], int | None]:
        """Old tasks among the next `limit` below that place in the queue, and where to go on; None at the end."""
        ...

    def forget_task(self, task: OldTask, before: float) -> bool: ...
    def things_of(self, repo_id: str) -> RepoRecords: ...
    def refuse_unfinished(self, repo: Repo) -> None:
        """Conflict while a task of that repository, or one that needs one of them, is unfinished."""
        ...

    def forget_repo(self, repo: Repo, now: Instant) -> None:
        """A repository with all its tasks, none of which is unfinished, and whatever belongs to them."""
        ...

    def drop_answered(self, before: float, limit: int) -> int:
        """Answered requests, acknowledged alerts, supervisors that are gone."""
        ...


class Crashes(Protocol):
    """The history of crashes: kept for longer than runs and tasks, and bounded in number."""

    def forget(self, before: float, most: int, limit: int) -> int:
        """Those that were recorded before that moment, and the oldest beyond `most`; `limit` at a time."""
        ...


class Notices(Protocol):
    """Alerts on their way to people: an outbox."""

    def unplanned(self, limit: int) -> Sequence[Notice]:
        """What nobody has looked at yet, oldest first."""
        ...

    def plan(self, notice: Notice, plan: Plan) -> None: ...
    def heads(self) -> Sequence[Delivery]:
        """For each target the oldest that waits: in order, so the others wait behind it."""
        ...

    def begin(self, delivery: Delivery, delay: float, now: Instant) -> Delivery:
        """Count an attempt, before it is made; if we die in it, the next may begin after `delay`."""
        ...

    def sent(self, delivery: Delivery, told: str, now: Instant) -> None: ...
    def failed(self, delivery: Delivery, told: str, delay: float, now: Instant) -> None: ...
    def give_up(self, delivery: Delivery, told: str, now: Instant) -> None: ...
    def waiting(self) -> int:
        """How many are still to be planned or sent."""
        ...

    def forget(self, before: float, limit: int) -> int:
        """Those of before that moment that nobody waits for."""
        ...
