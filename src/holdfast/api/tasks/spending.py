"""Budgets of a task: tries, time, money and tokens. For `show`, `why` and `ps`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from holdfast.api.format import duration, moment, money
from holdfast.base.stored_json import load_stored_json, stored_data_errors

if TYPE_CHECKING:  # `ps` must start fast
    from holdfast.api.fleet.models import SpentBudgetRow
    from holdfast.api.queries import Queries
    from holdfast.api.tasks.models import BudgetRow, SpentInAll, TaskDetails, TaskStateRow
    from holdfast.base.instant import Instant
    from holdfast.core.dispatch.spending_caps import SharedCaps, SpendingCap, UsageEntry, UsedSpending
    from holdfast.core.runs.retry_budgets import RetryLimits, Spend

_IN_TIME = ("outage", "wait")


@stored_data_errors
def read_budgets(queries: Queries, task: TaskDetails) -> dict[str, BudgetRow]:
    """Return the budgets of the current generation by name. The limits are those of this machine's settings."""
    from holdfast import config
    from holdfast.base import clock
    from holdfast.config.retry_budgets import retry_limits_from_settings

    now, limits = clock.now(), retry_limits_from_settings(config.load_valid_values())
    return {**_tries(task, limits, now), **_allowances(queries, task, limits.caps, now)}


@stored_data_errors
def read_total_usage(queries: Queries, task: TaskDetails) -> SpentInAll:
    """Return the usage of all generations. An operator's retry starts budgets afresh, but does not reduce this sum."""
    rows = queries.view("usage_by_generation", id=task["id"])
    return {
        "generations": task["generation"] + 1,
        "runs": len(task["runs"]),
        "cost_usd": sum(row["usd"] for row in rows) if rows else None,
        "tokens": sum(row["tokens"] for row in rows) if rows else None,
        "unpriced_runs": sum(row["unpriced"] for row in rows),
        "uncounted_runs": sum(run["tokens"] is None and bool(run["ended_at"]) for run in task["runs"]) if rows else 0,
    }


# -- tries and time ----------------------------------------------------------------------------------------------------


def _tries(task: TaskDetails, limits: RetryLimits, now: Instant) -> dict[str, BudgetRow]:
    from holdfast.base.instant import Instant
    from holdfast.core.runs.retry_budgets import (
        Budget,
        Spend,
        count_losses_in_a_row,
        count_recent_crashes,
        outage_seconds,
        seconds_until_crash_expires,
        seconds_waited_for_limits,
        spent,
    )

    ledger = [
        Spend(
            budget=Budget(row["budget"]),
            at=Instant(wall=row["wall"], boottime=row["boottime"], boot_id=row["boot_id"]),
        )
        for row in task["spends"]
    ]
    leaves_in = seconds_until_crash_expires(ledger, limits, now)
    return {
        "runs": _of(spent(ledger, Budget.RUNS), limits.runs),
        "crash": {
            **_of(count_recent_crashes(ledger, limits, now), limits.crash),
            "window": limits.crash_window,
            "oldest_leaves_at": None if leaves_in is None else now.wall + leaves_in,
        },
        "retry": _of(spent(ledger, Budget.RETRY), limits.retry),
        "lost": {**_of(count_losses_in_a_row(ledger), limits.lost), "in_all": spent(ledger, Budget.LOST)},
        "outage": _of(min(limits.outage, outage_seconds(ledger, now)) if _waits(ledger) else 0.0, limits.outage),
        "session": _of(spent(ledger, Budget.SESSION), limits.session),
        "resume": _of(task["resume_attempts"], task["max_resumes"]),
        "wait": _of(seconds_waited_for_limits(ledger, now), limits.max_wait),
    }


def _waits(ledger: Sequence[Spend]) -> bool:
    """True if the newest ending was an outage. Only then does the task still wait for the outage to end."""
    from holdfast.core.runs.retry_budgets import Budget

    newest = next((entry for entry in reversed(ledger) if entry.budget is not Budget.LOST), None)
    return newest is not None and newest.budget is Budget.OUTAGE


def _of(spent: float, limit: float) -> BudgetRow:
    return {"spent": spent, "limit": limit, "left": max(0, limit - spent)}


# -- money and tokens --------------------------------------------------------------------------------------------------


def _allowances(queries: Queries, task: TaskDetails, caps: SharedCaps, now: Instant) -> dict[str, BudgetRow]:
    from holdfast.core.dispatch.spending_caps import SpendingCap, entries_in_window, format_labels, sum_entries

    found = _parts("task", SpendingCap(**task["budget"]), _of_task(queries, task))
    if task["parent_id"] is not None:
        [first] = queries.view("first_of_family", id=task["id"])
        root = queries.state(first["id"])
        cap = SpendingCap(**{"usd": None, "tokens": None, **load_stored_json(root["settings"]).get("budget", {})})
        found |= _parts("family", cap, _of_task(queries, root))
    shared = [one for one in caps.all() if one.applies_to(format_labels(task["labels"]))]
    lately = _recent_usage(queries, now) if any(one.is_sliding for one in shared) else []
    for one in shared:
        total = (
            sum_entries(entries_in_window(lately, now, one.label))
            if one.is_sliding
            else _total(queries, str(one.label))
        )
        found |= _parts(one.key, one.cap, total)
    return found


