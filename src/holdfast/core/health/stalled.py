"""Agents that continue although they cannot get anywhere, and process trees that are quiet. Pure.

Some CLIs never end by themselves: they sleep through an hour's limit in silence, or wait for the network for ever. The
supervisor waits instead: it resumes the session later, and other tasks may run meanwhile.

`CpuTrail` computes since when a process tree is quiet, from readings of its CPU time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any

from holdfast.base.dataclass import dataclass
from holdfast.core.task_settings import HealthRules

LONGEST_DELAY = 60.0  # seconds until the agent's next try: longer waits count as hopeless


class StallKind(StrEnum):
    """The kinds of trouble, in order. A worse kind replaces a lesser one."""

    RETRYING = "retrying"  # the agent retries, which may help
    FATAL = "fatal"  # the agent reported an error that it cannot survive; it should end any moment
    HOPELESS = "hopeless"  # the agent retries, which cannot help


_RANKS = list(StallKind)


@dataclass(frozen=True, kw_only=True, slots=True)
class Stall:
    """The present trouble of an agent, without any progress since it began. Times are those of the caller's clock."""

    kind: StallKind
    words: str  # the text of the agent's own error
    since: float
    next_try: float | None = None  # when the agent will try again, as it reported

    def dump(self) -> list[Any]:
        return [str(self.kind), self.words, self.since, self.next_try]

    @classmethod
    def load(cls, kept: Sequence[Any]) -> Stall:
        """Rebuild the trouble from its stored form. Raise ValueError or TypeError for data of another form."""
        kind, words, since, next_try = kept
        return cls(
            kind=StallKind(kind),
            words=str(words),
            since=float(since),
            next_try=None if next_try is None else float(next_try),
        )


def merge_stalls(before: Stall | None, now: Stall) -> Stall:
    """Combine two troubles. Of two troubles of the same kind, the time of the first one stays."""
    if before is None or _RANKS.index(now.kind) > _RANKS.index(before.kind):
        return now
    if now.kind is before.kind:
        return replace(now, since=before.since)
    return before


def time_to_give_up(stall: Stall, rules: HealthRules, *, has_open_tool: bool) -> float:
    """Return the time at which the agent is ended if nothing changes. inf: never. An open tool may still make
    progress."""
    if not _is_on(rules.doomed_after):
        return math.inf
    if stall.kind is StallKind.HOPELESS:
        return stall.since
    if has_open_tool:
        return math.inf
    if stall.kind is StallKind.FATAL:
        return stall.since + rules.doomed_after
    limits = [limit for limit in (rules.retry_patience, rules.stuck_after) if _is_on(limit)]
    if not _is_on(rules.retry_patience):
        return math.inf
    limit = stall.since + min(limits)
    # The next try comes too late, so waiting for it is useless.
    return stall.since if stall.next_try is not None and stall.next_try > limit else limit


def describe_stall(stall: Stall, ago: str) -> str:
    """Describe the trouble in one sentence. `ago` is how long it has lasted."""
    match stall.kind:
        case StallKind.HOPELESS:
            return f"it waits and tries again, which cannot help: {stall.words}"
        case StallKind.FATAL:
            return f"it reported a fatal error {ago} ago and did not end: {stall.words}"
        case StallKind.RETRYING:
            return f"it only tries again, for {ago} without any progress: {stall.words}"


def _is_on(limit: float) -> bool:
    return 0 < limit < math.inf


TICK = 0.01  # the kernel counts in hundredths of a second: less than three of them may be rounding
AT_WORK = 3 * TICK


class CpuTrail:
    """Readings of a tree's CPU time (time, CPU seconds so far), only as many as are needed.

    The counter only rises. A reading is dropped when more CPU time was used since than a whole quiet window may have:
    no quiet window can start there. A busy tree keeps a handful of readings, a quiet one a few dozen. A tree is quiet
    if it uses less than `quiet_share` of one core (R-TERM-04).
    """

    def __init__(self, window: float, quiet_share: float) -> None:
        self.window = window
        self._quiet_share = quiet_share
        self._readings: deque[tuple[float, float]] = deque()
        self.at_work = True  # True if the newest two readings show work; unknown counts as work: look again soon

    def add(self, at: float, cpu: float) -> None:
        if self._readings:
            last_at, last_cpu = self._readings[-1]
            used = cpu - last_cpu
            self.at_work = used < 0 or used >= max(AT_WORK, self._quiet_share * (at - last_at))
            if cpu < last_cpu:  # a process ended without being counted: earlier readings prove nothing
                self._readings.clear()
        self._readings.append((at, cpu))
        while cpu - self._readings[0][1] >= self._quiet_share * self.window and len(self._readings) > 1:
            self._readings.popleft()
        while len(self._readings) > 1 and self._readings[1][0] <= at - self.window:
            self._readings.popleft()

    @property
    def quiet_since(self) -> float | None:
        """Return the start of the quiet time before the newest reading: since then the tree used less CPU time than
        `quiet_share` of a whole window."""
        return self._readings[0][0] if self._readings else None

    @property
    def read_at(self) -> float | None:
        return self._readings[-1][0] if self._readings else None

    @property
    def share(self) -> float:
        """Return the share of one core that was used over `span`."""
        if not self.span:
            return 0.0
        return (self._readings[-1][1] - self._readings[0][1]) / self.span

    @property
    def span(self) -> float:
        return self._readings[-1][0] - self._readings[0][0] if self._readings else 0.0
