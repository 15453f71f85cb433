"""Sending a notice, cancelled at every await: no process and no descriptor stays."""

from __future__ import annotations

import gc
import os

from tests.contracts.test_alert_targets import NOTICE
from tests.faults.conftest import assert_no_process
from tests.fleet import Fleet
from tests.harness.await_walker import Ended, walk

from holdfast.alerts.command import CommandTarget
from holdfast.alerts.port import SendResult
from holdfast.processes.children import Children
from holdfast.processes.helpers import HelperRunner


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_nothing_of_a_command_outlives_its_attempt(fleet: Fleet) -> None:
    children = Children()
    script = f"echo {fleet.root}; (setsid sleep 30 &); sleep 30 & sleep 0.02"
    target = CommandTarget(["sh", "-c", script], fleet.env, HelperRunner(children), 20.0)
    before: list[int] = []

    async def send() -> SendResult:
        gc.collect()  # what earlier tests left is not closed in between
        before[:] = [descriptors()]
        try:
            return await target.send(NOTICE)
        finally:
            assert descriptors() == before[0]
            assert children._known == {}

    def check(_ended: Ended[SendResult]) -> None:
        assert_no_process(fleet)

    assert len(walk(send, check, second=True).cases) >= 2
