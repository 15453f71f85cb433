"""Reasons for which a task waits, as facts: the closed set of kinds, and the facts of each."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from holdfast.base.dataclass import dataclass


class WaitKind(StrEnum):
    """The kinds of things that a task can wait for. The first kinds belong to queued tasks, the last kinds to paused
    tasks."""

    NO_SUPERVISOR = "no_supervisor"
    DEPENDENCIES = "dependencies"
    NOT_BEFORE = "not_before"
    BACK_OFF = "back_off"  # a run ended badly; the next one starts later
    PRESSURE = "machine_pressure"
    ACCOUNT = "account"  # parked or stopped
    BUDGET = "budget"  # shared, and spent
    HOLD = "hold"  # of a provider, an account or the fleet
    ISSUE = "issue"
    WORKER = "worker"  # the task is bound to it
    NO_WORKER = "no_worker"  # only workers run agents here, and none of them can take the task
    ANY_WORKER = "any_worker"  # only workers run agents here
    CHECKOUT = "checkout"
    QUEUED_BEHIND = "queued_behind"
    SLOTS = "slots_full"
    NEXT = "next"
    APPROVAL = "approval"
    OPERATOR_PAUSE = "operator_pause"
    LIMIT_PAUSE = "limit_pause"
    LOGIN_PAUSE = "login_pause"
    BUDGET_PAUSE = "budget_pause"
    GATE_PAUSE = "gate_pause"
    OUTAGE_PAUSE = "outage_pause"


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitCause:
    """One thing that a task waits for: a task, an account, a budget, a hold or a worker."""

    name: str
    state: str = ""
    reason: str = ""
    since: float | None = None
    until: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitReason:
    """One reason for which a task waits. Moments are wall time."""

    kind: WaitKind
    name: str = ""  # the agent, worker, issue, repository or pause reason
    text: str = ""  # the recorded reason
    causes: tuple[WaitCause, ...] = ()
    tasks: tuple[str, ...] = ()  # the tasks in the way
    count: int | None = None  # tasks ahead, agents at work, or counted resumes of a paused task
    limit: int | None = None  # agents at once, or resumes in all (None: the resume after this pause is free)
    until: float | None = None
    command: str | None = None  # ends the wait
    needs_person: bool = False  # True: time alone does not end it
    fails_at_limit: bool = False  # True: after the next resume of this pause, the task fails at its next limit

    @property
    def resumes_left(self) -> int | None:
        """The resumes that a paused task has left. None: the resume after its pause is free."""
        return None if self.limit is None or self.count is None else max(0, self.limit - self.count)


class Candidate(NamedTuple):
    """The facts of a queued task that decide which accounts, budgets, holds and workers apply to it."""

    id: str
    agent: str
    account: str | None  # the one that the task is bound to
    provider: str | None
    labels: Mapping[str, str]
    repo: str = ""


class SupervisorFacts(NamedTuple):
    """The facts of a supervisor that do not change with each heartbeat."""

    pid: int
    agents: int
    held: str | None
