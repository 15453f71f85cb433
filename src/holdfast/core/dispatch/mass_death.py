"""Many agents that die at once: one trouble of the machine, not one of each of their tasks (R-CRASH-07). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from holdfast.base.instant import Instant
from holdfast.core.dispatch.holds import Hold, HoldRules, Scope, held_again
from holdfast.core.runs.outcome import Outcome, Verdict

EVERYTHING = "all"  # the name of the one hold of its scope
LONGEST_HOLD = 3600.0
_CLOCK_WAS_SET_BACK = 60.0
REMEMBERED = 86400.0  # seconds for which a mass death makes the next one worse
DEATHS = frozenset({Outcome.EXTERNAL_KILL, Outcome.OUT_OF_MEMORY, Outcome.CRASHED})
_SAYS_NOTHING = frozenset(
    {Outcome.STOPPED, Outcome.CANCELLED, Outcome.PAUSED, Outcome.LAUNCH_ERROR, Outcome.LOST, Outcome.UNKNOWN}
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Death:
    """An agent that died, and nobody asked for it."""

    run_id: str
    task_id: str
    at: float  # wall time of its end
    is_mass: bool = False  # one of many: it costs nobody anything


def among(deaths: Iterable[Death], at: float, window: float) -> list[Death]:
    """The most deaths within one window that has this moment in it; those of the earliest such window."""
    times = sorted((death for death in deaths if abs(death.at - at) <= window), key=lambda death: death.at)
    best: list[Death] = []
    for first in times:
        if first.at > at:
            break
        here = [death for death in times if first.at <= death.at <= first.at + window]
        if len(here) > len(best) and here[-1].at >= at:
            best = here
    return best


def is_mass(dead: int, ran: int, rules: HoldRules) -> bool:
    """R-CRASH-07. `ran`: all that ran in the window, the dead included."""
    return 0 < rules.deaths <= dead and dead >= rules.death_share * max(ran, dead)


def may_become_mass(dead: int, alive: int, ran: int, rules: HoldRules) -> bool:
    """Whether those that live could still make it one."""
    return is_mass(dead + alive, ran, rules)


def after_mass(hold: Hold | None, reason: str, rules: HoldRules, now: Instant, jitter: float) -> Hold:
    """More deaths of the same storm change nothing; a probe's own death is after_fleet's."""
    if hold is not None and hold.is_held:
        return hold
    storms = hold.failures if hold is not None and _is_remembered(hold.since, now) else 0
    begun = Hold(
        scope=Scope.FLEET,
        name=EVERYTHING,
        since=now,
        until=None,
        decided=now.wall,
        reason=reason,
        failures=storms + 1,
        rounds=storms,
    )
    return held_again(begun, rules.death_hold, max(LONGEST_HOLD, rules.death_hold), now, jitter)


def _is_remembered(earlier: Instant, now: Instant) -> bool:
    """Not what lies in the future of a clock that was set back over a reboot: nobody knows when that would be over."""
    from_the_future = earlier.boot_id != now.boot_id and earlier.wall > now.wall + _CLOCK_WAS_SET_BACK
    return not from_the_future and now.since(earlier) < REMEMBERED


def calmed(hold: Hold) -> Hold:
    """All may start again; but it is remembered that this happened, or a fleet that is too large for its machine would
    die, wait, and die again for ever, at nobody's expense."""
    return replace(hold, until=None, probe=None)


def after_fleet(
    hold: Hold, task_id: str, verdict: Verdict, rules: HoldRules, now: Instant, jitter: float
) -> Hold | None:
    if not hold.is_probe(task_id):
        return hold
    if verdict.outcome in DEATHS:
        again = replace(hold, reason=f"the task that went first died too: {verdict.reason}")
        return held_again(again, rules.death_hold, max(LONGEST_HOLD, rules.death_hold), now, jitter)
    return replace(hold, probe=None) if verdict.outcome in _SAYS_NOTHING else None
