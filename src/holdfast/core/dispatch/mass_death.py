"""Mass death: many agents that die at once because of one trouble of the machine, not of their tasks (R-CRASH-07).
Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from holdfast.base.dataclass import dataclass
from holdfast.base.instant import Instant
from holdfast.core.dispatch.holds import Hold, HoldRules, Scope, extend_hold
from holdfast.core.runs.outcome import Outcome, Verdict

EVERYTHING = "all"  # the name of the only hold in this scope
LONGEST_HOLD = 3600.0
_CLOCK_WAS_SET_BACK = 60.0
REMEMBERED = 86400.0  # seconds for which a mass death makes the next hold longer
DEATHS = frozenset({Outcome.EXTERNAL_KILL, Outcome.OUT_OF_MEMORY, Outcome.CRASHED})
_UNINFORMATIVE_OUTCOMES = frozenset(
    {Outcome.STOPPED, Outcome.CANCELLED, Outcome.PAUSED, Outcome.LAUNCH_ERROR, Outcome.LOST, Outcome.UNKNOWN}
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Death:
    """An agent that died without a stop request."""

    run_id: str
    task_id: str
    at: float  # wall time of its end
    is_mass: bool = False  # part of a mass death: it spends no budget


def deaths_in_window(deaths: Iterable[Death], at: float, window: float) -> list[Death]:
    """Return the deaths in one window of time: of the windows that contain `at`, the one with the most deaths, or the
    earliest of several."""
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
    """True if the deaths are a mass death (R-CRASH-07). `ran`: all agents that ran in the window, the dead ones
    included."""
    return 0 < rules.deaths <= dead and dead >= rules.death_share * max(ran, dead)


def may_become_mass_death(dead: int, alive: int, ran: int, rules: HoldRules) -> bool:
    """True if these deaths would become a mass death if the agents that still live died too."""
    return is_mass(dead + alive, ran, rules)


def start_fleet_hold(hold: Hold | None, reason: str, rules: HoldRules, now: Instant, jitter: float) -> Hold:
    """Return the hold after a mass death. Further deaths of the same mass death change nothing. The death of a probe is
    handled by `update_fleet_hold`."""
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
    return extend_hold(begun, rules.death_hold, max(LONGEST_HOLD, rules.death_hold), now, jitter)


def _is_remembered(earlier: Instant, now: Instant) -> bool:
    """True if an earlier mass death still counts. A mass death in the future does not count: the clock was set back at
    a reboot, so the end of its memory is unknown."""
    from_the_future = earlier.boot_id != now.boot_id and earlier.wall > now.wall + _CLOCK_WAS_SET_BACK
    return not from_the_future and now.since(earlier) < REMEMBERED


def release_fleet_hold(hold: Hold) -> Hold:
    """Release the hold, but keep its row as a memory of the mass deaths. Without that memory a fleet that is too large
    for its machine would die, wait and die again for ever, without spending any budget."""
    return replace(hold, until=None, probe=None)


def update_fleet_hold(
    hold: Hold, task_id: str, verdict: Verdict, rules: HoldRules, now: Instant, jitter: float
) -> Hold | None:
    if not hold.is_probe(task_id):
        return hold
    if verdict.outcome in DEATHS:
        again = replace(hold, reason=f"the task that started first died too: {verdict.reason}")
        return extend_hold(again, rules.death_hold, max(LONGEST_HOLD, rules.death_hold), now, jitter)
    return replace(hold, probe=None) if verdict.outcome in _UNINFORMATIVE_OUTCOMES else None
