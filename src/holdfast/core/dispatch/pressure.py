"""Whether the machine has room for one more agent. With hysteresis: what was held back resumes only when it is clearly
better, so that a machine at its limit does not flap."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

MARGIN = 0.1  # what held is over when it is this much better than its limit
MIB = 1024**2


@dataclass(frozen=True, kw_only=True, slots=True)
class PressureLimits:
    """Beyond one of these nothing new starts; 0 switches it off."""

    min_memory: int = 0  # bytes that must be available
    max_load: float = 0.0  # load average of one minute, per core
    max_stall: float = 0.0  # percent of the last ten seconds in which something waited for memory
    disk_floor: int = 0  # bytes that must be free on the home's file system

    @property
    def off(self) -> bool:
        return not (self.min_memory or self.max_load or self.max_stall or self.disk_floor)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pressure:
    """One look at the machine. None: this machine does not say, which holds nothing back."""

    memory: int | None = None  # bytes available, within the cgroup around us too
    load: float | None = None  # per core
    stall: float | None = None  # percent
    disk: int | None = None  # bytes free for us on the home's file system


@dataclass(frozen=True, kw_only=True, slots=True)
class Hold:
    """Nothing new starts, and why. `over` are the names of what is beyond its limit."""

    over: frozenset[str]
    reason: str
    data: Mapping[str, object]


def hold(limits: PressureLimits, now: Pressure, holding: Collection[str] = ()) -> Hold | None:
    """Whether to hold back. `holding` is what held until now: for that, the limit is 10 % stricter."""
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
    if short_of_disk(limits, now, holding):
        floor = limits.disk_floor * (1 + MARGIN if "disk" in holding else 1)
        over["disk"] = f"{(now.disk or 0) // MIB} MiB of disk are free, {_mebibytes(floor)} MiB are wanted"
    if not over:
        return None
    data = {"memory": now.memory, "load": now.load, "stall": now.stall, "disk": now.disk, "over": sorted(over)}
    return Hold(over=frozenset(over), reason="; ".join(over.values()), data=data)


def short_of_disk(limits: PressureLimits, now: Pressure, holding: Collection[str] = ()) -> bool:
    """R-TREE-14: whether less is free than `disk.floor`; a tenth more is wanted before it is over."""
    least = limits.disk_floor * (1 + MARGIN if "disk" in holding else 1)
    return bool(limits.disk_floor) and now.disk is not None and now.disk < least


def _mebibytes(size: float) -> int:
    return -int(-size // MIB)
