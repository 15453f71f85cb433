"""Intervals that follow experience: adaptive timeouts of runs, and the time between two checkpoints. Pure.

Adaptive timeouts (R-TERM-13, opt-in) come from the durations of successful runs of the same kind. Checkpoints are taken
as often as asked, unless taking one costs a noticeable share of the time.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.base.dataclass import dataclass

MOST_RUNS = 50  # the most recent ones: durations of last year do not matter


@dataclass(frozen=True, kw_only=True, slots=True)
class AdaptiveTimeout:
    """The time limit of one run, and the reason for it, for people."""

    seconds: float
    reason: str


def adapt_timeout(
    durations: Sequence[float], floor: float, own: float, *, factor: float, least: int
) -> AdaptiveTimeout | None:
    """Return `factor` × the mean of `durations`, at least `floor`, and at most `own`, the task's timeout. None: there
    are fewer than `least` durations."""
    # A run that was over before its start was recorded took 0 seconds. A negative duration means that the clock was set
    # back.
    known = [seconds for seconds in durations if seconds >= 0]
    if len(known) < least:
        return None
    wanted = factor * (sum(known) / len(known))
    mean = f"{factor:g} × the mean of {len(known)} runs"
    seconds = min(own, max(floor, wanted))
    if seconds == wanted:
        return AdaptiveTimeout(seconds=seconds, reason=f"adaptive: {mean}")
    if seconds == own:
        return AdaptiveTimeout(
            seconds=seconds, reason=f"adaptive: its own timeout, because {mean}, or the floor, is more"
        )
    return AdaptiveTimeout(seconds=seconds, reason=f"adaptive: the floor, because {mean} is less")


COST_SHARE = 0.05  # at most this share of the time between two checkpoints may go into one
LONGEST_INTERVAL_FACTOR = 32  # times the interval that is asked for


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointRules:
    every: float = 30.0  # seconds; 0: only when a run ends, or its agent asks
    keep: int = 5  # checkpoints of one task


def next_checkpoint_interval(every: float, interval: float, cost: float) -> float:
    """Return the next interval after a checkpoint that took `cost` seconds.

    The interval doubles when the cost exceeds its share. It halves when the cost would stay within its share at half
    the interval. It is never shorter than `every`.
    """
    if cost > COST_SHARE * interval:
        return min(interval * 2, every * LONGEST_INTERVAL_FACTOR)
    if cost <= COST_SHARE * interval / 2:
        return max(every, interval / 2)
    return max(every, interval)
