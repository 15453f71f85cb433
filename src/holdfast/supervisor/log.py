"""The supervisor's own output: single lines, a line per event, and the log file of a supervisor in the background.

This output is the last resort when the store cannot be written. A failure of this output must never end anything. A log
file that is too long is renamed, and three old ones are kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import sys
import time
import traceback
from collections.abc import Callable

from holdfast.base import faults
from holdfast.base.errors import HoldfastError
from holdfast.base.low_memory import is_out_of_memory
from holdfast.base.text import clean_text, one_line
from holdfast.secrets.redact import redact_text
from holdfast.store.port.transaction import Store
from holdfast.supervisor.context import WakeUp

_DEBUG = bool(os.environ.get("HOLDFAST_DEBUG"))


def log_line(text: str) -> None:
    """Print a line on standard error. On a full disk (the log is a file) the line is dropped.

    The text is cleaned and redacted: it may contain names of files from others, and the output may be a terminal.
    """
    with contextlib.suppress(OSError, ValueError):
        print(redact_text(clean_text(text)), file=sys.stderr, flush=True)


def log_debug(words: Callable[[], str]) -> None:
    """Print a line if HOLDFAST_DEBUG is set. Otherwise the text is not even built."""
    if _DEBUG:
        log_line(f"debug: {words()}")


def log_error(words: str, error: Exception) -> None:
    """Print one line if the machine caused the error (a full disk, for example). If the error is a defect of Holdfast,
    print all details."""
    refused = isinstance(error, OSError | HoldfastError) or is_out_of_memory(error)
    details = "" if refused else "\n" + "".join(traceback.format_exception(error))
    log_line(f"holdfast: {words}{str(error) or type(error).__name__}{details}")


NAME = "supervisor.log"
KEPT = 3


def rotate_log(home: str, limit: int) -> bool:
    """Rotate the log, but only if this process writes its standard error to that file. A file that a service manager or
    a user redirected to is theirs.

    The file is renamed and a new one opened in its place. If the process is killed in between, the next start opens the
    new one. Nothing that was written is lost, and nothing is copied.
    """
    path = os.path.join(home, NAME)
    try:
        written_to = [fd for fd in (1, 2) if _same(os.fstat(fd), os.stat(path))]
        if 2 not in written_to or os.fstat(2).st_size <= limit:
            return False
    except OSError:
        return False  # there is no such file: we write elsewhere
    try:
        _rename_logs(path, written_to)
    except OSError as trouble:
        log_line(f"holdfast: {path} could not be rotated: {trouble.strerror}")
    return True


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return stat.S_ISREG(one.st_mode) and (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


def _rename_logs(path: str, written_to: list[int]) -> None:
    for number in range(KEPT - 1, 0, -1):
        with contextlib.suppress(FileNotFoundError):
            os.rename(f"{path}.{number}", f"{path}.{number + 1}")
    faults.effect("log.rename")
    os.rename(path, f"{path}.1")
    faults.passed("log.renamed")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        for ours in written_to:
            os.dup2(fd, ours)
    finally:
        os.close(fd)
    faults.passed("log.rotated")


SLOW_POLL = 5.0  # seconds, for events of other processes, which do not ring
AT_MOST_EVERY = 0.25  # seconds: many commits are printed together
_QUIET = frozenset({"run.ended", "run.stopping", "workspace.gone"})


class EventLogWriter:
    """Prints events line by line for people who watch the supervisor's own output.

    It reads events from the store like any other follower. It need not poll, because the store's writer rings a bell
    after each event. Four polls a second took a third of an idle supervisor's CPU time.
    """

    def __init__(self, store: Store, news: WakeUp) -> None:
        self._store = store
        self._news = news
        self._seq = int(str(store.view("last_seq")[0]["seq"]))
        self._version = -1

    async def run(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(AT_MOST_EVERY)
            await self._news.wait(SLOW_POLL)

    def look(self) -> None:
        version = self._store.data_version()
        if version == self._version:
            return
        self._version = version
        for event in self._store.view("events", after=self._seq, task=None, limit=1000):
            self._seq = int(str(event["seq"]))
            if event["kind"] not in _QUIET:
                moment = time.strftime("%H:%M:%S", time.localtime(float(str(event["at"]))))
                log_line(f"{moment} {one_line(event['message'])}")
