"""What every service of the supervisor works with: fixed ports, other services, shared state, current settings."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.agents.port import AgentAdapter, Surroundings
from holdfast.base.clock import Clock
from holdfast.core.dispatch.pressure import Pressure
from holdfast.core.dispatch.spending import Till
from holdfast.core.model import TaskSpec, Workspace
from holdfast.core.runs.liveness import Identity
from holdfast.core.runs.retry_budgets import Limits
from holdfast.core.workflows.handover import Changes
from holdfast.processes.port import Processes
from holdfast.store.port.transaction import Store, Writer
from holdfast.supervisor.dispatch.slots import Places
from holdfast.supervisor.ports import (
    Accounts,
    BelievesTheClock,
    Enclosure,
    FixedSettings,
    NoCheckpoints,
    NoHealthWatch,
    NoOutlets,
    Outlets,
    OwnLogin,
    RunWatch,
    SalvageReclaimer,
    SettingsSource,
    Timekeeper,
    Timetables,
    Touching,
    Trackers,
    TreeKeeper,
    no_changed_files,
    no_changes,
)
from holdfast.supervisor.settings import Settings
from holdfast.workspaces.git.fingerprint import Fingerprints
from holdfast.workspaces.port import ContainerSweeper, Furnishing, NoContainers, Sweeper, WorkspaceStrategy
from holdfast.workspaces.removal.in_use import Users


class Bell:
    """Wakes one waiter. Ringing twice before the waiter looks is ringing once."""

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
    """The adapters that wiring picked. They are fixed for the life of a supervisor."""

    processes: Processes
    strategy_of: Callable[[TaskSpec], WorkspaceStrategy]
    agents: Mapping[str, AgentAdapter]
    environment: Callable[[Mapping[str, object]], dict[str, str]]  # of an agent, by the task's settings
    surroundings: Callable[[TaskSpec], Surroundings] = lambda _spec: Surroundings()  # where an agent will run
    accounts: Accounts = field(default_factory=OwnLogin)
    outlets: Outlets = field(default_factory=NoOutlets)
    enclosure: Enclosure | None = None  # None: no task runs in a container
    source: SettingsSource = field(default_factory=FixedSettings)
    trackers: Trackers | None = None  # None: no tracker is looked at
    timetables: Timetables | None = None  # None: no schedule fires
    reclaimer: SalvageReclaimer | None = None  # None: dropped salvages stay on disk
    pressure: Callable[[], Pressure] = Pressure  # how much room the machine has; by default not known
    home_is_ours: Callable[[], bool] = lambda: True  # False: another process took the home's lock
    sweeper: Sweeper | None = None  # None: nothing is swept
    containers: ContainerSweeper = field(default_factory=NoContainers)
    # By run, a mark that stays the same only while none of the run's processes runs.
    activity: Callable[[Mapping[str, Identity]], Mapping[str, object]] = lambda _roots: {}
    users: Users = field(default_factory=Users)  # processes that work in a workspace
    furnishing: Furnishing | None = None  # set-up, copies and teardown; None: workspaces have none
    so_far: Callable[[Workspace, Sequence[str]], Awaitable[Changes]] = no_changes
    touched: Touching = no_changed_files
    fingerprints: Fingerprints = field(default_factory=Fingerprints)
    may_be_held: Callable[[str, Sequence[str]], bool] = lambda _lock, _folders: True  # a git lock; True: cannot tell


@dataclass(kw_only=True, slots=True)
class Services:
    """The services that other services call. The daemon puts the real ones here."""

    health: RunWatch = field(default_factory=NoHealthWatch)
    checkpoints: TreeKeeper = field(default_factory=NoCheckpoints)
    timekeeper: Timekeeper = field(default_factory=BelievesTheClock)


@dataclass(kw_only=True, slots=True)
class SharedState:
    """What several services keep together, in memory. The store has everything that must outlive the supervisor."""

    in_use: dict[str, int] = field(default_factory=dict)  # workspaces whose removal waits → how often that was seen
    in_hand: set[str] = field(default_factory=set)  # tasks whose workspace a guard owns: others leave it alone
    tills: dict[str, Till] = field(default_factory=dict)  # first task → what its family uses at the moment
    places: Places = field(default_factory=Places)  # for members of parallel stages, beside those of tasks


@dataclass(kw_only=True, slots=True)
class Context:
    """One supervisor's world. Only `limits` and `settings` change: reload.py replaces them."""

    home: str
    host_id: str
    clock: Clock
    jitter: Callable[[], float]
    store: Store  # for reading; every write goes through the writer
    writer: Writer
    ports: Ports
    limits: Limits
    settings: Settings
    services: Services = field(default_factory=Services)
    shared: SharedState = field(default_factory=SharedState)
    bell: Bell = field(default_factory=Bell)  # something may have changed
    news: Bell = field(default_factory=Bell)  # rung by the writer: there may be new events
