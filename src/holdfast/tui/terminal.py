"""However the screen is left, the terminal is as it was before: a signal ends the app as its own key does.

A terminal that takes nothing more (a stalled ssh, one that is gone) would hold the app's thread up for ever. So a
signal gives it a moment, and then puts the terminal right and ends the process without it. Where the terminal is
another's at the time (after Ctrl+Z, or a shell in a workspace has it), it is right already: who touches it from the
background is stopped, and would not end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import termios
import threading
from collections.abc import Callable
from typing import Any

GRACE = 3.0  # seconds for an orderly end: the feed's thread is waited for, and an action that is under way
SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
# The opposite of all that was switched on: mouse, paste, focus, keys, wrapping, the other screen, the cursor.
_BACK = b"\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?2004l\x1b[?1004l\x1b[?7h\x1b[<u\x1b[?1049l\x1b[?25h"


class Leaving:
    """Made before the app takes the terminal; `end` runs in the app's thread, with the exit code."""

    def __init__(self, end: Callable[[int], None]) -> None:
        self._end = end
        self._loop: asyncio.AbstractEventLoop | None = None
        self._was: list[Any] | None = None
        with contextlib.suppress(termios.error, OSError):  # then there is no terminal
            self._was = termios.tcgetattr(0)

    def catch(self) -> None:
        """In the main thread. Not the loop's own handlers: those wait for a loop that turns."""
        for one in SIGNALS:
            signal.signal(one, lambda number, _frame: self.leave(128 + number))

    def attach(self) -> None:
        """The app's loop runs, and its terminal is taken next."""
        self._loop = asyncio.get_running_loop()

    def leave(self, code: int) -> None:
        if self._loop is None:
            sys.exit(code)
        if not _is_in_front():
            os._exit(code)
        timer = threading.Timer(GRACE, self._by_force, (code,))
        timer.daemon = True
        timer.start()
        with contextlib.suppress(RuntimeError):  # it is closed: the end is under way
            self._loop.call_soon_threadsafe(self._end, code)

    def has_terminal(self) -> bool:
        return self._was is None or os.isatty(0)

    def _by_force(self, code: int) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTTOU,))  # in this thread: it must not be stopped here
        if self._was is not None:
            with contextlib.suppress(termios.error, OSError):
                termios.tcsetattr(0, termios.TCSANOW, self._was)
        with contextlib.suppress(OSError):
            os.set_blocking(2, False)
            os.write(2, _BACK)
        with contextlib.suppress(OSError):
            os.set_blocking(2, True)  # the shell has the same open file
        os._exit(code)


def _is_in_front() -> bool:
    """Whether the terminal is ours to draw on; yes, where it is nobody's."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return True
