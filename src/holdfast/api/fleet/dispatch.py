"""What is held back, since when, until when, and who goes first; and letting it start. Imports little: `ps` asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.api.format import moment
from holdfast.api.queries import Queries
from holdfast.base import clock
from holdfast.base.errors import NotFound
from holdfast.base.stored_json import recorded, understood

if TYPE_CHECKING:
    from holdfast.store.port.transaction import Transaction

Row = dict[str, Any]
FLEET = "fleet:all"
_SET_BACK = 60.0  # seconds; a time that was decided so far in the future is over (core/dispatch/holds.py)
_MOST_STORMS = 3  # core/holds.MOST_STORMS; a test compares them


def holds(queries: Queries) -> list[Row]:
    """Everything that is held back or slowed at the moment; failures that are only counted are not."""
    now = clock.now().wall
    return [_row(row, now) for row in queries.view("holds") if row["until"] is not None]


def words(row: Row) -> str:
    """One clause: what waits, and for what."""
    what = {"fleet": "everything", "provider": f"provider {row['name']}"}.get(row["scope"], f"account {row['name']}")
    if row["scope"] == "near":
        return f"{what} is near its limit, agents start on it one by one until {moment(row['until'])} ({row['reason']})"
    if row["probe"] is not None:
        return f"{what} is held since {moment(row['since'])}: task {row['probe']} goes first ({row['reason']})"
    if row["until"] is None:
        return f"{what} is held since {moment(row['since'])}, until you let it start ({row['reason']})"
    if row["is_due"]:
        return f"{what} is held since {moment(row['since'])}: the next task goes first ({row['reason']})"
    return f"{what} is held since {moment(row['since'])}, until {moment(row['until'])} ({row['reason']})"


def of_task(found: list[Row], agent: str, account: str | None, provider: str | None, task_id: str) -> Row | None:
    """The first that keeps a queued task waiting."""
    for row in found:
        concerns = (
            row["scope"] == "fleet"
            or (row["scope"] == "provider" and row["name"] == provider)
            or (row["scope"] == "account" and account is not None and row["name"] == f"{agent}/{account}")
        )
        if concerns and row["probe"] != task_id and (row["probe"] is not None or not row["is_due"]):
            return row
    return None


def explain(queries: Queries, task: Row) -> list[str]:
    """For `why`: what a task that is queued waits for, or what a running one is the first of."""
    found = holds(queries)
    lines = [
        f"It goes first, to see whether {row['hold']} works again; the others wait for it."
        for row in found
        if row["probe"] == task["id"]
    ]
    if task["state"] == "queued" and found:
        state = queries.state(task["id"])
        provider = recorded(state["settings"]).get("provider")
        row = of_task(found, task["agent"], state["bound"], provider, task["id"])
        if row is not None:
            lines.append(
                f"It is held back: {words(row)}. Nothing of its budgets is spent meanwhile; "
                f"`holdfast dispatch release {row['hold']}` lets it start now."
            )
    return lines


def waits_for_release(queries: Queries, task: Row) -> bool:
    """Whether a queued task starts only when somebody lets everything start again."""
    return task["state"] == "queued" and any(row["scope"] == "fleet" and row["until"] is None for row in holds(queries))


def release(home: str, word: str | None) -> tuple[list[str], list[str]]:
    """Release one hold by name, or all. Return the released holds, and the tasks that go on."""
    from holdfast.api.commands import change_store, who  # imported here: readers have to start fast
    from holdfast.core.dispatch.holds import Scope

    def let_go(tx: Transaction) -> tuple[list[str], list[str]]:
        now, by = clock.now(), f"released by {who()}"
        chosen = [hold for hold in tx.holds.all() if word is None or hold.full_name == word]
        for hold in chosen:
            tx.holds.release(hold.scope, hold.name, by, now, forget=True)
        resumed: list[str] = []
        providers = [hold.name for hold in chosen if hold.scope is Scope.PROVIDER]
        for provider in providers:
            for task_id in tx.holds.paused_by_outage(provider):
                if tx.tasks.resume(task_id, who(), now).allowed:
                    resumed.append(task_id)
        return [hold.full_name for hold in chosen if hold.is_held or hold.name in providers], resumed

    released, resumed = change_store(home, let_go)
    if word is not None and not released:
        raise NotFound(f"Nothing is held back under the name '{word}'; `holdfast dispatch` lists what is.")
    return released, resumed


def describe_release(released: list[str], resumed: list[str]) -> str:
    """Return a sentence about what `release` did."""
    if not released:
        return "Nothing is held back."
    more = f", … ({len(resumed)} tasks)" if len(resumed) > 5 else ""
    return f"Released: {', '.join(released)}." + (f" Resumed: {', '.join(resumed[:5])}{more}." if resumed else "")


@understood
def _row(row: Row, now: float) -> Row:
    since = recorded(row["since"])[0]
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
