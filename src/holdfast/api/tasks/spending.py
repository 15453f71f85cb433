"""What is left of a task's budgets: of tries, of time, of money and tokens. For `show`, `why` and `ps`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.api.format import duration, moment, money
from holdfast.base.stored_json import recorded, understood

if TYPE_CHECKING:  # who only lists tasks has to start fast
    from holdfast.api.queries import Queries
    from holdfast.base.instant import Instant
    from holdfast.core.dispatch.spending_caps import Cap, Caps, Entry, Used

Row = dict[str, Any]
_IN_TIME = ("outage", "wait")


@understood
def budgets(queries: Queries, task: Row) -> Row:
    """Name → {spent, limit, left, …}, of the present generation. The limits are those of this machine's settings."""
    from holdfast import config
    from holdfast.base import clock
    from holdfast.config.retry_budgets import limits_of

    now, limits = clock.now(), limits_of(config.best_effort())
    return {**_tries(task, limits, now), **_allowances(queries, task, limits.caps, now)}


@understood
def spent_in_all(queries: Queries, task: Row) -> Row:
    """Of every generation: an operator's retry starts budgets afresh, and takes nothing back."""
    rows = queries.view("usage_by_generation", id=task["id"])
    return {
        "generations": task["generation"] + 1,
        "runs": len(task["runs"]),
        "cost_usd": sum(row["usd"] for row in rows) if rows else None,
        "tokens": sum(row["tokens"] for row in rows) if rows else None,
        "unpriced_runs": sum(row["unpriced"] for row in rows),
    }


# -- tries and time ----------------------------------------------------------------------------------------------------


def _tries(task: Row, limits: Any, now: Instant) -> Row:
    from holdfast.base.instant import Instant
    from holdfast.core.runs.retry_budgets import (
        Budget,
        Spend,
        crash_leaves_in,
        lost_without_progress,
        outage_seconds,
        recent_crashes,
        spent,
        waited_for_limits,
    )

    ledger = [
        Spend(
            budget=Budget(row["budget"]),
            at=Instant(wall=row["wall"], boottime=row["boottime"], boot_id=row["boot_id"]),
        )
        for row in task["spends"]
    ]
    leaves_in = crash_leaves_in(ledger, limits, now)
    return {
        "runs": _of(spent(ledger, Budget.RUNS), limits.runs),
        "crash": {
            **_of(recent_crashes(ledger, limits, now), limits.crash),
            "window": limits.crash_window,
            "oldest_leaves_at": None if leaves_in is None else now.wall + leaves_in,
        },
        "retry": _of(spent(ledger, Budget.RETRY), limits.retry),
        "lost": {**_of(lost_without_progress(ledger), limits.lost), "in_all": spent(ledger, Budget.LOST)},
        "outage": _of(min(limits.outage, outage_seconds(ledger, now)) if _waits(ledger) else 0.0, limits.outage),
        "session": _of(spent(ledger, Budget.SESSION), limits.session),
        "resume": _of(task["resume_attempts"], task["max_resumes"]),
        "wait": _of(waited_for_limits(ledger, now), limits.max_wait),
    }


def _waits(ledger: Any) -> bool:
    """Whether the newest ending was an outage: only then does its waiting go on."""
    from holdfast.core.runs.retry_budgets import Budget

    newest = next((entry for entry in reversed(ledger) if entry.budget is not Budget.LOST), None)
    return newest is not None and newest.budget is Budget.OUTAGE


def _of(spent: float, limit: float) -> Row:
    return {"spent": spent, "limit": limit, "left": max(0, limit - spent)}


# -- money and tokens --------------------------------------------------------------------------------------------------


def _allowances(queries: Queries, task: Row, caps: Caps, now: Instant) -> Row:
    from holdfast.core.dispatch.spending_caps import Cap, in_window, labels_of, sum_of

    found = _parts("task", Cap(**task["budget"]), _of_task(queries, task))
    if task["parent_id"] is not None:
        [first] = queries.view("first_of_family", id=task["id"])
        root = queries.state(first["id"])
        cap = Cap(**{"usd": None, "tokens": None, **recorded(root["settings"]).get("budget", {})})
        found |= _parts("family", cap, _of_task(queries, root))
    shared = [one for one in caps.all() if one.concerns(labels_of(task["labels"]))]
    lately = _lately(queries, now) if any(one.is_sliding for one in shared) else []
    for one in shared:
        total = sum_of(in_window(lately, now, one.label)) if one.is_sliding else _total(queries, str(one.label))
        found |= _parts(one.key, one.cap, total)
    return found


def _of_task(queries: Queries, task: Row) -> Used:
    """Of the first task of a family: with all of its subtasks."""
    from holdfast.core.dispatch.spending_caps import Used

    [row] = queries.view("usage_of_task", id=task["id"], generation=task["generation"])
    return Used(**row)


def _parts(name: str, cap: Cap, used: Used) -> Row:
    found: Row = {}
    if cap.usd is not None:
        found[f"{name}_usd"] = {**_of(round(used.usd, 6), cap.usd), "unpriced_runs": used.unpriced}
    if cap.tokens is not None:
        found[f"{name}_tokens"] = _of(used.tokens, cap.tokens)
    return found


