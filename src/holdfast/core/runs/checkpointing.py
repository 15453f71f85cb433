"""How often the tree of a running task is kept: often enough to matter, too seldom to be felt."""

from __future__ import annotations

from dataclasses import dataclass

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
