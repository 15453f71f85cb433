"""The supervisor's own log when it runs in the background: put aside when it is long, three old ones are kept."""

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
from holdfast.base.low_memory import is_starved
from holdfast.base.text import clean, one_line
from holdfast.secrets.redact import redacted
from holdfast.store.port.transaction import Store
from holdfast.supervisor.context import Bell

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


NAME = "supervisor.log"
KEPT = 3


def rotate(home: str, limit: int) -> bool:
    """Only if our standard error is that very file: what a service manager or a user redirected is theirs.

    The file is renamed and a new one opened in its place. Killed in between, the next start opens it; nothing that was
    written is lost, and nothing is copied.
    """
    path = os.path.join(home, NAME)
    try:
        written_to = [fd for fd in (1, 2) if _same(os.fstat(fd), os.stat(path))]
        if 2 not in written_to or os.fstat(2).st_size <= limit:
            return False
    except OSError:
        return False  # there is no such file: we write elsewhere
    try:
        _put_aside(path, written_to)
    except OSError as trouble:
        say(f"holdfast: {path} could not be put aside: {trouble.strerror}")
    return True


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return stat.S_ISREG(one.st_mode) and (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


def _put_aside(path: str, written_to: list[int]) -> None:
    for number in range(KEPT - 1, 0, -1):
        with contextlib.suppress(FileNotFoundError):
            os.rename(f"{path}.{number}", f"{path}.{number + 1}")
    faults.effect("log.rename")
    os.rename(path, f"{path}.1")
    faults.passed("log.renamed")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        for ours in written_to:
            os.dup2(fd, ours)
    finally:
        os.close(fd)
    faults.passed("log.rotated")


SLOW_POLL = 5.0  # for what others write without ringing
AT_MOST_EVERY = 0.25  # many commits are told together
_QUIET = frozenset({"run.ended", "run.stopping", "workspace.gone"})


class Narrator:
    """A follower like any other, that reads events from the store; but it need not poll: the writer rings for it.

    A wake costs an idle supervisor a third of a millisecond: four looks a second were a third of all it used.
    """

    def __init__(self, store: Store, news: Bell) -> None:
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
                say(f"{moment} {one_line(event['message'])}")
