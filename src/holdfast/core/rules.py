"""What a run may use, and how long it may be silent. Resolved when a task is added; health.py and the keeper obey."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

GIB = 1024**3
MIB = 1024**2


@dataclass(frozen=True, kw_only=True, slots=True)
class HealthRules:
    """When a living agent counts as hung (R-TERM-04, R-TERM-07). `inf` switches a rule off."""

    stuck_after: float = 300.0  # seconds without any sign of life
    tool_silence: float = 2700.0  # the same while a tool of the agent is open: at most this long
    startup_timeout: float = 300.0  # seconds until the first sign of life
    on_stuck: str = "kill"  # kill | notify
    loop_steps: int = 50  # events in a row without progress; 0 switches it off
    claim_grace: float = 30.0  # seconds that an agent which reported its result has to exit


@dataclass(frozen=True, kw_only=True, slots=True)
class RunLimits:
    """What one run's whole tree may use (R-TERM-14). None: no limit."""

    memory: int | None = None  # bytes
    processes: int | None = None
    cpu_weight: int | None = None  # 1 to 10000; the kernel's default is 100
    output: int | None = 2 * GIB  # bytes written to standard output and error together; beyond, the run is ended
    output_kept: int = 64 * MIB  # bytes of each log that stay on disk beside its beginning


DEFAULT_HEALTH = HealthRules()
DEFAULT_LIMITS = RunLimits()

T = TypeVar("T", HealthRules, RunLimits)


def differences(rules: T, default: T) -> dict[str, Any]:
    """Only what is not the default: most tasks have nothing to say here, and the store keeps it for each of them."""
    if rules == default:
        return {}
    return {
        field.name: getattr(rules, field.name)
        for field in fields(rules)
        if getattr(rules, field.name) != getattr(default, field.name)
    }


def health_from(stored: Mapping[str, Any]) -> HealthRules:
    return HealthRules(**stored) if stored else DEFAULT_HEALTH


def limits_from(stored: Mapping[str, Any]) -> RunLimits:
    return RunLimits(**stored) if stored else DEFAULT_LIMITS
