"""Our own output: the last resort when the store cannot be written. It must never be the reason that something ends."""

from __future__ import annotations

import contextlib
import sys
import traceback

from holdfast.errors import HoldfastError


def say(text: str) -> None:
    """A line on standard error; on a full disk (the log is a file) it is dropped."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


def say_trouble(words: str, error: Exception) -> None:
    """One line when the machine refused (a full disk, say); with all the details when it is a fault of ours."""
    details = "" if isinstance(error, OSError | HoldfastError) else "\n" + "".join(traceback.format_exception(error))
    say(f"holdfast: {words}{error}{details}")
