"""A worker's other half: a warm interpreter with libfaketime in it, whose wall clock a file moves while processes run.

libfaketime has to be loaded when a process starts, and our workers are forked. So each has one such interpreter beside
it, which forks the supervisors and commands of its cases. What these start (keepers, agents, git) has the real
clock, as if it had been moved between their record and whoever reads it. Monotonic clocks and files' times are real.
"""

from __future__ import annotations

import ctypes
import dataclasses
import glob
import json
import multiprocessing.util
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import SupportsIndex

from tests.harness import ROOT
from tests.harness.campaign.family import Played
from tests.harness.matrix.world import World

from holdfast.store import doorbell

LIBRARIES = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/local/lib/faketime/libfaketimeMT.so.1")
FILE = "FAKETIME_TIMESTAMP_FILE"  # libfaketime looks it up each time: a forked process can have a clock of its own
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def library() -> str:
    """Empty: there is none."""
    return next((path for pattern in LIBRARIES for path in sorted(glob.glob(pattern))), "")


class Clock:
    """The wall clock of a world's supervisors and commands, `offset` seconds from the real one."""

    def __init__(self, world: World) -> None:
        self._world, self._file, self.offset = world, world.root / "clock", 0.0
        self.was_set_back, self.furthest = False, 0.0  # the widest leap ahead since the case began
        self.move(0.0)
        os.environ[FILE] = str(self._file)

    def move(self, seconds: float) -> None:
        """At once, for all of them; and somebody looks."""
        self.offset += seconds
        self.was_set_back = self.was_set_back or seconds < 0
        self.furthest = max(self.furthest, seconds)
        new = self._file.with_suffix(".new")
        new.write_text(f"{self.offset:+.3f}\n")
        os.replace(new, self._file)
        if self._world.home.exists():
            doorbell.ring(str(self._world.home))

    def start_at(self, moment: float) -> None:
        """Before anything runs."""
        self.move(moment - time.time())
        self.was_set_back, self.furthest = False, 0.0


class Preloaded:
    """Asked from the worker: play this case."""

    def __init__(self, root: Path, broken: str) -> None:
        still = root / "clock-at-rest"
        still.write_text("+0\n")
        environment = {
            **os.environ,
            "LD_PRELOAD": library(),
            FILE: str(still),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",  # its default makes every wait for Python's own lock spin
            "NO_FAKE_STAT": "1",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.harness.campaign.clocks", str(root), broken],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        multiprocessing.util.Finalize(self, self.close, exitpriority=1)  # when the worker ends

    def close(self) -> None:
        """It hears that nobody asks any more, and what it used is counted as ours."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        for left in ("faketime_shm_", "sem.faketime_sem_"):  # its own, by its pid: those of one that was killed stay
            Path("/dev/shm", f"{left}{self._process.pid}").unlink(missing_ok=True)

    def play(self, case: str) -> Played:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{case}\n")
        self._process.stdin.flush()
        try:
            answer = self._process.stdout.readline()
        except BaseException:  # we are to end: it ends what its case started
            self._process.terminate()
            self._process.wait()
            raise
        if not answer:
            raise RuntimeError(f"the interpreter with libfaketime ended: {self._process.wait()}")
        words = json.loads(answer)
        return Played(**{**words, "violations": tuple(words["violations"])})


def serve(play: Callable[[str], Played]) -> None:
    """In the interpreter with libfaketime: until the worker is gone."""
    asked: list[int] = []

    def leave(number: int, _frame: FrameType | None) -> None:
        asked.append(number)
        for either in (signal.SIGTERM, signal.SIGINT):
            signal.signal(either, signal.SIG_IGN)  # once is enough, and what the case started is ended first
        raise SystemExit(1)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    del os.environ["LD_PRELOAD"]  # what we start has the real clock
    time.sleep = _sleep
    for line in sys.stdin:
        print(json.dumps(dataclasses.asdict(play(line.strip()))), flush=True)
        if asked:  # somebody swallowed it
            return


def _sleep(seconds: float | SupportsIndex) -> None:
    """libfaketime 0.9.10 refuses the clock_nanosleep that Python's own is made of."""
    select.select([], [], [], float(seconds))
