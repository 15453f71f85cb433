"""Alerts, their deliveries, and crashes.

Crash lines are for `show`, `why` and `crashes`. `send_test` tries every target at once, and `list_undelivered` returns
earlier deliveries that wait or were given up. `mend` carries out the remedy of an alert where one command is enough: a
worker, a task or an account continues.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from holdfast.api.format import moment
from holdfast.api.outcome import ActionOutcome, no_supervisor
from holdfast.api.queries import Queries, alert_row
from holdfast.base.errors import NotFound, Refused
from holdfast.base.ids import new_id
from holdfast.base.stored_json import load_stored_json
from holdfast.base.text import one_line

if TYPE_CHECKING:  # `show` imports this module, and nothing that it does not need
    from holdfast.api.fleet.models import AlertRow, CrashRow, CriticalMark, DeathRow, DeliveryTest, UndeliveredRow
    from holdfast.core.tasks.alerts import AlertChange

Episode = tuple[int, float]  # an alert's number and when it was raised: after a restore, numbers repeat
NEWEST = 3
RUNG_FILE = "rung.json"  # in the home: the alerts for which a bell was rung


def read_critical_mark(queries: Queries) -> CriticalMark:
    """Return a mark that stays equal as long as the same critical alerts are open. The mark is cheap to read."""
    return cast("CriticalMark", queries.view("critical_mark")[0])


def critical(queries: Queries) -> tuple[list[Episode], list[AlertRow]]:
    """Return every open critical alert as number and time, and the newest of them as whole rows, the newest first."""
    opened = [(int(row["id"]), float(row["at"])) for row in queries.view("critical_alerts")]
    newest = [alert_row(row) for number, _at in opened[:NEWEST] for row in queries.view("alert", id=number)]
    return opened, newest


def deaths(queries: Queries, after: int) -> tuple[int, list[DeathRow]]:
    """Return the last event that was read, and the agents that died since `after` without a stop request.

    The oldest death comes first. A run is listed when its agent died, and again when the decision about its
    task was made (`decided`).
    """
    last = queries.last_seq()
    if last <= after:  # nothing new; or another store, from a backup: continue at its last event
        return last, []
    from holdfast.core.runs.crashes import CRASHES

    found: list[DeathRow] = []
    for row in reversed(queries.view("deaths", after=after, last=last)):
        data = load_stored_json(row.pop("data"), shape=dict)
        if data.get("outcome") in CRASHES:
            row["decided"] = row["kind"] == "crash.recorded"
            found.append(cast("DeathRow", row))
    return last, found


def read_rung_alerts(home: str) -> frozenset[Episode]:
    """Return the alerts for which a bell was rung on this home. The set is empty if the file cannot be read."""
    try:
        with open(os.path.join(home, RUNG_FILE), encoding="utf-8") as file:
            return frozenset((int(number), float(at)) for number, at in json.load(file))
    except (OSError, ValueError, TypeError):
        return frozenset()


def record_rung_alerts(home: str, episodes: Iterable[Episode]) -> None:
    """Record the alerts for which a bell was rung. If the file cannot be written, the next `top` rings once more."""
    try:
        fd = os.open(
            os.path.join(home, RUNG_FILE), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        with open(fd, "w", encoding="utf-8") as file:
            json.dump(sorted(episodes), file)
    except OSError:
        return


SHOWN = 5  # the newest; `holdfast crashes ID` has all


def crash_line(crash: CrashRow) -> str:
    """Return one crash on one line."""
    worker = f" (worker {crash['worker']})" if crash["worker"] else ""
    claim = "claim released" if crash["claim_released"] else "claim not released"
    claim = f"issue {crash['issue']}, {claim}" if crash["issue"] else claim
    return (
        f"crash {crash['id']}  {moment(crash['at'])}{worker}  {crash['outcome']}: {crash['reason']}; {claim}; "
        f"{crash['decision']}"
    )


def crash_lines(crashes: list[CrashRow]) -> list[str]:
    left = len(crashes) - SHOWN
    more = [f"and {left} earlier crash(es): `holdfast crashes {crashes[0]['task']}`"] if left > 0 else []
    return [*(crash_line(crash) for crash in crashes[-SHOWN:]), *more]


def crash_summary(crashes: list[CrashRow]) -> list[str]:
    """Return a list with one summary of the crashes, or an empty list if there were none."""
    if not crashes:
        return []
    last = crashes[-1]
    said = one_line(last["error_text"], 200)
    words = f" Its last words: {said}" if said else ""
    return [
        f"It crashed {len(crashes)} time(s), last at {moment(last['at'])}: {last['reason']}. {last['decision']}.{words}"
        f" All crashes: `holdfast crashes {last['task']}`."
    ]


def send_test(by: str) -> list[DeliveryTest]:
    """Send a test to each target directly, without the outbox, and return the answers. No event or delivery is
    recorded."""
    import asyncio

    from holdfast import config
    from holdfast.processes.children import Children
    from holdfast.processes.helpers import HelperRunner
    from holdfast.wiring.alerts import names_of, target_of

    children = Children()
    children.become_subreaper()  # processes that a command leaves behind become our children, and are ended
    settings, run = config.load(), HelperRunner(children)

    async def ask_one(name: str) -> DeliveryTest:
        target = target_of(name, settings, run)
        assert target is not None  # its name is in the same settings
        try:
            answer = await target.send(_test_delivery(by))
        except Exception as trouble:  # noqa: BLE001 - as when it is sent for real (supervisor/services/alerts.py)
            return {"target": name, "ok": False, "told": f"{type(trouble).__name__}: the attempt went wrong"}
        return {"target": name, "ok": answer.ok, "told": answer.told}

    async def ask() -> list[DeliveryTest]:
        return list(await asyncio.gather(*(ask_one(name) for name in names_of(settings))))

    return asyncio.run(ask())


def _test_delivery(by: str) -> AlertChange:
    from holdfast.core.model import Level
    from holdfast.core.tasks.alerts import AlertChange, Transition, delivery_body

    now = time.time()
    alert = {
        "id": 0,
        "key": "test",
        "level": "info",
        "task": None,
        "at": now,
        "message": f"This is a test that was requested by {by}.",
        "remedy": "There is nothing to do.",
        "details": {"test": True},
    }
    key = f"test-{new_id()}"
    body = json.dumps(delivery_body(key, Transition.RAISED, alert, now, by))
    return AlertChange(id=0, key=key, alert_key="test", transition=Transition.RAISED, level=Level.INFO, body=body)


def list_undelivered(queries: Queries) -> list[UndeliveredRow]:
    """Return deliveries that wait or were given up."""
    return cast("list[UndeliveredRow]", queries.view("undelivered"))


def mend(home: str, alert: Mapping[str, Any]) -> str:
    """Carry out the remedy of the alert: restart its worker or task, open its account, or release its hold. Return a
    sentence about the result. Raise Refused if a person has to act instead."""
    from holdfast.store.port.dispatch import MASS_DEATH_ALERT

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
        return _restart_task(home, alert["task"], alert["remedy"])
    raise Refused(f"There is nothing to restart here. {alert['remedy']}")


def _restart_worker(home: str, name: str) -> str:
    from holdfast.api.fleet.workers import steer_worker

    return steer_worker(home, "restart", name).text


def _open_account(home: str, full_name: str) -> str:
    from holdfast.api.fleet.accounts import resume_account

    freed = resume_account(home, full_name)
    return f"Account {full_name} is open again" + (f"; {', '.join(freed[:5])} continue." if freed else ".")


def _release(home: str, hold: str | None) -> str:
    from holdfast.api.fleet.dispatch import describe_release, release

    return describe_release(*release(home, hold))


def _restart_task(home: str, task_id: str, remedy: str) -> str:
    from holdfast.api.commands import Commands

    queries = Queries(home)
    try:
        state = queries.state(task_id)["state"]
    except NotFound:
        raise NotFound(f"Task {task_id} was forgotten meanwhile. Acknowledge the alert.") from None
    note = "" if queries.supervisor() else no_supervisor()
    if state in ("failed", "cancelled"):
        Commands(home, create=False).retry(task_id, fresh=False)
        return ActionOutcome(message=f"Queued {task_id} again, from where it stopped.", note=note).text
    if state == "paused":
        return ActionOutcome(message=f"{task_id}: {Commands(home, create=False).resume(task_id)}.", note=note).text
    raise Refused(f"Task {task_id} is {state}; there is nothing to restart. {remedy}")
