"""The terms of a claim: which waiting tasks may be claimed now, and for which worker lane. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from holdfast.base.dataclass import dataclass
from holdfast.core.dispatch.accounts import NO_BLOCKED_TASKS, BlockedTasks


@dataclass(frozen=True, kw_only=True, slots=True)
class Lane:
    """The lane of one named worker. It takes tasks of its agent (None: any agent) with all of its labels, and runs them
    under its account."""

    name: str
    agent: str | None = None
    account: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class ClaimTerms:
    """The terms of one claim. They are composed in one place (supervisor/dispatch/terms.py)."""

    blocked: BlockedTasks = NO_BLOCKED_TASKS  # tasks whose accounts are parked or stopped
    providers_down: frozenset[str] = frozenset()  # providers that do not answer, for every agent and account
    labels: frozenset[str] = frozenset()  # `key=value` labels whose tasks may not start now
    full_repos: frozenset[str] = frozenset()  # repositories whose file system is short of space
    held: bool = False  # no task may start now
    lane: Lane | None = None  # None: an anonymous lane, which takes any waiting task

    def __bool__(self) -> bool:
        """True if a claim under these terms has to check more than the queue itself."""
        return bool(self.blocked or self.providers_down or self.labels or self.full_repos or self.held or self.lane)


ANY_TERMS = ClaimTerms()


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatorBlocks:
    """Obstacles that time does not remove: the tasks that they block wait until an operator acts."""

    blocked: BlockedTasks = NO_BLOCKED_TASKS  # tasks whose accounts are stopped
    labels: frozenset[str] = frozenset()  # `key=value` labels whose total budget is spent
    held: bool = False  # nothing starts before an operator releases the hold
    # the workers that may claim, if there are no anonymous lanes; None: there are
    lanes: tuple[Lane, ...] | None = None
    auto: bool = True  # False: a task that a limit paused waits for an operator, too


NO_OPERATOR_BLOCKS = OperatorBlocks()
