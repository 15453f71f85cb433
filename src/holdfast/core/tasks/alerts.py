"""Deliveries of alerts to people: their targets, their retries and their end. Pure.

A delivery counts an attempt before anything is sent. So a crash in between cannot make Holdfast send for ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from holdfast.base.instant import Instant
from holdfast.core.model import Level
from holdfast.core.runs.crashes import is_crash_alert
from holdfast.core.runs.retry_budgets import backoff

LEVELS = (Level.DEBUG, Level.INFO, Level.WARNING, Level.CRITICAL)  # in rising importance
LONGEST_WAIT = 3600.0  # seconds; a receiver cannot make us wait longer


class Transition(StrEnum):
    """A change of an alert."""

    RAISED = "raised"
    ACKNOWLEDGED = "acknowledged"  # by a person
    RESOLVED = "resolved"  # its cause is over


@dataclass(frozen=True, kw_only=True, slots=True)
class DeliveryRules:
    """The rules for deliveries: which ones are made, and how often they are tried. All fields are settings."""

    level: Level = Level.WARNING  # the least important level that is delivered
    resolved: bool = False  # also deliver the end of an alert
    crashes: bool = True  # also deliver alerts about crashes
    attempts: int = 8
    first_wait: float = 2.0  # seconds after the first failed attempt; each later wait is twice as long
    longest_wait: float = 600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class AlertChange:
    """One change of one alert. `key` stays the same however often it is sent."""

    id: int
    key: str
    alert_key: str
    transition: Transition
    level: Level
    body: str  # JSON


@dataclass(frozen=True, kw_only=True, slots=True)
class Delivery:
    """The delivery of one change of an alert to one target."""

    notice: AlertChange
    target: str
    attempts: int  # attempts that were begun
    delay: float  # seconds after the last attempt before the next may begin
    last: Instant | None


@dataclass(frozen=True, kw_only=True, slots=True)
class DeliveryPlan:
    """The targets of a delivery. If there are none, `why` has the reason."""

    targets: tuple[str, ...]
    why: str = ""


def delivery_key(alert_id: int, transition: Transition, at: float) -> str:
    """Return the key of a change. It is the same however often it is sent, and differs for every alert, also after a
    restore."""
    return f"alert-{alert_id}-{transition}-{int(at * 1000):x}"


def delivery_body(
    key: str, transition: Transition, alert: Mapping[str, object], at: float, by: str = "", why: str = ""
) -> dict[str, object]:
    """Return the message. It is stable and documented (docs/howto/alerts.md). Fields are only ever added."""
    return {
        "schema": 1,
        "key": key,
        "transition": str(transition),
        "at": at,
        "by": by or None,
        "why": why or None,
        "alert": {name: alert[name] for name in ("id", "key", "level", "task", "at", "message", "remedy", "details")},
    }


def is_at_least(level: str, least: str) -> bool:
    return LEVELS.index(Level(level)) >= LEVELS.index(Level(least))


def plan_delivery(notice: AlertChange, targets: Sequence[str], rules: DeliveryRules) -> DeliveryPlan:
    """Return the targets of a change of an alert. A change that is not sent is recorded all the same (R-CRASH-05)."""
    why = ""
    if not targets:
        why = "no target is configured"
    elif not is_at_least(notice.level, rules.level):
        why = f"it is below `notify.level` ({rules.level})"
    elif notice.transition is not Transition.RAISED and not rules.resolved:
        why = "`notify.resolved` is off"
    elif is_crash_alert(notice.alert_key) and not rules.crashes:
        why = "`crash.notify` is off"
    return DeliveryPlan(targets=() if why else tuple(targets), why=why)


def seconds_until_due(delivery: Delivery, now: Instant) -> float:
    """Return the seconds until the next attempt may begin. A last attempt in the future (a clock set back) is not a
    reason to wait."""
    if delivery.last is None:
        return 0.0
    if now.boot_id == delivery.last.boot_id:
        passed = now.boottime - delivery.last.boottime
    else:
        passed = now.wall - delivery.last.wall
    return 0.0 if passed < 0 else max(0.0, delivery.delay - passed)


def is_out_of_attempts(delivery: Delivery, rules: DeliveryRules) -> bool:
    return delivery.attempts >= rules.attempts


def seconds_after_attempt(
    attempts: int, rules: DeliveryRules, jitter: float, retry_after: float | None = None
) -> float:
    """Return the seconds to wait after attempt number `attempts`. The wait is longer if the receiver asks for it,
    within bounds."""
    own = backoff(attempts - 1, rules.longest_wait, jitter, rules.first_wait)
    return own if retry_after is None else max(own, min(retry_after, LONGEST_WAIT))
