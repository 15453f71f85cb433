"""Deliveries of alerts and endings to people: their targets, their retries and their end. Pure.

A delivery counts an attempt before anything is sent, so crashes cannot make Holdfast send for ever. Many endings and
alerts of tasks within a short time become one notice (`plan_notices`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from holdfast.base.dataclass import dataclass
from holdfast.base.instant import Instant
from holdfast.base.text import as_sentence, clean_text, one_line
from holdfast.core.event_kinds import FAILED, NEEDS_YOU, NOTICE_WORDS
from holdfast.core.model import Level
from holdfast.core.runs.crashes import is_crash_alert
from holdfast.core.runs.retry_budgets import backoff

LEVELS = (Level.DEBUG, Level.INFO, Level.WARNING, Level.CRITICAL)  # in rising importance
_COMMANDS = {
    FAILED: "Look with `holdfast why {id}`; start it again with `holdfast retry {id}`.",
    "completed": "See its work with `holdfast diff {id}`.",
    "cancelled": "Start it again with `holdfast retry {id}`.",
    "paused": "Look with `holdfast why {id}`; continue with `holdfast resume {id}`.",
    "resumed": "Watch it with `holdfast logs {id}`.",
}
BURST = 3  # alerts of tasks that are sent one by one; more of them within `notify.gather` become one notice
FIRST_WAIT = 2.0  # seconds; endings that come so close together share one notice
MOST_NAMED = 20  # endings that one notice names
LONGEST_WAIT = 3600.0  # seconds; a receiver cannot make us wait longer


class Transition(StrEnum):
    """A change of an alert."""

    RAISED = "raised"
    ACKNOWLEDGED = "acknowledged"  # by a person
    RESOLVED = "resolved"  # its cause is over
    ENDED = "ended"  # not of an alert: tasks that ended, paused or resumed


@dataclass(frozen=True, kw_only=True, slots=True)
class DeliveryRules:
    """The rules for deliveries: which deliveries are made, and how often each is tried. All fields are settings."""

    level: Level = Level.WARNING  # the least important level that is delivered
    resolved: bool = False  # also deliver the end of an alert
    crashes: bool = True  # also deliver alerts about crashes
    attempts: int = 8
    first_wait: float = 2.0  # seconds after the first failed attempt; each later wait is twice as long
    longest_wait: float = 600.0
    on: frozenset[str] = frozenset({FAILED, NEEDS_YOU})  # of NOTICE_WORDS
    gather: float = 60.0  # seconds between two notices of endings


@dataclass(frozen=True, kw_only=True, slots=True)
class AlertChange:
    """One change of one alert. `key` stays the same however often the change is sent."""

    id: int
    key: str
    alert_key: str
    transition: Transition
    level: Level
    body: str  # JSON


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """A task that ended, paused or resumed. `prompt` and `reason` are redacted and on one line."""

    seq: int  # of its event
    at: float
    word: str  # of NOTICE_WORDS
    task: str
    prompt: str
    reason: str
    has_alert: bool  # an alert about the same change is sent


@dataclass(frozen=True, kw_only=True, slots=True)
class RecentNotices:
    """The notices that people got lately, and whether more notices are likely soon."""

    alerts: int = 0  # of tasks, each sent by itself
    last: float | None = None  # when the last notice of endings was made (wall time)
    is_idle: bool = False  # no task runs or is queued


@dataclass(frozen=True, kw_only=True, slots=True)
class TogetherNotice:
    """One notice of several endings and alerts of tasks."""

    key: str
    level: Level
    body: Mapping[str, object]
    alerts: tuple[AlertChange, ...]  # part of this notice, so not sent by themselves


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
    """The targets of a delivery. If there are no targets, `why` has the reason."""

    targets: tuple[str, ...]
    why: str = ""


def delivery_key(alert_id: int, transition: Transition, at: float) -> str:
    """Return the key of a change. The key is the same however often the change is sent. It differs for every alert,
    even after a restore of the store."""
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
        "alert": {
            **{name: alert[name] for name in ("id", "key", "level", "task", "at", "message", "remedy", "details")},
            "prompt": alert.get("prompt"),
        },
    }


def is_at_least(level: str, least: str) -> bool:
    return LEVELS.index(Level(level)) >= LEVELS.index(Level(least))


def plan_delivery(notice: AlertChange, targets: Sequence[str], rules: DeliveryRules) -> DeliveryPlan:
    """Return the targets of a change of an alert. A change that is sent to no target is recorded all the same
    (R-CRASH-05)."""
    why = ""
    if not targets:
        why = "no target is configured"
    elif notice.transition is Transition.ENDED:
        why = ""  # its words were chosen when it was made
    elif NEEDS_YOU not in rules.on:
        why = f"`notify.on` has no {NEEDS_YOU}"
    elif not is_at_least(notice.level, rules.level):
        why = f"it is below `notify.level` ({rules.level})"
    elif notice.transition is not Transition.RAISED and not rules.resolved:
        why = "`notify.resolved` is off"
    elif is_crash_alert(notice.alert_key) and not rules.crashes:
        why = "`crash.notify` is off"
    return DeliveryPlan(targets=() if why else tuple(targets), why=why)


@dataclass(frozen=True, kw_only=True, slots=True)
class NoticePlan:
    """A plan for the notices and endings that were not looked at yet."""

    singles: tuple[tuple[AlertChange, DeliveryPlan], ...] = ()
    together: TogetherNotice | None = None
    seen: int | None = None  # endings up to this event are dealt with
    wait: float | None = None  # seconds until the gathered ones are sent


def plan_notices(
    unplanned: Sequence[AlertChange],
    endings: Sequence[Ending],
    targets: Sequence[str],
    rules: DeliveryRules,
    recent: RecentNotices,
    now: float,
) -> NoticePlan:
    """Decide which alert changes are sent alone, and which endings and alerts of tasks are sent together, now or
    later."""
    singles, held, told = [], [], recent.alerts
    for notice in unplanned:
        plan = plan_delivery(notice, targets, rules)
        if plan.targets and _is_of_task(notice):
            told += 1
            if told > BURST:
                held.append(notice)
                continue
        singles.append((notice, plan))
    words = rules.on if targets else frozenset()
    wanted = [one for one in endings if one.word in words and not (one.has_alert and NEEDS_YOU in words)]
    seen = endings[-1].seq if endings else None
    if not wanted and not held:
        return NoticePlan(singles=tuple(singles), seen=seen)
    wait = _seconds_to_gather([one.at for one in wanted] + [_alert_of(one)["at"] for one in held], rules, recent, now)
    if wait > 0:
        return NoticePlan(singles=tuple(singles), wait=wait)
    return NoticePlan(singles=tuple(singles), together=_together(wanted, held, now), seen=seen)


def _is_of_task(notice: AlertChange) -> bool:
    return notice.transition is Transition.RAISED and _alert_of(notice)["task"] is not None


def _alert_of(notice: AlertChange) -> Mapping[str, Any]:
    alert: Mapping[str, Any] = json.loads(notice.body)["alert"]
    return alert


def _seconds_to_gather(moments: Sequence[float], rules: DeliveryRules, recent: RecentNotices, now: float) -> float:
    """Return the seconds to wait for more endings before a notice is sent. A moment in the future (a clock set back) is
    no reason to wait."""
    passed = now - min(moments)
    wait = 0.0 if recent.is_idle or passed < 0 else FIRST_WAIT - passed
    since = rules.gather if recent.last is None else now - recent.last
    return max(wait, rules.gather - since if since >= 0 else 0.0)


def _together(wanted: Sequence[Ending], held: Sequence[AlertChange], now: float) -> TogetherNotice:
    items: list[dict[str, Any]] = [
        {"task": one.task, "what": one.word, "prompt": one.prompt, "reason": one.reason, "command": _command(one)}
        for one in wanted
    ]
    for notice in held:
        alert = _alert_of(notice)
        names = {"task": "task", "prompt": "prompt", "reason": "message", "command": "remedy"}
        items.append({"what": NEEDS_YOU, **{name: alert.get(source) for name, source in names.items()}})
    counts = [(word, sum(item["what"] == word for item in items)) for word in NOTICE_WORDS]
    first = items[0]
    number = wanted[-1].seq if wanted else held[-1].id
    key = f"endings-{number}-{Transition.ENDED}-{int(now * 1000):x}"
    urgent = {FAILED, NEEDS_YOU} & {item["what"] for item in items}
    level = max((notice.level for notice in held), key=LEVELS.index, default=Level.WARNING if urgent else Level.INFO)
    summary = ", ".join(f"{count} {_WORDS.get(word, word)}" for word, count in counts if count)
    is_one = len(items) == 1
    alert = {
        "id": None,
        "key": "endings",
        "level": str(level),
        "task": first["task"] if is_one else None,
        "at": now,
        "message": as_sentence(f"Task {first['task']} {first['what']}: {first['reason']}")
        if is_one
        else f"Tasks: {summary}.",
        "remedy": first["command"] if is_one else "See them with `holdfast ps --all`.",
        "prompt": first["prompt"] if is_one else None,
        "details": {"endings": items[:MOST_NAMED], "more": max(0, len(items) - MOST_NAMED), "summary": summary},
    }
    body = delivery_body(key, Transition.ENDED, alert, now)
    return TogetherNotice(key=key, level=level, body=body, alerts=tuple(held))


_WORDS = {NEEDS_YOU: "waiting for you"}


def _command(ending: Ending) -> str:
    return _COMMANDS[ending.word].format(id=ending.task)


def show_notice(notice: AlertChange) -> tuple[str, str]:
    """Return the title and the text of a notice for people: what happened, the prompt, and the next command."""
    body = json.loads(notice.body)
    alert, details = body["alert"], body["alert"]["details"] or {}
    what = {
        Transition.RAISED: "needs you" if notice.level is not Level.CRITICAL else "needs you (critical)",
        Transition.ACKNOWLEDGED: "acknowledged",
        Transition.RESOLVED: "over",
        Transition.ENDED: details.get("summary", "tasks"),
    }[notice.transition]
    lines = [clean_text(alert["message"])]
    if alert.get("prompt"):
        lines.append(f"Prompt: {one_line(alert['prompt'])}")
    endings = details.get("endings", []) if notice.transition is Transition.ENDED and alert["task"] is None else []
    lines += [one_line(f"{one['what']}: {one['task']} ({one['prompt']}): {one['reason']}") for one in endings]
    if endings and details["more"]:
        lines.append(f"and {details['more']} more")
    return f"Holdfast: {what}", "\n".join([*lines, clean_text(alert["remedy"])])


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
