"""The ports of the supervisor: what its services need from adapters and from one another, with null objects.

wiring/supervisor.py picks the adapters. A test that drives one attempt alone leaves the null objects in place.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.agents.port import USERS_OWN, Account
from holdfast.alerts.port import Target
from holdfast.base.errors import HoldfastError
from holdfast.base.instant import Instant
from holdfast.core.dispatch.holds import Sight
from holdfast.core.dispatch.spending import Meter
from holdfast.core.health.signs import SignReader
from holdfast.core.model import Repo, StopWhy, Task, TaskSpec, Workspace
from holdfast.core.runs.liveness import Identity
from holdfast.core.runs.outcome import ProcessEnd
from holdfast.core.runs.retry_budgets import Limits
from holdfast.core.schedules.schedule import Schedule
from holdfast.core.task_settings import HealthRules
from holdfast.core.tasks.alerts import NoticeRules
from holdfast.core.tasks.trackers import Issue
from holdfast.core.workflows.handover import Changes
from holdfast.core.workflows.result import Touched
from holdfast.processes.port import LaunchSpec
from holdfast.store.port.transaction import Grip, Transaction
from holdfast.supervisor.settings import Settings
from holdfast.trackers.port import Tracker


class Timekeeper(Protocol):
    """Measures ages in time that passed, whatever the wall clock was set to."""

    def ago(self, age: float, now: Instant) -> float:
        """Return the wall time before which everything is older than `age`."""
        ...

    def shown(self, since: float, now: Instant) -> float:
        """Return what the clock would show if it had not been set forward since it showed `since`."""
        ...


class BelievesTheClock:
    """Ages by the wall clock alone, where jumps are not recorded."""

    def ago(self, age: float, now: Instant) -> float:
        return now.wall - age

    def shown(self, since: float, now: Instant) -> float:
        return now.wall


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuning:
    """The settings that a running supervisor can take over, and what is new about them."""

    settings: Settings
    limits: Limits
    changes: Mapping[str, str]  # key → "4 → 8"
    at_next_start: tuple[str, ...] = ()  # keys that changed and are taken over only then


class SettingsSource(Protocol):
    """Where the settings come from, so that a change can be seen and taken over."""

    def stamp(self) -> object:
        """Differs after every change; cheap."""
        ...

    def read(self) -> Tuning:
        """The settings as they are now; HoldfastError when they have mistakes."""
        ...

    def accept(self, tuning: Tuning) -> None:
        """`tuning` holds now: later changes are counted from it."""
        ...


class FixedSettings:
    """Settings that never change."""

    def stamp(self) -> object:
        return None

    def read(self) -> Tuning:
        raise HoldfastError("These settings are fixed: there is no file to read them from.")

    def accept(self, tuning: Tuning) -> None:
        """Do nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Patient:
    """A run whose health is watched: what the health service needs to know, and the one thing that it may do."""

    run_id: str
    task_id: str
    rules: HealthRules
    signs: SignReader | None  # None: its agent writes no events that we read
    timeout: float
    grace: float
    keeper: Identity | None
    agent: Identity | None
    adopted: bool  # it was launched by an earlier supervisor
    stop: Callable[[StopWhy, str], Awaitable[None]]
    meter: Meter | None = None  # what it may use; None: whatever it wants
    place_of: str = ""  # the member of a parallel stage whose own workspace it works in; empty: the task's
    claimed: Callable[[], bool] = lambda: False  # its agent reported a result: no verdict any more


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """A run whose tree is kept now and then."""

    run_id: str
    task: Task
    grip: Grip
    root: Identity | None  # of its process tree; None: it cannot be seen
    next_stage: int | None = None  # its stage has ended, and this one follows


class TreeKeeper(Protocol):
    """Who keeps checkpoints of running tasks."""

    def began(self, subject: Subject) -> None: ...
    def asked(self, run_id: str, note: str) -> None: ...
    def over(self, run_id: str) -> None: ...
    def hasten(self, run_id: str) -> None: ...
    def ended(self, task_id: str) -> None: ...
    def hurry(self) -> None: ...
    async def at_end(
        self,
        task: Task,
        grip: Grip,
        run_id: str | None,
        session_id: str | None,
        why: str,
        *,
        always: bool = False,
        next_stage: int | None = None,
    ) -> None: ...


class NoCheckpoints:
    """No tree is kept."""

    def began(self, subject: Subject) -> None:
        """Do nothing."""

    def asked(self, run_id: str, note: str) -> None:
        """Do nothing."""

    def over(self, run_id: str) -> None:
        """Do nothing."""

    def hasten(self, run_id: str) -> None:
        """Do nothing."""

    def ended(self, task_id: str) -> None:
        """Do nothing."""

    def hurry(self) -> None:
        """Do nothing."""

    async def at_end(
        self,
        task: Task,
        grip: Grip,
        run_id: str | None,
        session_id: str | None,
        why: str,
        *,
        always: bool = False,
        next_stage: int | None = None,
    ) -> None:
        """Do nothing."""


class SalvageReclaimer(Protocol):
    """Deletes saved work that was dropped, and gives its room back."""

    def reclaim(self, repo: Repo, refs: Mapping[str, str]) -> Awaitable[bool]: ...
    def checkpoint_refs(self, repo: Repo) -> Mapping[str, str]:
        """ref → commit of every checkpoint that lies there."""
        ...


