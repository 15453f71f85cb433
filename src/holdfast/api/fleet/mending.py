"""Doing what an alert's remedy says, where one command does it: the worker, the task, the account goes on."""

from __future__ import annotations

from typing import Any

from holdfast.api.queries import Queries
from holdfast.base.errors import NotFound, Refused
from holdfast.store.port.holding import MASS_DEATH_ALERT

Row = dict[str, Any]
_ASLEEP = " No supervisor is running: that holds from the next `holdfast up` on."


def mend(home: str, alert: Row) -> str:
    """What was done, in words; refused where a person has to look first."""
    kind, _, name = str(alert["key"]).partition(":")
    if alert["key"].startswith("crash:worker:"):
        return _restart_worker(home, name.partition(":")[2])
    if kind == "account":
        return _open_account(home, name)
    if kind == "provider":
        return _release(home, alert["key"])
    if kind == MASS_DEATH_ALERT:
        return _release(home, None)
    if alert["task"] is not None:
        return _go_on(home, alert)
    raise Refused(f"Nothing is to be restarted here. {alert['remedy']}")


def _restart_worker(home: str, name: str) -> str:
    from holdfast.api.fleet.workers import steer

    after = steer(home, "restart", name)
    return f"Worker {name} is restarted." + ("" if after["supervisor"] else _ASLEEP)


def _open_account(home: str, full_name: str) -> str:
    from holdfast.api.fleet.accounts import resume_account

    freed = resume_account(home, full_name)
    return f"Account {full_name} is open again" + (f"; {', '.join(freed[:5])} go on." if freed else ".")


def _release(home: str, hold: str | None) -> str:
    from holdfast.api.fleet.dispatch import release

    released, resumed = release(home, hold)
    if not released:
        return "Nothing is held back any more."
    return f"Released: {', '.join(released)}." + (f" Resumed: {', '.join(resumed[:5])}." if resumed else "")


def _go_on(home: str, alert: Row) -> str:
    from holdfast.api.commands import Commands

    task_id, queries = alert["task"], Queries(home)
    try:
        state = queries.state(task_id)["state"]
    except NotFound:
        raise NotFound(f"Task {task_id} was forgotten meanwhile. Acknowledge the alert.") from None
    asleep = _ASLEEP if queries.supervisor() is None else ""
    if state in ("failed", "cancelled"):
        Commands(home, create=False).retry(task_id, fresh=False)
        return f"Queued {task_id} again, where it stopped.{asleep}"
    if state == "paused":
        return f"{task_id}: {Commands(home, create=False).resume(task_id)}.{asleep}"
    raise Refused(f"Task {task_id} is {state}; there is nothing to restart. {alert['remedy']}")
