"""The judgement whether a recorded process is dead, alive or unknown. A process judged "unknown" is never a reason to
kill, delete or release anything."""

from __future__ import annotations

from enum import StrEnum

from holdfast.base.dataclass import dataclass


class Liveness(StrEnum):
    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessIdentity:
    """The identity of one process. A pid alone is not enough: the system may reuse a pid within a minute."""

    boot_id: str
    pid: int
    start_ticks: int  # field 22 of /proc/<pid>/stat


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessSighting:
    """The current state of a pid, as read from /proc."""

    boot_id: str
    start_ticks: int | None  # None: no such process
    zombie: bool = False
    readable: bool = True


def judge_liveness(recorded: ProcessIdentity | None, seen: ProcessSighting) -> Liveness:
    """Judge whether the recorded process still lives (R-CRASH-01: a zombie is dead, a process without a record is
    unknown)."""
    if recorded is None:
        return Liveness.UNKNOWN
    if recorded.boot_id != seen.boot_id:
        return Liveness.DEAD  # no process survives a reboot
    if not seen.readable:
        return Liveness.ALIVE  # the process exists, though we may not read it: no permission means alive
    if seen.start_ticks is None or seen.zombie:
        return Liveness.DEAD
    return Liveness.ALIVE if seen.start_ticks == recorded.start_ticks else Liveness.DEAD