def _of_task(queries: Queries, task: TaskDetails | TaskStateRow) -> UsedSpending:
    """Return the usage of a task. The first task of a family counts all of its subtasks."""
    from holdfast.core.dispatch.spending_caps import UsedSpending

    [row] = queries.view("usage_of_task", id=task["id"], generation=task["generation"])
    return UsedSpending(**row)


def _parts(name: str, cap: SpendingCap, used: UsedSpending) -> dict[str, BudgetRow]:
    found: dict[str, BudgetRow] = {}
    if cap.usd is not None:
        found[f"{name}_usd"] = {**_of(round(used.usd, 6), cap.usd), "unpriced_runs": used.unpriced}
    if cap.tokens is not None:
        found[f"{name}_tokens"] = _of(used.tokens, cap.tokens)
    return found


def _recent_usage(queries: Queries, now: Instant) -> list[UsageEntry]:
    from holdfast.base.instant import Instant
    from holdfast.core.dispatch.spending_caps import CLOCK_WAS_SET_BACK, DAY, UsageEntry, UsedSpending

    rows = queries.view(
        "usage_lately",
        boot_id=now.boot_id,
        boottime=now.boottime,
        wall=now.wall,
        window=DAY,
        tolerance=CLOCK_WAS_SET_BACK,
    )
    return [
        UsageEntry(
            at=Instant(wall=row["wall"], boottime=row["boottime"], boot_id=row["boot_id"]),
            used=UsedSpending(usd=row["cost_usd"] or 0.0, tokens=row["tokens"], unpriced=int(row["cost_usd"] is None)),
            labels=frozenset(load_stored_json(row["labels"])),
        )
        for row in rows
    ]


def _total(queries: Queries, label: str) -> UsedSpending:
    from holdfast.core.dispatch.spending_caps import UsedSpending

    rows = queries.view("label_total", label=label)
    return UsedSpending(**rows[0]) if rows else UsedSpending()


def counts_for_labels(row: SpentBudgetRow, labels: Mapping[str, str]) -> bool:
    """True if a shared budget counts what a task with these labels spends."""
    return row["label"] is None or row["label"] in {f"{key}={value}" for key, value in labels.items()}


# -- in words ----------------------------------------------------------------------------------------------------------


def budgets_on_one_line(found: Mapping[str, BudgetRow]) -> str:
    """Return all budgets on one line, for `show`."""
    return ", ".join(
        f"{name} {_amount(name, one['spent'])}/{_amount(name, one['limit'])}" for name, one in found.items()
    )


def budget_lines(found: Mapping[str, BudgetRow], in_all: SpentInAll, *, everything: bool = False) -> list[str]:
    """Return sentences for `why`: what is spent of each budget, and what earlier generations used.

    Without `everything`, only those of money and tokens, and those of which something is spent beyond the first run.
    """
    words = [
        f"{name} {_amount(name, one['spent'])} of {_amount(name, one['limit'])}{_aside(one)}"
        for name, one in found.items()
        if everything or name.endswith(("_usd", "_tokens")) or one["spent"] > (1 if name == "runs" else 0)
    ]
    return ["Budgets: " + ", ".join(words) + ".", *_asides(found, in_all)] if words else []


def left_lines(found: Mapping[str, BudgetRow], in_all: SpentInAll) -> list[str]:
    """Return one line for each budget, for a screen."""
    width = max(map(len, found), default=0)
    lines = [
        f"{name:<{width}}  {_amount(name, one['left'])} left, {_amount(name, one['spent'])} of "
        f"{_amount(name, one['limit'])} used{_aside(one)}"
        for name, one in found.items()
    ]
    return [*lines, *_asides(found, in_all)]


def _asides(found: Mapping[str, BudgetRow], in_all: SpentInAll) -> list[str]:
    lines = []
    unpriced = max((one.get("unpriced_runs", 0) for one in found.values()), default=0)
    if unpriced:
        lines.append(f"{unpriced} run(s) did not report their cost, so the true total is higher.")
    if in_all["uncounted_runs"]:
        lines.append(
            f"{in_all['uncounted_runs']} run(s) ended before they reported tokens, so the true total is higher."
        )
    if in_all["generations"] > 1:
        cost = "" if in_all["cost_usd"] is None else f", {money(in_all['cost_usd'])}, {in_all['tokens']} tokens"
        often = "once" if in_all["generations"] == 2 else f"{in_all['generations'] - 1} times"
        lines.append(
            f"A person's retry or message reset the budgets {often}. In total the task took {in_all['runs']} "
            f"runs{cost}."
        )
    return lines


def _amount(name: str, value: float) -> str:
    if name in _IN_TIME:
        return duration(value)
    return money(value) if name.endswith("_usd") else str(value)


def _aside(one: BudgetRow) -> str:
    leaves_at = one.get("oldest_leaves_at")
    return (
        ""
        if leaves_at is None
        else f" in {duration(one['window'])} (the oldest amount drops out at {moment(leaves_at)})"
    )