def _lately(queries: Queries, now: Instant) -> list[Entry]:
    from holdfast.base.instant import Instant
    from holdfast.core.dispatch.spending_caps import CLOCK_WAS_SET_BACK, DAY, Entry, Used

    rows = queries.view(
        "usage_lately",
        boot_id=now.boot_id,
        boottime=now.boottime,
        wall=now.wall,
        window=DAY,
        tolerance=CLOCK_WAS_SET_BACK,
    )
    return [
        Entry(
            at=Instant(wall=row["wall"], boottime=row["boottime"], boot_id=row["boot_id"]),
            used=Used(usd=row["cost_usd"] or 0.0, tokens=row["tokens"], unpriced=int(row["cost_usd"] is None)),
            labels=frozenset(recorded(row["labels"])),
        )
        for row in rows
    ]


def _total(queries: Queries, label: str) -> Used:
    from holdfast.core.dispatch.spending_caps import Used

    rows = queries.view("label_total", label=label)
    return Used(**rows[0]) if rows else Used()


# -- who waits ---------------------------------------------------------------------------------------------------------


def waits_for_budget(queries: Queries, task: Row) -> str | None:
    """Why a queued task does not start, or a paused one cannot be resumed, if that is for a shared budget."""
    if task["state"] != "queued" and task["pause_reason"] != "budget":
        return None
    labels = recorded(queries.state(task["id"])["settings"])["labels"]
    found = [row for row in queries.view("spent_budgets") if _concerns(row, labels)]
    if not found:
        return None
    words = "; ".join(_words(row) for row in found)
    more = "It starts by itself then." if task["state"] == "queued" else "After that it can be resumed."
    return f"It waits, and spends nothing: {words}. {more} Or raise it: `budget.*` of the settings."


def wants_more(task: Row, found: Row) -> str | None:
    """How a paused task goes on whose own budget, or that of its family, is spent: a plain resume is refused."""
    if task["state"] != "paused" or task["pause_reason"] != "budget":
        return None
    for part, flag in (("usd", "--budget-usd X"), ("tokens", "--budget-tokens N")):
        if any(found.get(f"{whose}_{part}", {"left": 1})["left"] <= 0 for whose in ("task", "family")):
            return f"Give it more, in all: `holdfast resume {task['id']} {flag}`."
    return None


def waits_for_raise(queries: Queries, task: Row) -> bool:
    """Whether a queued task waits for a budget that no time gives back."""
    endless = [row for row in queries.view("spent_budgets") if row["until"] is None]
    if not endless or task["state"] != "queued":
        return False
    labels = recorded(queries.state(task["id"])["settings"])["labels"]
    return any(_concerns(row, labels) for row in endless)


def spent_words(queries: Queries) -> Callable[[Row], str | None] | None:
    """For `ps`: a task's labels → the shared budget that it waits for. None: none is spent."""
    rows = queries.view("spent_budgets")
    if not rows:
        return None
    return lambda labels: "; ".join(_words(row) for row in rows if _concerns(row, labels)) or None


def _concerns(row: Row, labels: Row) -> bool:
    return row["label"] is None or row["label"] in {f"{key}={value}" for key, value in labels.items()}


def _words(row: Row) -> str:
    until = "" if row["until"] is None else f", until {moment(row['until'])}"
    return f"{row['reason']}{until}"


# -- in words ----------------------------------------------------------------------------------------------------------


def in_short(found: Row) -> str:
    """For `show`: one line."""
    return ", ".join(
        f"{name} {_amount(name, one['spent'])}/{_amount(name, one['limit'])}" for name, one in found.items()
    )


def budget_lines(found: Row, in_all: Row) -> list[str]:
    """For `why`: what is left of each, and what an operator's retries had used before."""
    words = [
        f"{name} {_amount(name, one['spent'])} of {_amount(name, one['limit'])}{_aside(one)}"
        for name, one in found.items()
    ]
    return ["Budgets: " + ", ".join(words) + ".", *_asides(found, in_all)]


def left_lines(found: Row, in_all: Row) -> list[str]:
    """For a screen: one line each."""
    width = max(map(len, found), default=0)
    lines = [
        f"{name:<{width}}  {_amount(name, one['left'])} left, {_amount(name, one['spent'])} of "
        f"{_amount(name, one['limit'])} used{_aside(one)}"
        for name, one in found.items()
    ]
    return [*lines, *_asides(found, in_all)]


def _asides(found: Row, in_all: Row) -> list[str]:
    lines = []
    unpriced = max((one.get("unpriced_runs", 0) for one in found.values()), default=0)
    if unpriced:
        lines.append(f"{unpriced} run(s) did not say what they cost: the true sum is higher.")
    if in_all["generations"] > 1:
        cost = "" if in_all["cost_usd"] is None else f", {money(in_all['cost_usd'])}, {in_all['tokens']} tokens"
        retries = in_all["generations"] - 1
        lines.append(
            f"An operator's retry started them afresh {retries} time(s); in all it took {in_all['runs']} run(s){cost}."
        )
    return lines


def _amount(name: str, value: float) -> str:
    if name in _IN_TIME:
        return duration(value)
    return money(value) if name.endswith("_usd") else str(value)


def _aside(one: Row) -> str:
    if one.get("oldest_leaves_at") is not None:
        return f" in {duration(one['window'])} (the oldest is forgotten at {moment(one['oldest_leaves_at'])})"
    return ""
