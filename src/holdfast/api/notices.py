"""Notices of alerts: trying every target now, and what became of those that were sent."""

from __future__ import annotations

import json
import time
from typing import Any

from holdfast import config
from holdfast.api.queries import Queries
from holdfast.core.model import Level
from holdfast.core.notices import Notice, Transition, body_of
from holdfast.ids import new_id

Row = dict[str, Any]


def send_test(by: str) -> list[Row]:
    """One notice to each target, past the outbox: what each answered. Nothing is recorded; its key is its own."""
    import asyncio

    from holdfast.outlets import targets_of
    from holdfast.processes.children import Children
    from holdfast.processes.helpers import HelperRunner

    children = Children()
    children.become_subreaper()  # what a command leaves behind comes back to us, and is ended
    targets = targets_of(config.load(), HelperRunner(children))

    async def ask() -> list[Row]:
        answers = await asyncio.gather(*(target.send(_test_notice(by)) for target in targets.values()))
        pairs = zip(targets, answers, strict=True)
        return [{"target": name, "ok": answer.ok, "told": answer.told} for name, answer in pairs]

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
