"""Our own output: the last resort when the store cannot be written. It must never be the reason that something ends."""

from __future__ import annotations

import contextlib
import sys


def say(text: str) -> None:
    """A line on standard error; on a full disk (the log is a file) it is dropped."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)
