"""The context that every service of the supervisor works with: fixed ports, other services, shared state, current
settings."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field

from holdfast.agents.port import AgentAdapter, HostFacts
from holdfast.base.clock import Clock
from holdfast.base.dataclass import dataclass
from holdfast.core.dispatch.pressure import Pressure
from holdfast.core.dispatch.spending import FamilyUsage
from holdfast.core.model import TaskSpec, Workspace
from holdfast.core.runs.liveness import ProcessIdentity
from holdfast.core.runs.retry_budgets import RetryLimits
from holdfast.core.workflows.handover import ChangesSoFar
from holdfast.processes.port import Processes
from holdfast.store.port.transaction import Store, Writer
from holdfast.supervisor.dispatch.slots import Slots
from holdfast.supervisor.ports import (
    AgentAccounts,
    AgentContainers,
    AlertTargets,
    CheckpointPort,
    FindsChangedFiles,
    FixedSettings,
    HealthPort,
    NoAccounts,
    NoAlertTargets,
    NoCheckpoints,
    NoHealthWatch,
    SalvageReclaimer,
    ScheduleSource,
    SettingsSource,
    Timekeeper,
    Trackers,
    WallClockOnly,
    no_changed_files,
    no_changes,
)
from holdfast.supervisor.settings import SupervisorSettings
from holdfast.workspaces.git.fingerprint import Fingerprints
from holdfast.workspaces.port import ContainerSweeper, NoContainers, WorkspaceSetup, WorkspaceStrategy, WorkspaceSweeper
from holdfast.workspaces.removal.in_use import WorkspaceUsers


def no_disk_is_known(_path: str) -> int | None:
    return None


class WakeUp:
    """A bell that wakes one waiter. Two rings before the waiter looks count as one."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        self._rung.set()

    async def wait(self, timeout: float) -> None:
        """Wait until the bell is rung, for `timeout` seconds at most."""
        try:
            async with asyncio.timeout(timeout):
                await self._rung.wait()
        except TimeoutError:
            return
        finally:
            self._rung.clear()


@dataclass(frozen=True, kw_only=True, slots=True)
class Ports:
    """The adapters that the wiring picked. The adapters are fixed for the life of a supervisor."""

    processes: Processes
    strategy_of: Callable[[TaskSpec], WorkspaceStrategy]
    agents: Mapping[str, AgentAdapter]
    environment: Callable[[Mapping[str, object]], dict[str, str]]  # environment of an agent, by the task's settings
    surroundings: Callable[[TaskSpec], HostFacts] = lambda _spec: HostFacts()  # where an agent will run
    accounts: AgentAccounts = field(default_factory=NoAccounts)
    alert_targets: AlertTargets = field(default_factory=NoAlertTargets)
    agent_containers: AgentContainers | None = None  # None: no task runs in a container
    source: SettingsSource = field(default_factory=FixedSettings)
    trackers: Trackers | None = None  # None: no tracker is looked at
    schedule_files: ScheduleSource | None = None  # None: no schedule fires
    reclaimer: SalvageReclaimer | None = None  # None: dropped salvages stay on disk
    free_disk: Callable[[str], int | None] = no_disk_is_known  # path → free bytes, if not on the home's disk
    pressure: Callable[[], Pressure] = Pressure  # how much room the machine has; by default not known
    home_is_ours: Callable[[], bool] = lambda: True  # False: another process took the home's lock
    sweeper: WorkspaceSweeper | None = None  # None: nothing is swept
    containers: ContainerSweeper = field(default_factory=NoContainers)
    # By run, a mark that stays the same only while none of the run's processes runs.
    activity: Callable[[Mapping[str, ProcessIdentity]], Mapping[str, object]] = lambda _roots: {}
    workspace_users: WorkspaceUsers = field(default_factory=WorkspaceUsers)  # processes that work in a workspace
    workspace_setup: WorkspaceSetup | None = None  # set-up, copies and teardown; None: workspaces have none
    changes_so_far: Callable[[Workspace, Sequence[str]], Awaitable[ChangesSoFar]] = no_changes
    changed_files: FindsChangedFiles = no_changed_files
    fingerprints: Fingerprints = field(default_factory=Fingerprints)
    may_be_held: Callable[[str, Sequence[str]], bool] = lambda _lock, _folders: True  # a git lock; True: not known


@dataclass(kw_only=True, slots=True)
class Services:
    """The services that other services call. Each is a null object until the daemon sets the real service."""

    health: HealthPort = field(default_factory=NoHealthWatch)
    checkpoints: CheckpointPort = field(default_factory=NoCheckpoints)
    timekeeper: Timekeeper = field(default_factory=WallClockOnly)


@dataclass(kw_only=True, slots=True)
class SharedState:
    """State that several services share, in memory. The store has everything that must outlive the supervisor."""

    in_use: dict[str, int] = field(default_factory=dict)  # workspaces whose removal waits → how often that was found
    in_hand: set[str] = field(default_factory=set)  # tasks whose workspace a guard owns: others leave it alone
    family_usage: dict[str, FamilyUsage] = field(
        default_factory=dict
    )  # first task → what its family uses at the moment
    full_repos: set[str] = field(default_factory=set)  # repositories whose file system is below `disk.floor`
    places: Slots = field(default_factory=Slots)  # for members of parallel stages, in addition to those of tasks


@dataclass(kw_only=True, slots=True)
class Context:
    """Everything that one supervisor works with. Only `limits` and `settings` change: reload.py replaces them."""

    home: str
    host_id: str
    clock: Clock
    jitter: Callable[[], float]
    store: Store  # for reading; every write goes through the writer
    writer: Writer
    ports: Ports
    limits: RetryLimits
    settings: SupervisorSettings
    services: Services = field(default_factory=Services)
    shared: SharedState = field(default_factory=SharedState)
    bell: WakeUp = field(default_factory=WakeUp)  # something may have changed
    news: WakeUp = field(default_factory=WakeUp)  # rung by the writer: there may be new events
