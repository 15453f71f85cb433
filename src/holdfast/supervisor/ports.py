"""The ports of the supervisor: what its services need from adapters and from one another, with null objects.

wiring/supervisor.py picks the adapters. A test that drives one attempt alone leaves the null objects in place.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import Protocol

from holdfast.agents.port import OWN_LOGIN, Account
from holdfast.alerts.port import AlertTarget
from holdfast.base.dataclass import dataclass
from holdfast.base.errors import HoldfastError
from holdfast.base.instant import Instant
from holdfast.core.dispatch.holds import ProbeSight
from holdfast.core.dispatch.spending import SpendingMeter
from holdfast.core.health.signs import SignReader
from holdfast.core.model import Repo, StopWhy, Task, TaskSpec, Workspace
from holdfast.core.runs.liveness import ProcessIdentity
from holdfast.core.runs.outcome import ProcessEnd
from holdfast.core.runs.retry_budgets import RetryLimits
from holdfast.core.schedules.schedule import Schedule
from holdfast.core.task_settings import HealthRules
from holdfast.core.tasks.alerts import DeliveryRules
from holdfast.core.tasks.trackers import Issue
from holdfast.core.workflows.handover import ChangesSoFar
from holdfast.core.workflows.result import ChangedFiles
from holdfast.processes.port import LaunchSpec
from holdfast.store.port.transaction import Ownership, Transaction
from holdfast.supervisor.settings import SupervisorSettings
from holdfast.trackers.port import Tracker
from holdfast.workspaces.port import CommandRunner


class Timekeeper(Protocol):
    """The port that measures ages in elapsed time, whatever the wall clock was set to."""

    def wall_time_ago(self, age: float, now: Instant) -> float:
        """Return the wall time before which everything is older than `age`."""
        ...

    def shown(self, since: float, now: Instant) -> float:
        """Return the wall time that the clock would show now if it had not been set forward since it showed `since`."""
        ...


class WallClockOnly:
    """A measure of ages by the wall clock alone, for places where jumps are not recorded."""

    def wall_time_ago(self, age: float, now: Instant) -> float:
        return now.wall - age

    def shown(self, since: float, now: Instant) -> float:
        return now.wall


@dataclass(frozen=True, kw_only=True, slots=True)
class ReloadedSettings:
    """The settings that a running supervisor can take over, and the difference from the settings before."""

    settings: SupervisorSettings
    limits: RetryLimits
    changes: Mapping[str, str]  # key → "4 → 8"
    at_next_start: tuple[str, ...] = ()  # keys that changed, but take effect only at the next start


class SettingsSource(Protocol):
    """The source of the settings, so that a change can be detected and taken over."""

    def stamp(self) -> object:
        """Return a value that differs after every change. The call is cheap."""
        ...

    def read(self) -> ReloadedSettings:
        """Return the current settings. Raise HoldfastError if they have mistakes."""
        ...

    def accept(self, tuning: ReloadedSettings) -> None:
        """Make `tuning` the settings in force: later changes are computed against it."""
        ...

    def adopt(self, settings: SupervisorSettings) -> None:
        """Make these settings the ones in force. Their number of agents overrides the file, as the option `--agents` of
        `up` does."""
        ...


class FixedSettings:
    """Settings that never change."""

    def stamp(self) -> object:
        return None

    def read(self) -> ReloadedSettings:
        raise HoldfastError("These settings are fixed: there is no file to read them from.")

    def accept(self, tuning: ReloadedSettings) -> None:
        """Do nothing."""

    def adopt(self, settings: SupervisorSettings) -> None:
        """Do nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchedRun:
    """A run whose health is watched: the facts that the health service needs, and the one action that it may take."""

    run_id: str
    task_id: str
    rules: HealthRules
    signs: SignReader | None  # None: we cannot read the agent's events
    timeout: float
    grace: float
    keeper: ProcessIdentity | None
    agent: ProcessIdentity | None
    is_adopted: bool  # an earlier supervisor launched the run
    stop: Callable[[StopWhy, str], Awaitable[None]]
    meter: SpendingMeter | None = None  # what the run may spend; None: no limit
    place_of: str = ""  # the member of a parallel stage whose own workspace the run uses; empty: the task's
    has_claimed_result: Callable[[], bool] = lambda: (
        False
    )  # True: the agent reported a result, so there is no verdict any more


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointedRun:
    """A run whose tree gets checkpoints."""

    run_id: str
    task: Task
    ownership: Ownership
    root: ProcessIdentity | None  # root of its process tree; None: it cannot be seen
    next_stage: int | None = None  # its stage has ended, and this stage follows


