"""Alerts on their way to people: who is told, when it is tried again, and when it is given up. Pure.

A delivery counts its attempts before anything is sent: whatever kills us in between cannot make us send for ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from holdfast.base.instant import Instant
from holdfast.core.model import Level
from holdfast.core.runs.crashes import is_about_crashes
from holdfast.core.runs.retry_budgets import backoff

LEVELS = (Level.DEBUG, Level.INFO, Level.WARNING, Level.CRITICAL)  # from the quietest on
LONGEST_WAIT = 3600.0  # however long a receiver asks us to stay away


class Transition(StrEnum):
    """What became of an alert."""

    RAISED = "raised"
    ACKNOWLEDGED = "acknowledged"  # by a person
    RESOLVED = "resolved"  # its cause is over


@dataclass(frozen=True, kw_only=True, slots=True)
class NoticeRules:
    """Which notices are sent, and how hard we try. All are settings."""

    level: Level = Level.WARNING  # nothing below it
    resolved: bool = False  # also when an alert is over
    crashes: bool = True  # those about crashes
    attempts: int = 8
    first_wait: float = 2.0  # after the first attempt that failed; each later one waits twice as long
    longest_wait: float = 600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Notice:
    """One thing that became of one alert. `key` is the same however often it is sent."""

    id: int
    key: str
    alert_key: str
    transition: Transition
    level: Level
    body: str  # JSON


@dataclass(frozen=True, kw_only=True, slots=True)
class Delivery:
    """A notice on its way to one target."""

    notice: Notice
    target: str
    attempts: int  # that were begun
    delay: float  # how long after the last one the next may begin
    last: Instant | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """To whom a notice goes; to nobody for the reason `why`."""

    targets: tuple[str, ...]
    why: str = ""


def key_of(alert_id: int, transition: Transition, at: float) -> str:
    """The same however often it is sent, and another one for every alert there will be, also after a restore."""
    return f"alert-{alert_id}-{transition}-{int(at * 1000):x}"


def body_of(
    key: str, transition: Transition, alert: Mapping[str, object], at: float, by: str = "", why: str = ""
) -> dict[str, object]:
    """What is sent, stable and documented (docs/howto/alerts.md). Fields are only ever added."""
    return {
        "schema": 1,
        "key": key,
        "transition": str(transition),
        "at": at,
        "by": by or None,
        "why": why or None,
        "alert": {name: alert[name] for name in ("id", "key", "level", "task", "at", "message", "remedy", "details")},
    }


def at_least(level: str, least: str) -> bool:
    return LEVELS.index(Level(level)) >= LEVELS.index(Level(least))


def plan(notice: Notice, targets: Sequence[str], rules: NoticeRules) -> Plan:
    """R-CRASH-05: what is not sent is recorded all the same."""
    why = ""
    if not targets:
        why = "no target is configured"
    elif not at_least(notice.level, rules.level):
        why = f"it is below `notify.level` ({rules.level})"
    elif notice.transition is not Transition.RAISED and not rules.resolved:
        why = "`notify.resolved` is off"
    elif is_about_crashes(notice.alert_key) and not rules.crashes:
        why = "`crash.notify` is off"
    return Plan(targets=() if why else tuple(targets), why=why)


def due_in(delivery: Delivery, now: Instant) -> float:
    """Seconds until the next attempt may begin. A last one in the future (a clock set back) is no reason to wait."""
    if delivery.last is None:
        return 0.0
    if now.boot_id == delivery.last.boot_id:
        passed = now.boottime - delivery.last.boottime
    else:
        passed = now.wall - delivery.last.wall
    return 0.0 if passed < 0 else max(0.0, delivery.delay - passed)


def is_spent(delivery: Delivery, rules: NoticeRules) -> bool:
    return delivery.attempts >= rules.attempts


def wait_after(attempts: int, rules: NoticeRules, jitter: float, retry_after: float | None = None) -> float:
    """How long after the `attempts`-th attempt; longer if the receiver asks for it, within bounds."""
    own = backoff(attempts - 1, rules.longest_wait, jitter, rules.first_wait)
    return own if retry_after is None else max(own, min(retry_after, LONGEST_WAIT))
