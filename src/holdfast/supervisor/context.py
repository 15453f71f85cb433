"""What every service of the supervisor works with. Ports only; wiring.py picks the adapters."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.agents.port import USERS_OWN, Account, AgentAdapter, Surroundings
from holdfast.alerts.port import Target
from holdfast.base.clock import Clock
from holdfast.base.instant import Instant
from holdfast.core.dispatch.holds import HoldRules, Sight
from holdfast.core.dispatch.pressure import Pressure, PressureLimits
from holdfast.core.dispatch.spending import Meter, Till
from holdfast.core.dispatch.workers import Staff
from holdfast.core.health.signs import SignReader
from holdfast.core.model import Repo, StopWhy, Task, TaskSpec, Workspace
from holdfast.core.runs.intervals import CheckpointRules
from holdfast.core.runs.liveness import Identity
from holdfast.core.runs.outcome import ProcessEnd
from holdfast.core.runs.retry_budgets import Limits
from holdfast.core.schedules.schedule import Schedule
from holdfast.core.task_settings import HealthRules
from holdfast.core.tasks.alerts import NoticeRules
from holdfast.core.tasks.trackers import Issue
from holdfast.core.workflows.handover import Changes
from holdfast.core.workflows.result import Touched
from holdfast.processes.port import LaunchSpec, Processes
from holdfast.store.port.transaction import Grip, Store, Transaction, Writer
from holdfast.supervisor.dispatch.slots import Places
from holdfast.trackers.port import Tracker
from holdfast.workspaces.git.fingerprint import Fingerprints
from holdfast.workspaces.port import ContainerSweeper, Furnishing, NoContainers, Sweeper, WorkspaceStrategy
from holdfast.workspaces.removal.in_use import Users


class Timekeeper(Protocol):
    """Who knows how much time has passed."""

    def ago(self, age: float, now: Instant) -> float:
        """The wall time before which everything is older than `age`."""
        ...

    def shown(self, since: float, now: Instant) -> float:
        """What the clock would show if nobody had set it forward since it showed `since`."""
        ...


class BelievesTheClock:
    """Where nobody remembers: an attempt that is driven alone."""

    def ago(self, age: float, now: Instant) -> float:
        return now.wall - age

    def shown(self, since: float, now: Instant) -> float:
        return now.wall


class Bell:
    """Something may have changed: look. Ringing twice before anybody looks is ringing once."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        self._rung.set()

    async def wait(self, timeout: float) -> None:
        """Until rung, or `timeout` seconds at most."""
        try:
            async with asyncio.timeout(timeout):
                await self._rung.wait()
        except TimeoutError:
            return
        finally:
            self._rung.clear()


@dataclass(frozen=True, kw_only=True, slots=True)
class Keeping:
    """How long history is kept, in seconds; `inf` for ever."""

    events: float = 30 * 86400.0
    runs: float = 14 * 86400.0
    tasks: float = 90 * 86400.0
    salvages: float = 90 * 86400.0
    crashes: float = 180 * 86400.0
    log_size: int = 10 * 1024 * 1024  # bytes of supervisor.log before it is put aside


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """How this supervisor runs; tasks carry their own settings."""

    agents: int
    lease_ttl: float = 30.0
    beat_every: float = 5.0
    fast_grace: float = 1.0
    idle_exit: float | None = None
    keeping: Keeping = field(default_factory=Keeping)
    pressure: PressureLimits = field(default_factory=PressureLimits)
    checkpoint: CheckpointRules = field(default_factory=CheckpointRules)
    holds: HoldRules = field(default_factory=HoldRules)
    staff: Staff = field(default_factory=Staff)


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


@dataclass(kw_only=True, slots=True)
class Context:
    """Fixed, except for `limits` and `settings`, which reloading.py replaces when the user's file changed."""

    home: str
    host_id: str
    clock: Clock
    jitter: Callable[[], float]
    store: Store  # for reading; every write goes through the writer
    writer: Writer
    processes: Processes
    strategy_of: Callable[[TaskSpec], WorkspaceStrategy]
    agents: Mapping[str, AgentAdapter]
    environment: Callable[[Mapping[str, object]], dict[str, str]]
    limits: Limits
    settings: Settings
    surroundings: Callable[[TaskSpec], Surroundings] = lambda _spec: Surroundings()  # where its agent will run
    accounts: Accounts = field(default_factory=OwnLogin)
    outlets: Outlets = field(default_factory=NoOutlets)
    enclosure: Enclosure | None = None
    source: SettingsSource | None = None
    trackers: Trackers | None = None  # None where an attempt is driven alone
    timetables: Timetables | None = None  # likewise
    reclaimer: SalvageReclaimer | None = None
    pressure: Callable[[], Pressure] = Pressure  # how the machine is; by default it does not say
    home_is_ours: Callable[[], bool] = lambda: True  # False: the home's lock was taken from under us
    bell: Bell = field(default_factory=Bell)
    news: Bell = field(default_factory=Bell)  # rung by the writer: there may be new events to tell
    sweeper: Sweeper | None = None  # None where an attempt is driven alone
    containers: ContainerSweeper = field(default_factory=NoContainers)
    health: RunWatch | None = None  # the supervisor's own; None where an attempt is driven alone
    checkpoints: TreeKeeper | None = None  # likewise
    # By run, a mark that is the same only if none of its processes has run meanwhile.
    activity: Callable[[Mapping[str, Identity]], Mapping[str, object]] = lambda _roots: {}
    users: Users = field(default_factory=Users)  # whose processes stand in a workspace
    in_use: dict[str, int] = field(default_factory=dict)  # workspaces whose removal waits → how often that was seen
    in_hand: set[str] = field(default_factory=set)  # tasks whose workspace a guard owns: others leave it alone
    furnishing: Furnishing | None = None  # set-up, copies and teardown; None where an attempt is driven alone
    so_far: Callable[[Workspace, Sequence[str]], Awaitable[Changes]] | None = (
        None  # what a task changed; None: nobody looks
    )
    touched: Touching | None = None  # which files a task changed, by name; None: nobody looks
    tills: dict[str, Till] = field(default_factory=dict)  # first task → what its family uses at the moment
    fingerprints: Fingerprints = field(default_factory=Fingerprints)
    places: Places = field(default_factory=Places)  # for members of parallel stages, beside those of tasks
    timekeeper: Timekeeper = field(default_factory=BelievesTheClock)  # or the supervisor's own
    may_be_held: Callable[[str, Sequence[str]], bool] = lambda _lock, _folders: True  # a git lock; True: cannot tell
