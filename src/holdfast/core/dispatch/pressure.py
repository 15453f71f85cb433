"""The check whether the machine has room for one more agent. Pure.

The check has hysteresis: a hold ends only when the machine is clearly better off. A machine at its limit must not
alternate between hold and release.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from holdfast.base.dataclass import dataclass

MARGIN = 0.1  # a hold ends when the value is this much better than its limit
MIB = 1024**2


@dataclass(frozen=True, kw_only=True, slots=True)
class PressureLimits:
    """The limits beyond which no new agent starts. 0 switches a limit off."""

    min_memory: int = 0  # bytes that must be available
    max_load: float = 0.0  # load average of one minute, per core
    max_stall: float = 0.0  # percent of the last ten seconds in which some process waited for memory
    disk_floor: int = 0  # bytes that must be free on the home's file system

    @property
    def is_off(self) -> bool:
        return not (self.min_memory or self.max_load or self.max_stall or self.disk_floor)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pressure:
    """One reading of the machine. None: this machine does not provide the value, so no task is held because of it."""

    memory: int | None = None  # bytes available, also within the cgroup around us
    load: float | None = None  # per core
    stall: float | None = None  # percent
    disk: int | None = None  # bytes free for us on the home's file system


@dataclass(frozen=True, kw_only=True, slots=True)
class PressureHold:
    """A hold because of pressure, and its reason. `over` names the values that are beyond their limits."""

    over: frozenset[str]
    reason: str
    data: Mapping[str, object]


def check_pressure(limits: PressureLimits, now: Pressure, holding: Collection[str] = ()) -> PressureHold | None:
    """Return a hold if a value is beyond its limit. `holding`: the names of values that were beyond their limits at the
    last check. Their limits are 10 % stricter."""
    least = limits.min_memory * (1 + MARGIN if "memory" in holding else 1)
    most_load = limits.max_load * (1 - MARGIN if "load" in holding else 1)
    most_stall = limits.max_stall * (1 - MARGIN if "stall" in holding else 1)
    over: dict[str, str] = {}
    if limits.min_memory and now.memory is not None and now.memory < least:
        over["memory"] = f"{now.memory // MIB} MiB of memory are available, {_mebibytes(least)} MiB are wanted"
    if limits.max_load and now.load is not None and now.load > most_load:
        over["load"] = f"the load per core is {now.load:.2f}, at most {most_load:.4g} is wanted"
    if limits.max_stall and now.stall is not None and now.stall > most_stall:
        over["stall"] = f"memory is waited for in {now.stall:.3g} % of the time, at most {most_stall:.4g} % is wanted"
    if is_short_of_disk(limits, now, holding):
        floor = limits.disk_floor * (1 + MARGIN if "disk" in holding else 1)
        over["disk"] = f"{(now.disk or 0) // MIB} MiB of disk are free, {_mebibytes(floor)} MiB are wanted"
    if not over:
        return None
    data = {"memory": now.memory, "load": now.load, "stall": now.stall, "disk": now.disk, "over": sorted(over)}
    return PressureHold(over=frozenset(over), reason="; ".join(over.values()), data=data)


def is_short_of_disk(limits: PressureLimits, now: Pressure, holding: Collection[str] = ()) -> bool:
    """True if less disk space is free than `disk.floor` (R-TREE-14). A hold ends when a tenth more is free."""
    least = limits.disk_floor * (1 + MARGIN if "disk" in holding else 1)
    return bool(limits.disk_floor) and now.disk is not None and now.disk < least


def _mebibytes(size: float) -> int:
    return -int(-size // MIB)
