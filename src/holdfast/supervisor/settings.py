"""The settings of one supervisor. Tasks carry settings of their own."""

from __future__ import annotations

from dataclasses import dataclass, field

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
class SupervisorSettings:
    """The settings of this supervisor. Tasks carry their own settings."""

    agents: int
    lease_ttl: float = 30.0
    beat_every: float = 5.0
    fast_grace: float = 1.0
    idle_exit: float | None = None
    keeping: RetentionTimes = field(default_factory=RetentionTimes)
    pressure: PressureLimits = field(default_factory=PressureLimits)
    checkpoint: CheckpointRules = field(default_factory=CheckpointRules)
    holds: HoldRules = field(default_factory=HoldRules)
    staff: WorkerList = field(default_factory=WorkerList)
