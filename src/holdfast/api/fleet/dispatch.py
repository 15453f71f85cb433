"""Holds of providers, accounts and the fleet: since when, until when, which task starts first, and their release.

The module imports little, because `ps` reads holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.api.format import moment
from holdfast.api.queries import Queries
from holdfast.base import clock
from holdfast.base.errors import NotFound
from holdfast.base.stored_json import load_stored_json, stored_data_errors

if TYPE_CHECKING:
    from holdfast.api.fleet.models import HoldRow
    from holdfast.api.tasks.models import JsonObject
    from holdfast.store.port.transaction import Transaction

FLEET = "fleet:all"
_SET_BACK = 60.0  # seconds; a time that was decided so far in the future is over (core/dispatch/holds.py)
_MOST_STORMS = 3  # core/holds.MOST_STORMS; a test compares them


def list_holds(queries: Queries) -> list[HoldRow]:
    """Return the holds that stop or slow tasks now. Failures that were counted but led to no hold are left out."""
    now = clock.now().wall
    return [_row(row, now) for row in queries.view("holds") if row["until"] is not None]


def describe_hold_row(row: HoldRow) -> str:
    """Return one clause: what is held, since when, and what ends the hold."""
    if row["scope"] == "near":
        until = f"until {moment(row['until'])} ({row['reason']})"
        return f"account {row['name']} is near its limit: its agents start one by one {until}"
    if row["probe"] is None and row["until"] is not None and row["is_due"]:
        since = moment(row["since"])
        return f"{_what(row['hold'])} is held since {since}: one task starts first, as a probe ({row['reason']})"
    return describe_hold(row["hold"], row["since"], row["until"], row["probe"], row["reason"])


def describe_hold(hold: str, since: float | None, until: float | None, probe: str | None, reason: str) -> str:
    """Return one clause about a hold: since when, and its probe, its end, or that a person has to release it. `probe`:
    the task that starts first."""
    held = f"{_what(hold)} is held since {moment(since)}"
    if probe is not None:
        return f"{held}: task {probe} starts first ({reason})"
    end = "until you let it start" if until is None else f"until {moment(until)}"
    return f"{held}, {end} ({reason})"


def _what(hold: str) -> str:
    scope, _, name = hold.partition(":")
    return {"fleet": "everything", "provider": f"provider {name}"}.get(scope, f"account {name}")


def delays_task(row: HoldRow, agent: str, account: str | None, provider: str | None, task_id: str) -> bool:
    """True if a hold delays a queued task: the hold covers it, and another task starts first or the hold is not due."""
    is_about = (
        row["scope"] == "fleet"
        or (row["scope"] == "provider" and row["name"] == provider)
        or (row["scope"] == "account" and account is not None and row["name"] == f"{agent}/{account}")
    )
    return is_about and row["probe"] != task_id and (row["probe"] is not None or not row["is_due"])


def probe_lines(queries: Queries, task_id: str) -> list[str]:
    """Return a sentence for each hold whose probe is this task."""
    return [
        f"It starts first, to test whether {row['hold']} works again. The other tasks wait for the result."
        for row in list_holds(queries)
        if row["probe"] == task_id
    ]


def release(home: str, word: str | None) -> tuple[list[str], list[str]]:
    """Release one hold by name, or all. Return the released holds, and the tasks that continue."""
    from holdfast.api.commands import change_store, operator_name  # imported here: readers have to start fast
    from holdfast.core.dispatch.holds import Scope

    def let_go(tx: Transaction) -> tuple[list[str], list[str]]:
        now, by = clock.now(), f"released by {operator_name()}"
        chosen = [hold for hold in tx.holds.all() if word is None or hold.full_name == word]
        for hold in chosen:
            tx.holds.release(hold.scope, hold.name, by, now, forget=True)
        resumed: list[str] = []
        providers = [hold.name for hold in chosen if hold.scope is Scope.PROVIDER]
        for provider in providers:
            for task_id in tx.holds.paused_by_outage(provider):
                if tx.tasks.resume(task_id, operator_name(), now).allowed:
                    resumed.append(task_id)
        return [hold.full_name for hold in chosen if hold.is_held or hold.name in providers], resumed

    released, resumed = change_store(home, let_go)
    if word is not None and not released:
        raise NotFound(f"No hold is named '{word}'; `holdfast dispatch` lists the holds.")
    return released, resumed


def describe_release(released: list[str], resumed: list[str]) -> str:
    """Return a sentence about what `release` did."""
    if not released:
        return "Nothing is held back."
    more = f", … ({len(resumed)} tasks)" if len(resumed) > 5 else ""
    return f"Released: {', '.join(released)}." + (f" Resumed: {', '.join(resumed[:5])}{more}." if resumed else "")


@stored_data_errors
def _row(row: JsonObject, now: float) -> HoldRow:
    since = load_stored_json(row["since"])[0]
    for_operator = row["scope"] == "fleet" and row["failures"] >= _MOST_STORMS
    return {
        "hold": f"{row['scope']}:{row['name']}",
        "scope": row["scope"],
        "name": row["name"],
        "reason": row["reason"],
        "since": since,
        "until": None if for_operator else row["until"],
        "is_due": not for_operator and (row["until"] <= now or row["decided"] > now + _SET_BACK),
        "rounds": row["rounds"],
        "failures": row["failures"],
        "probe": row["probe_task"] if row["probe_state"] == "running" else None,
    }