class RunWatch(Protocol):
    """Who watches the health of runs."""

    def began(self, patient: Patient) -> None: ...
    def ending(self, run_id: str, grace: float) -> None: ...
    def over(self, run_id: str) -> None: ...
    def sight(self, run_id: str) -> Sight:
        """How a run fares; nothing is seen of one that is not watched."""
        ...


class NoHealthWatch:
    """No run is watched."""

    def began(self, patient: Patient) -> None:
        """Do nothing."""

    def ending(self, run_id: str, grace: float) -> None:
        """Do nothing."""

    def over(self, run_id: str) -> None:
        """Do nothing."""

    def sight(self, run_id: str) -> Sight:
        return Sight()


class Enclosure(Protocol):
    """Where the agents of tasks of strategy `container` run. Raises Unavailable while the engine does not answer."""

    async def check(self, spec: TaskSpec) -> None:
        """Before a run is intended. Raises LaunchError when it cannot work like this."""
        ...

    async def enclose(self, spec: TaskSpec, workspace: Workspace, launch: LaunchSpec) -> tuple[LaunchSpec, str]:
        """Make the run's container, not started: what its keeper has to run, and the container's id."""
        ...

    async def prove(self, spec: TaskSpec, workspace: Workspace, end: ProcessEnd) -> ProcessEnd:
        """After a run: no container of its workspace runs, and what that proves."""
        ...

    async def root(self, spec: TaskSpec, workspace: Workspace) -> Identity | None:
        """The root of the agent's process tree on this machine, if it can be seen."""
        ...

    async def silent(self, specs: Sequence[TaskSpec], also: Sequence[str]) -> Mapping[str, str]:
        """Which engines of these tasks, and of the others that are named, do not answer now, and why."""
        ...


class Accounts(Protocol):
    """The logins of agents, as the user's file has them now."""

    def names(self, agent: str) -> Sequence[str]:
        """All of them, the user's own first; none: its agent needs no login."""
        ...

    def choosable(self, agent: str) -> Sequence[str]:
        """Those that a task may get that names none, in the order of choice."""
        ...

    def look_up(self, agent: str, name: str) -> Account:
        """With its secrets. LaunchError when it, or one of them, is not to be had."""
        ...


class OwnLogin:
    """No accounts but what an agent finds by itself."""

    def names(self, _agent: str) -> Sequence[str]:
        return ()

    def choosable(self, _agent: str) -> Sequence[str]:
        return ()

    def look_up(self, _agent: str, _name: str) -> Account:
        return USERS_OWN


@dataclass(frozen=True, kw_only=True, slots=True)
class TrackerSetup:
    """The tracker of one repository."""

    kind: str
    tracker: Tracker
    poll: float = 30.0  # seconds between two looks at it
    closes: bool = True  # completed work closes its issue
    problem: str | None = None  # why it cannot be asked as things are


class Trackers(Protocol):
    """Where work comes from besides `holdfast add`."""

    def of(self, repo: Repo) -> TrackerSetup: ...
    def resolve_task(self, repo: Repo, issue: Issue) -> Callable[[Transaction], Task]:
        """The task that an issue becomes, to be added in a transaction. HoldfastError when it cannot become one."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Timetable:
    """What the files with schedules say now. One that has none is empty; one with a problem is in both only if nothing
    of before is to hold (trust that was taken back)."""

    schedules: Mapping[str, Sequence[Schedule]]  # by file, of those that read well
    problems: Mapping[str, str] = field(default_factory=dict)  # by file: what is wrong; its schedules of before hold
    absent: Sequence[str] = ()  # files of repositories that are not there now: likewise, and their fires are refused


class Timetables(Protocol):
    """Work that comes by the clock, as the user's and the repositories' files have it."""

    def stamp(self, repos: Sequence[Repo]) -> object:
        """Differs after every change of one of the files; cheap: asked at every look."""
        ...

    def read(self, repos: Sequence[Repo]) -> Timetable: ...
    async def resolve_task(self, schedule: Schedule, fire_time: float, by: str) -> Callable[[Transaction], Task]:
        """The task of an occurrence, to be added in the transaction of its fire. HoldfastError when it cannot be."""
        ...


class Outlets(Protocol):
    """Where alerts are sent, as the user's file has it now."""

    def rules(self) -> NoticeRules: ...
    def names(self) -> Sequence[str]:
        """Cheap: asked at every look."""
        ...

    def target(self, name: str) -> Target | None:
        """With its secrets, looked up now. None: it is no longer configured."""
        ...


class NoOutlets:
    """Alerts stay where they are: in the store, for whoever looks."""

    def rules(self) -> NoticeRules:
        return NoticeRules()

    def names(self) -> Sequence[str]:
        return ()

    def target(self, _name: str) -> Target | None:
        return None


class Touching(Protocol):
    """Looks which files of a workspace changed since its base; never raises for what lies there."""

    async def __call__(self, workspace: Workspace, leave: Sequence[str], *, is_committed: bool) -> Touched: ...


async def no_changes(workspace: Workspace, leave: Sequence[str]) -> Changes:
    """Return no changes: what a task changed so far is not looked at."""
    return Changes()


async def no_changed_files(workspace: Workspace, leave: Sequence[str], *, is_committed: bool) -> Touched:
    """Return no files: which files a task changed is not looked at."""
    return Touched()
