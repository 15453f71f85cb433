"""Named fault points around every durable step and outside effect. In production every call of a fault point returns at
once.

`HOLDFAST_FAULT="name:hit:action"` (several: comma) acts when the point `name` is reached for the `hit`-th time. The
action kills the process (kill), exits (exit), stops it so that a test can inspect it (stop), or raises an OSError
(ENOSPC, EIO, …).

`HOLDFAST_FAULT_TRACE=FILE` appends every point that is reached. Each name has exactly one call site, and no effect is
without one: tests/architecture/test_failpoints_are_complete.py. docs/faults.md explains the matrix.

A fault point can only end a process or fail a call. Holdfast has to survive both anyway. No variable turns a protection
off: to show that a test would notice a missing protection, tests/harness/mutations.py edits the source.
"""

from __future__ import annotations

import errno
import os
import signal
from collections import Counter

_plan: list[tuple[str, int, str]] = []
_trace = ""
_armed = False
_hits: Counter[str] = Counter()


def tx(name: str) -> None:
    """Mark a point inside a store transaction, before it commits."""
    if _armed:
        _reached(f"tx.{name}", may_fail=True)


def effect(name: str) -> None:
    """Mark a point just before an outside effect (process, file, git) that the system may refuse."""
    if _armed:
        _reached(name, may_fail=True)


def passed(name: str) -> None:
    """Mark a point just after an effect, or before an effect that cannot fail: the process can die here, but no error
    can occur."""
    if _armed:
        _reached(name, may_fail=False)


def arm(plan: str = "", trace: str = "") -> None:
    """Replace the plan and the trace file. Called at import with the environment, and by fork servers in each child."""
    global _plan, _trace, _armed
    _plan = [_parsed(word) for word in plan.split(",") if word]
    _trace = trace
    _armed = bool(_plan or _trace)
    _hits.clear()


def _parsed(word: str) -> tuple[str, int, str]:
    point, _, rest = word.partition(":")
    hit, _, action = rest.partition(":")
    return point, int(hit or 1), action or "kill"


def _reached(name: str, *, may_fail: bool) -> None:
    _hits[name] += 1
    if _trace:
        with open(_trace, "a", encoding="utf-8") as trace:
            trace.write(f"{name}:{_hits[name]}{'' if may_fail else ':kill-only'}\n")
    for point, hit, action in _plan:
        if point == name and _hits[name] == hit:
            _inject(action, name, may_fail)


def _inject(action: str, name: str, may_fail: bool) -> None:
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "exit":
        os._exit(70)
    elif action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif may_fail:
        number = getattr(errno, action)
        raise OSError(number, f"injected at {name}: {os.strerror(number)}")


arm(os.environ.get("HOLDFAST_FAULT", ""), os.environ.get("HOLDFAST_FAULT_TRACE", ""))
