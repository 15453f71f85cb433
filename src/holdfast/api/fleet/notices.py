"""Notices of alerts: trying every target now, and what became of those that were sent."""

from __future__ import annotations

import json
import time
from typing import Any

from holdfast import config
from holdfast.api.queries import Queries
from holdfast.base.ids import new_id
from holdfast.core.model import Level
from holdfast.core.tasks.alerts import Notice, Transition, body_of

Row = dict[str, Any]


def send_test(by: str) -> list[Row]:
    """One notice to each target, past the outbox: what each answered. Nothing is recorded; its key is its own."""
    import asyncio

    from holdfast.processes.children import Children
    from holdfast.processes.helpers import HelperRunner
    from holdfast.wiring.alerts import names_of, target_of

    children = Children()
    children.become_subreaper()  # what a command leaves behind comes back to us, and is ended
    settings, run = config.load(), HelperRunner(children)

    async def ask_one(name: str) -> Row:
        target = target_of(name, settings, run)
        assert target is not None  # its name is in the same settings
        try:
            answer = await target.send(_test_notice(by))
        except Exception as trouble:  # noqa: BLE001 - as when it is sent for real (supervisor/services/alerts.py)
            return {"target": name, "ok": False, "told": f"{type(trouble).__name__}: the attempt went wrong"}
        return {"target": name, "ok": answer.ok, "told": answer.told}

    async def ask() -> list[Row]:
        return list(await asyncio.gather(*(ask_one(name) for name in names_of(settings))))

    return asyncio.run(ask())


def _test_notice(by: str) -> Notice:
    now = time.time()
    alert = {
        "id": 0,
        "key": "test",
        "level": "info",
        "task": None,
        "at": now,
        "message": f"This is a test, asked for by {by}.",
        "remedy": "Nothing is to be done.",
        "details": {"test": True},
    }
    key = f"test-{new_id()}"
    body = json.dumps(body_of(key, Transition.RAISED, alert, now, by))
    return Notice(id=0, key=key, alert_key="test", transition=Transition.RAISED, level=Level.INFO, body=body)


def undelivered(queries: Queries) -> list[Row]:
    """Deliveries that wait or were given up: `alert, transition, target, state, attempts, told, at`."""
    return queries.view("undelivered")
