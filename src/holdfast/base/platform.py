"""The abilities of this system. Supervision needs Linux. Adding and viewing tasks work wherever Python and git do."""

from __future__ import annotations

import os
import signal
import sys

from holdfast.base.errors import Unavailable

LINUX_ONLY = ("up", "run", "rehearse", "backup", "restore", "purge", "sweep")
"""Commands that end processes or delete trees. They need proofs that only Linux provides."""


def missing() -> str | None:
    """Return the ability that supervision needs and this system lacks. None: it lacks nothing."""
    if sys.platform != "linux":
        return f"{sys.platform} has no child subreapers, pidfds and /proc"
    if not hasattr(os, "pidfd_open") or not hasattr(signal, "pidfd_send_signal"):
        return "this Python or kernel has no pidfds (Linux 5.4 or newer is needed)"
    return None


def refuse_unsupported(what: str) -> None:
    lack = missing()
    if lack is not None:
        raise Unavailable(
            f"{what} is not supported here: {lack}, so nothing proves that an agent's processes are gone. "
            "Nothing was changed. `holdfast doctor` says what works."
        )
