"""Leaving the screen: the terminal is restored however the app ends. A signal ends the app just as its quit key does.

A terminal that accepts no more output (a stalled ssh, or a terminal that is gone) would block the app's thread for
ever. So a signal gives the app a few seconds, then restores the terminal and ends the process without the app.

After Ctrl+Z, or while a shell in a workspace is open, another process has the terminal. Then nothing is restored: the
terminal is in order already. The kernel would stop a background process that touches the terminal, and the process
would never end.
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

GRACE = 3.0  # seconds for an orderly end, which waits for the feed's thread and for a running action
SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
# Switches off everything that Textual switched on: mouse, paste, focus, keys, wrapping, alternate screen, cursor.
_BACK = b"\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?2004l\x1b[?1004l\x1b[?7h\x1b[<u\x1b[?1049l\x1b[?25h"


class Leaving:
    """The end of the app, by its quit key or by a signal. The object is created before the app takes the terminal, to
    remember the terminal's settings.

    `end` runs in the app's thread, with the exit code.
    """

    def __init__(self, end: Callable[[int], None]) -> None:
        self._end = end
        self._loop: asyncio.AbstractEventLoop | None = None
        self._was: list[Any] | None = None
        with contextlib.suppress(termios.error, OSError):  # standard input is not a terminal
            self._was = termios.tcgetattr(0)

    def catch(self) -> None:
        """Install the signal handlers. Call in the main thread.

        The event loop's own handlers would not do: they run only while the loop is not blocked.
        """
        for one in SIGNALS:
            signal.signal(one, lambda number, _frame: self.leave(128 + number))

    def attach(self) -> None:
        """Remember the app's event loop. Call when the loop runs, just before the app takes the terminal."""
        self._loop = asyncio.get_running_loop()

    def leave(self, code: int) -> None:
        if self._loop is None:
            sys.exit(code)
        if not _has_foreground():
            os._exit(code)
        timer = threading.Timer(GRACE, self._by_force, (code,))
        timer.daemon = True
        timer.start()
        with contextlib.suppress(RuntimeError):  # the loop is closed: the app is ending already
            self._loop.call_soon_threadsafe(self._end, code)

    def has_terminal(self) -> bool:
        return self._was is None or os.isatty(0)

    def _by_force(self, code: int) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTTOU,))  # the kernel must not stop this thread here
        if self._was is not None:
            with contextlib.suppress(termios.error, OSError):
                termios.tcsetattr(0, termios.TCSANOW, self._was)
        with contextlib.suppress(OSError):
            os.set_blocking(2, False)
            os.write(2, _BACK)
        with contextlib.suppress(OSError):
            os.set_blocking(2, True)  # the shell shares this open file
        os._exit(code)


def _has_foreground() -> bool:
    """True if this process may draw on the terminal, or if there is no terminal."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return True
