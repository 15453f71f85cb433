"""A supervisor has no children but those that it makes: only then is an unknown child a dead keeper's stray.

`sh -c 'daemon & exec holdfast up'` gives it a stranger's child, and process 1 of a container is given everybody's. Then
the supervisor runs in a child of its own, and we stay behind as the parent of the others.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from holdfast.base import faults
from holdfast.processes.children import Children


def run_apart(work: Callable[[], None]) -> int | None:
    """None: the work was done here. A number: it was done in a child, which ended with that code."""
    if os.getpid() != 1 and not Children().strays():
        work()
        return None
    faults.passed("domain.fork")
    child = os.fork()
    if child == 0:
        work()
        return None
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda sent, _frame: os.kill(child, sent))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the child as well
    while True:
        pid, status = os.wait()  # strangers that became ours are collected too
        if pid == child:
            return abs(os.waitstatus_to_exitcode(status))
