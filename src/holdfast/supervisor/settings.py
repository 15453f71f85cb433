"""How one supervisor runs. Tasks carry settings of their own."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.core.dispatch.holds import HoldRules
from holdfast.core.dispatch.pressure import PressureLimits
from holdfast.core.dispatch.workers import Staff
from holdfast.core.runs.intervals import CheckpointRules


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
