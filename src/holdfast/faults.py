"""Named crash points around every durable step and outside effect.

In production both functions return at once. With HOLDFAST_FAULT="name:hit:action" the process dies (kill), exits
(exit), or gets an OSError (ENOSPC, EIO) when the point `name` is reached for the `hit`-th time. Action `stop`
SIGSTOPs it, so that a test can look around. HOLDFAST_FAULT_TRACE=FILE appends every point reached.
"""

from __future__ import annotations

import errno
import os
import signal
from collections import Counter

_PLAN = os.environ.get("HOLDFAST_FAULT", "")
_TRACE = os.environ.get("HOLDFAST_FAULT_TRACE", "")
_hits: Counter[str] = Counter()


def tx(name: str) -> None:
    """A point inside a store transaction, before it commits."""
    if _PLAN or _TRACE:
        _reached(f"tx.{name}")


def effect(name: str) -> None:
    """A point next to an outside effect: process, file, git."""
    if _PLAN or _TRACE:
        _reached(name)


def _reached(name: str) -> None:
    _hits[name] += 1
    if _TRACE:
        with open(_TRACE, "a", encoding="utf-8") as trace:
            trace.write(f"{name}:{_hits[name]}\n")
    for plan in _PLAN.split(","):
        point, _, rest = plan.partition(":")
        hit, _, action = rest.partition(":")
        if point == name and _hits[name] == int(hit or 1):
            _inject(action or "kill", name)


def _inject(action: str, name: str) -> None:
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "exit":
        os._exit(70)
    elif action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        number = getattr(errno, action)
        raise OSError(number, f"injected at {name}: {os.strerror(number)}")
