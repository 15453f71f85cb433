"""Timeouts that follow experience (R-TERM-13, opt-in): how long did runs of the same kind take that went well?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FACTOR = 1.5
LEAST_RUNS = 5  # fewer say nothing
MOST_RUNS = 50  # the most recent ones: what took long last year does not matter


@dataclass(frozen=True, kw_only=True, slots=True)
class Allotted:
    """How long one run may take, and why, for people."""

    seconds: float
    reason: str


def allot(durations: Sequence[float], floor: float, own: float) -> Allotted | None:
    """1.5 × the mean of `durations`, never under `floor`, and never above `own`, the task's timeout. None: too few."""
    # A run that was over before its start was noted took 0 seconds; less than that means a clock set back.
    known = [seconds for seconds in durations if seconds >= 0]
    if len(known) < LEAST_RUNS:
        return None
    wanted = FACTOR * (sum(known) / len(known))
    mean = f"{FACTOR:g} × the mean of {len(known)} runs"
    seconds = min(own, max(floor, wanted))
    if seconds == wanted:
        return Allotted(seconds=seconds, reason=f"adaptive: {mean}")
    if seconds == own:
        return Allotted(seconds=seconds, reason=f"adaptive: its own timeout, because {mean}, or the floor, is more")
    return Allotted(seconds=seconds, reason=f"adaptive: the floor, because {mean} is less")


SHARE = 0.05  # of the time between two checkpoints, at most, may go into one
LONGEST = 32  # times the interval that is asked for


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointRules:
    every: float = 30.0  # seconds; 0: only when a run ends, or its agent asks
    keep: int = 5  # of one task


def next_interval(every: float, interval: float, cost: float) -> float:
    """The next one, after a checkpoint that took `cost` seconds: twice as long where that is felt, half as long where
    it would not be felt at half of it, never below what is asked for."""
    if cost > SHARE * interval:
        return min(interval * 2, every * LONGEST)
    if cost <= SHARE * interval / 2:
        return max(every, interval / 2)
    return max(every, interval)