class CheckpointPort(Protocol):
    """The port of the checkpoint service."""

    def began(self, subject: CheckpointedRun) -> None: ...
    def asked(self, run_id: str, note: str) -> None: ...
    def over(self, run_id: str) -> None: ...
    def skip_wait_for_run(self, run_id: str) -> None: ...
    def ended(self, task_id: str) -> None: ...
    def hurry(self) -> None: ...
    async def save_at_end(
        self,
        task: Task,
        ownership: Ownership,
        run_id: str | None,
        session_id: str | None,
        why: str,
        *,
        always: bool = False,
        next_stage: int | None = None,
    ) -> None: ...


class NoCheckpoints:
    """The null object: takes no checkpoints."""

    def began(self, subject: CheckpointedRun) -> None:
        """Do nothing."""

    def asked(self, run_id: str, note: str) -> None:
        """Do nothing."""

    def over(self, run_id: str) -> None:
        """Do nothing."""

    def skip_wait_for_run(self, run_id: str) -> None:
        """Do nothing."""

    def ended(self, task_id: str) -> None:
        """Do nothing."""

    def hurry(self) -> None:
        """Do nothing."""

    async def save_at_end(
        self,
        task: Task,
        ownership: Ownership,
        run_id: str | None,
        session_id: str | None,
        why: str,
        *,
        always: bool = False,
        next_stage: int | None = None,
    ) -> None:
        """Do nothing."""


class SalvageReclaimer(Protocol):
    """The port that deletes saved work that was dropped, and frees its space."""

    def reclaim(self, repo: Repo, refs: Mapping[str, str]) -> Awaitable[bool]: ...
    def checkpoint_refs(self, repo: Repo) -> Mapping[str, str]:
        """Return ref → commit of every checkpoint in the repository."""
        ...


class HealthPort(Protocol):
    """The port of the health service."""

    def began(self, patient: WatchedRun) -> None: ...
    def ending(self, run_id: str, grace: float) -> None: ...
    def over(self, run_id: str) -> None: ...
    def probe_sight(self, run_id: str) -> ProbeSight:
        """Return the observed state of a probe's run. The result is empty for a run that is not watched."""
        ...


class NoHealthWatch:
    """The null object: watches no run."""

    def began(self, patient: WatchedRun) -> None:
        """Do nothing."""

    def ending(self, run_id: str, grace: float) -> None:
        """Do nothing."""

    def over(self, run_id: str) -> None:
        """Do nothing."""

    def probe_sight(self, run_id: str) -> ProbeSight:
        return ProbeSight()


class AgentContainers(Protocol):
    """The container environment of agents with strategy `container`. Its methods raise Unavailable while the engine
    does not answer."""

    async def check(self, spec: TaskSpec) -> None:
        """Check the task before a run's intent is recorded. Raise LaunchError if its agent cannot work in a container
        like this."""
        ...

    async def enclose(self, spec: TaskSpec, workspace: Workspace, launch: LaunchSpec) -> tuple[LaunchSpec, str]:
        """Create the run's container without starting it. Return the launch that its keeper has to run, and the
        container's id."""
        ...

    async def prove(self, spec: TaskSpec, workspace: Workspace, end: ProcessEnd) -> ProcessEnd:
        """Make sure after a run that no container of its workspace runs. Return the end of the run with that proof, as
        far as the engine gives it."""
        ...

    def command_runner(self, spec: TaskSpec, workspace: Workspace) -> CommandRunner:
        """Return the runner of set-up commands, gates and teardown commands. It runs each in a container like the
        agent's."""
        ...

    async def root(self, spec: TaskSpec, workspace: Workspace) -> ProcessIdentity | None:
        """Return the root of the agent's process tree on this machine. None: it cannot be seen."""
        ...

    async def silent(self, specs: Sequence[TaskSpec], also: Sequence[str]) -> Mapping[str, str]:
        """Return the engines that do not answer now, with the reason. The engines of these tasks and those in `also`
        are asked."""
        ...


