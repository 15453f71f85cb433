"""Our own output: the last resort when the store cannot be written. It must never be the reason that something ends."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable

from holdfast.base.errors import HoldfastError
from holdfast.base.low_memory import is_starved
from holdfast.base.text import clean
from holdfast.secrets.redact import redacted

_DEBUG = bool(os.environ.get("HOLDFAST_DEBUG"))


def say(text: str) -> None:
    """A line on standard error; on a full disk (the log is a file) it is dropped. Others' words are in it, names of
    files say, and it may be a terminal."""
    with contextlib.suppress(OSError, ValueError):
        print(redacted(clean(text)), file=sys.stderr, flush=True)


def debug(words: Callable[[], str]) -> None:
    """A line for whoever set HOLDFAST_DEBUG; nobody else pays for making it."""
    if _DEBUG:
        say(f"debug: {words()}")


def say_trouble(words: str, error: Exception) -> None:
    """One line when the machine refused (a full disk, say); with all the details when it is a fault of ours."""
    refused = isinstance(error, OSError | HoldfastError) or is_starved(error)
    details = "" if refused else "\n" + "".join(traceback.format_exception(error))
    say(f"holdfast: {words}{str(error) or type(error).__name__}{details}")
