"""What stands in the way of an agent that goes on all the same: it cannot succeed, or only tries again and again.

Some CLIs never end by themselves: they sleep out an hour's limit in silence, or wait for the network for ever. Such a
wait is the supervisor's to keep: it resumes the session later, and meanwhile others may run.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from holdfast.core.task_settings import HealthRules

LONGEST_DELAY = 60.0  # seconds until its next try: no agent of ours waits longer than this


class PlightKind(StrEnum):
    """In order: what is worse replaces what is not so bad."""

    RETRYING = "retrying"  # it tries again, which may help
    FATAL = "fatal"  # it reported an error that it cannot survive; it should end any moment
    HOPELESS = "hopeless"  # it tries again, which cannot help


_RANKS = list(PlightKind)


@dataclass(frozen=True, kw_only=True, slots=True)
class Plight:
    """Without any progress since it began. Moments by the caller's clock."""

    kind: PlightKind
    words: str  # the agent's own, of its error
    since: float
    next_try: float | None = None  # when it will try again, as it says

    def dump(self) -> list[Any]:
        return [str(self.kind), self.words, self.since, self.next_try]

    @classmethod
    def load(cls, kept: Sequence[Any]) -> Plight:
        """ValueError or TypeError for what is not ours."""
        kind, words, since, next_try = kept
        return cls(
            kind=PlightKind(kind),
            words=str(words),
            since=float(since),
            next_try=None if next_try is None else float(next_try),
        )


def worsened(before: Plight | None, now: Plight) -> Plight:
    """More of the same began when the first of it did."""
    if before is None or _RANKS.index(now.kind) > _RANKS.index(before.kind):
        return now
    if now.kind is before.kind:
        return replace(now, since=before.since)
    return before


def given_up_at(plight: Plight, rules: HealthRules, *, has_open_tool: bool) -> float:
    """When it is ended, if nothing changes; inf: never. What a tool does meanwhile may still be progress."""
    if not _is_on(rules.doomed_after):
        return math.inf
    if plight.kind is PlightKind.HOPELESS:
        return plight.since
    if has_open_tool:
        return math.inf
    if plight.kind is PlightKind.FATAL:
        return plight.since + rules.doomed_after
    limits = [limit for limit in (rules.retry_patience, rules.stuck_after) if _is_on(limit)]
    if not _is_on(rules.retry_patience):
        return math.inf
    limit = plight.since + min(limits)
    # Why wait for a try that comes too late?
    return plight.since if plight.next_try is not None and plight.next_try > limit else limit


def why_given_up(plight: Plight, ago: str) -> str:
    """One sentence; `ago` is how long the plight lasts."""
    match plight.kind:
        case PlightKind.HOPELESS:
            return f"it waits and tries again, which cannot help: {plight.words}"
        case PlightKind.FATAL:
            return f"it reported a fatal error {ago} ago and did not end: {plight.words}"
        case PlightKind.RETRYING:
            return f"it only tries again, for {ago} without any progress: {plight.words}"


def _is_on(limit: float) -> bool:
    return 0 < limit < math.inf


QUIET_SHARE = 0.01  # of one core: below, a tree is quiet (R-TERM-04)
TICK = 0.01  # the kernel counts in hundredths of a second: less than three of them may be rounding
AT_WORK = 3 * TICK


class CpuTrail:
    """Readings (moment, CPU seconds so far), only as many as are needed.

    The counter only rises, so a reading that lies more CPU time back than a whole window may use can never again be
    the beginning of a quiet window: it is dropped. A busy tree keeps a handful of readings, a quiet one a few dozen.
    """

    def __init__(self, window: float) -> None:
        self.window = window
        self._readings: deque[tuple[float, float]] = deque()
        self.at_work = True  # whether the newest two readings say so; unknown counts as yes: look again soon

    def add(self, at: float, cpu: float) -> None:
        if self._readings:
            last_at, last_cpu = self._readings[-1]
            used = cpu - last_cpu
            self.at_work = used < 0 or used >= max(AT_WORK, QUIET_SHARE * (at - last_at))
            if cpu < last_cpu:  # a process went and nobody counted it: nothing can be said of what was before
                self._readings.clear()
        self._readings.append((at, cpu))
        while cpu - self._readings[0][1] >= QUIET_SHARE * self.window and len(self._readings) > 1:
            self._readings.popleft()
        while len(self._readings) > 1 and self._readings[1][0] <= at - self.window:
            self._readings.popleft()

    @property
    def quiet_since(self) -> float | None:
        """The tree used less than a hundredth of what a window has, from this moment to the newest reading."""
        return self._readings[0][0] if self._readings else None

    @property
    def read_at(self) -> float | None:
        return self._readings[-1][0] if self._readings else None

    @property
    def share(self) -> float:
        """Of one core, over `span`."""
        if not self.span:
            return 0.0
        return (self._readings[-1][1] - self._readings[0][1]) / self.span

    @property
    def span(self) -> float:
        return self._readings[-1][0] - self._readings[0][0] if self._readings else 0.0
