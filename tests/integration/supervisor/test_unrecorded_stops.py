"""A stop that could not be recorded was not sent: what becomes of the stop_request."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from holdfast.base.errors import Unavailable
from holdfast.core.health.diagnosis import STOP_WHY
from holdfast.core.model import StopWhy, TaskSpec
from holdfast.store.port.values import Ownership
from holdfast.store.sqlite.rows import new_task
from holdfast.supervisor.runs.run import RunDriver
from holdfast.supervisor.runs.stop_request import StopRequest


class WithoutStore(RunDriver):
    """Its store cannot be written at the moment."""

    async def _send_stop(self) -> None:
        raise Unavailable("the disk is full")


@pytest.mark.parametrize(
    ("why", "stands"), [*((why, False) for why in STOP_WHY.values()), (StopWhy.CANCEL, True), (StopWhy.DOWN, True)]
)
def test_a_verdict_on_its_health_is_taken_back_and_an_operators_word_stands(why: StopWhy, stands: bool) -> None:
    """R-TERM-07: until we can say so it may be at work again; the next try to drive it must not end it then."""
    context: Any = None  # nothing of it is asked
    spec = TaskSpec(id="t", repo_id="r", prompt="do it", agent="scripted")
    ownership = Ownership(task_id="t", fence=1, owner="host")
    attempt = WithoutStore(context, replace(new_task(spec), owner="host"), ownership, StopRequest())
    with pytest.raises(Unavailable):
        asyncio.run(attempt.stop(why, fast=False, reason="because"))
    assert attempt.requested_stop is (why if stands else None)
