"""The settings of one supervisor. The settings of tasks are stored with each task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from holdfast.base.dataclass import dataclass
from holdfast.core.dispatch.holds import HoldRules
from holdfast.core.dispatch.pressure import PressureLimits
from holdfast.core.dispatch.workers import WorkerList
from holdfast.core.runs.intervals import CheckpointRules


@dataclass(frozen=True, kw_only=True, slots=True)
class RetentionTimes:
    """The time for which history is kept, in seconds. `inf` means for ever."""

    events: float = 30 * 86400.0
    runs: float = 14 * 86400.0
    tasks: float = 90 * 86400.0
    salvages: float = 90 * 86400.0
    crashes: float = 180 * 86400.0
    log_size: int = 10 * 1024 * 1024  # bytes of supervisor.log before it is rotated


@dataclass(frozen=True, kw_only=True, slots=True)
class Thresholds:
    """Limits and intervals from the requirements that are settings of the supervisor. Times are in seconds."""

    fast_grace: float = 1.0  # R-TERM-06: for `cancel` and `down --now`
    alarm_after: float = 2.0  # R-TERM-06: an alert if a run still lives this long after its grace
    look_every: float = 30.0  # R-TERM-03
    quiet_share: float = 0.01  # R-TERM-04: of one core
    adaptive_factor: float = 1.5  # R-TERM-13
    adaptive_runs: int = 5
    backlog_many: int = 10  # R-TREE-08
    backlog_slow: int = 100
    collect_for: float = 10.0  # R-CRON-05: beyond the timeout of a parallel stage
    tracker_delay: float = 300.0  # R-CRASH-08: the longest pause after failures of a tracker


@dataclass(frozen=True, kw_only=True, slots=True)
class SupervisorSettings:
    """The settings of this supervisor. The settings of tasks are stored with each task."""

    agents: int
    lease_ttl: float = 30.0
    beat_every: float = 5.0
    thresholds: Thresholds = field(default_factory=Thresholds)
    idle_exit: float | None = None
    keeping: RetentionTimes = field(default_factory=RetentionTimes)
    pressure: PressureLimits = field(default_factory=PressureLimits)
    checkpoint: CheckpointRules = field(default_factory=CheckpointRules)
    holds: HoldRules = field(default_factory=HoldRules)
    staff: WorkerList = field(default_factory=WorkerList)


def take_over(old: SupervisorSettings, wanted: Mapping[str, object]) -> SupervisorSettings:
    """Return the settings of a running supervisor after another `up` asked for `agents` and `idle_exit` (or None).

    An idle exit can be removed or changed, but never added: a supervisor that a person started without one stays until
    `down`. If one would have to be added, nothing changes.
    """
    agents, idle_exit = wanted.get("agents"), wanted.get("idle_exit")
    if old.idle_exit is None and idle_exit is not None:
        return old
    return replace(
        old,
        agents=agents if isinstance(agents, int) else old.agents,
        idle_exit=float(idle_exit) if isinstance(idle_exit, int | float) else None,
    )