class AgentAccounts(Protocol):
    """The accounts of agents, as the user's settings file has them now."""

    def names(self, agent: str) -> Sequence[str]:
        """Return all accounts of an agent, the user's own login first. Empty: the agent needs no login."""
        ...

    def choosable(self, agent: str) -> Sequence[str]:
        """Return the accounts for tasks that name none, in the order of choice."""
        ...

    def look_up(self, agent: str, name: str) -> Account:
        """Return the account with its secrets. Raise LaunchError if the account or one of its secrets is missing."""
        ...


class NoAccounts:
    """The null object: agents have no accounts, only the login that each finds by itself."""

    def names(self, _agent: str) -> Sequence[str]:
        return ()

    def choosable(self, _agent: str) -> Sequence[str]:
        return ()

    def look_up(self, _agent: str, _name: str) -> Account:
        return OWN_LOGIN


@dataclass(frozen=True, kw_only=True, slots=True)
class TrackerSetup:
    """The tracker of one repository."""

    kind: str
    tracker: Tracker
    poll: float = 30.0  # seconds between two looks at the tracker
    closes: bool = True  # completed work closes its issue
    problem: str | None = None  # why the tracker cannot be used at the moment


class Trackers(Protocol):
    """The trackers of repositories: the source of work besides `holdfast add`."""

    def of(self, repo: Repo) -> TrackerSetup: ...
    def resolve_task(self, repo: Repo, issue: Issue) -> Callable[[Transaction], Task]:
        """Return the task that an issue becomes, to be added in a transaction. Raise HoldfastError if the issue cannot
        become a task."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadSchedules:
    """The current content of the schedule files. A file without schedules has an empty entry.

    A file with a problem is normally only in `problems`. If trust was withdrawn, the file is also in the schedules, so
    its previous schedules do not stay in force.
    """

    schedules: Mapping[str, Sequence[Schedule]]  # by file, for files that could be read
    # by file: what is wrong; its previous schedules stay in force
    problems: Mapping[str, str] = field(default_factory=dict)
    absent: Sequence[str] = ()  # files of repositories that do not exist now: likewise, and their fires are refused


class ScheduleSource(Protocol):
    """The schedule files of the user and of the repositories."""

    def stamp(self, repos: Sequence[Repo]) -> object:
        """Return a value that differs after every change of one of the files. The call is cheap, because it is made at
        every check."""
        ...

    def read(self, repos: Sequence[Repo]) -> ReadSchedules: ...
    async def resolve_task(self, schedule: Schedule, fire_time: float, by: str) -> Callable[[Transaction], Task]:
        """Return the task of an occurrence, to be added in the transaction that records its fire. Raise HoldfastError
        if it cannot be added."""
        ...


class AlertTargets(Protocol):
    """The targets of alerts, as the user's settings file has them now."""

    def rules(self) -> DeliveryRules: ...
    def names(self) -> Sequence[str]:
        """Return the names of the targets. The call is cheap, because it is made at every check."""
        ...

    def target(self, name: str) -> AlertTarget | None:
        """Return the target with its secrets, which are looked up now. None: the target is no longer configured."""
        ...


class NoAlertTargets:
    """The null object: alerts stay in the store and are not sent."""

    def rules(self) -> DeliveryRules:
        return DeliveryRules()

    def names(self) -> Sequence[str]:
        return ()

    def target(self, _name: str) -> AlertTarget | None:
        return None


class FindsChangedFiles(Protocol):
    """A finder of the files of a workspace that changed since its base. No content of the files makes it raise."""

    async def __call__(self, workspace: Workspace, leave: Sequence[str], *, is_committed: bool) -> ChangedFiles: ...


async def no_changes(workspace: Workspace, leave: Sequence[str]) -> ChangesSoFar:
    """Return no changes. This null object does not look at the workspace."""
    return ChangesSoFar()


async def no_changed_files(workspace: Workspace, leave: Sequence[str], *, is_committed: bool) -> ChangedFiles:
    """Return no files. This null object does not look at the workspace."""
    return ChangedFiles()
