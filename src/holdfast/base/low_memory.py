"""When Python itself is refused memory or a thread. It imports next to nothing: there is no room for it then."""

from __future__ import annotations

import os
from contextlib import suppress

EXIT_CODE = 69  # of errors.Unavailable
# How the loader and the interpreter say it: neither makes a MemoryError of it.
_LOADER = ("failed to map segment", "Cannot allocate memory", "cannot allocate memory", "Too many open files")
_INTERPRETER = ("without exception set", "without setting an exception")
_TOLD = (
    b"holdfast: The system refused us memory or a thread. Nothing that was acknowledged is lost. "
    b"Free memory, or raise the limit (`ulimit -a` shows them), and try again.\n"
)


def is_starved(error: BaseException) -> bool:
    """Whether that is what `error` says."""
    if isinstance(error, RuntimeError):
        return "start new thread" in str(error)
    if isinstance(error, ImportError):
        return any(words in str(error) for words in _LOADER)
    if isinstance(error, SystemError):
        return any(words in str(error) for words in _INTERPRETER)
    return isinstance(error, MemoryError)


def tell() -> int:
    """One line, made beforehand; the exit code."""
    with suppress(OSError):  # the code still says it
        os.write(2, _TOLD)
    return EXIT_CODE
