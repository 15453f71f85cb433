"""Handling of errors when Python itself gets no memory or thread. The module imports almost nothing, because imports
need memory."""

from __future__ import annotations

import os
from contextlib import suppress

EXIT_CODE = 69  # of errors.Unavailable
# The texts of the loader and of the interpreter: neither raises a MemoryError.
_LOADER = ("failed to map segment", "Cannot allocate memory", "cannot allocate memory", "Too many open files")
_INTERPRETER = ("without exception set", "without setting an exception")
_TOLD = (
    b"holdfast: The system refused us memory or a thread. Nothing that was acknowledged is lost. "
    b"Free memory, or raise the limit (`ulimit -a` shows them), and try again.\n"
)


def is_out_of_memory(error: BaseException) -> bool:
    """True if `error` means that memory or a thread was refused."""
    if isinstance(error, RuntimeError):
        return "start new thread" in str(error)
    if isinstance(error, ImportError):
        return any(words in str(error) for words in _LOADER)
    if isinstance(error, SystemError):
        return any(words in str(error) for words in _INTERPRETER)
    return isinstance(error, MemoryError)


def report_low_memory() -> int:
    """Write one line, prepared beforehand, to standard error. Return the exit code."""
    with suppress(OSError):  # the exit code still reports it
        os.write(2, _TOLD)
    return EXIT_CODE
