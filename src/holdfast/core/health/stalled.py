"""What stands in the way of an agent that goes on all the same: it cannot succeed, or only tries again and again.

Some CLIs never end by themselves: they sleep out an hour's limit in silence, or wait for the network for ever. Such a
wait is the supervisor's to keep: it resumes the session later, and meanwhile others may run.
"""

from __future__ import annotations

import math
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
