"""Whatever is typed, configured, answered or written by an agent: no traceback, no hang, the right code, nothing lost.

A case is some hundred inputs of one kind, played one after the other by a process of its own: `streams:7:500+250` are
the inputs 500 to 749 of seed 7. A violation names its input, and `streams:7:612+1` is that one alone.
"""

from __future__ import annotations

import json
import os
import random
import select
import shutil
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from tests.harness.campaign.family import Played, Run, Scope

PATIENCE = 60  # seconds for one input, on a busy machine
SILENCE = 180.0  # seconds without a word of the process that plays them: it hangs where no signal reaches it
MOST = 10  # violations of one case that are told
LONG = 20  # times as many inputs in a long campaign


class Fuzzed:
    name = "fuzz"
    about = (
        "inputs of every kind: command lines, settings, files, agents' output, trackers' answers, columns of the store"
    )

    def __init__(self, broken: str = "") -> None:
        self._original = Path()

    def absent(self) -> str:
        from tests.harness.recordings import GOLDEN

        return "" if GOLDEN.is_dir() else f"the recordings of agents are not there ({GOLDEN})"

    def prepare(self, root: Path) -> None:
        from tests.harness.fuzz import kinds, place  # with every command's module: whoever plays has them

        self._original = place.make(root)
        del kinds

    def cases(self, scope: Scope, run: Run) -> Sequence[str]:
        from tests.harness.fuzz.kinds import KINDS

        found = []
        for kind, (_make, usual, together) in KINDS.items():
            wanted = scope.amount(usual, LONG * usual)
            for first in range(0, wanted, together):
                found.append(f"{kind}:{scope.start_from_head}:{first}+{min(together, wanted - first)}")
        return found

    def play(self, case: str) -> Played:
        from tests.harness.fuzz import place

        began = time.monotonic()
        kind, seed, numbers = case.split(":")
        first, _, count = numbers.partition("+")
        home = place.copy_of(self._original)
        try:
            found = list(_told(home, kind, seed, int(first), int(count or 1)))
        finally:
            shutil.rmtree(home, ignore_errors=True)  # made by us just now
        return Played(case, tuple(found[:MOST]), weight=int(count or 1), seconds=time.monotonic() - began, kind=kind)


def _told(place: Path, kind: str, seed: str, first: int, count: int) -> Iterator[str]:
    """What the process that plays them says. It may hang or be killed by what it reads: that is a finding too."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        try:
            os.setsid()
            _play_all(write_end, place, kind, seed, first, count)
        finally:
            os._exit(0)
    os.close(write_end)
    number, rest, is_over = first, b"", False
    try:
        while select.select([read_end], [], [], SILENCE)[0]:
            block = os.read(read_end, 1 << 16)
            if not block:
                break
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                said = json.loads(line)
                number, is_over = said.get("at", number), "over" in said
                for words in said.get("wrong", ()):
                    yield f"{words}\n  this one: fuzz:{kind}:{seed}:{number}+1"
        else:
            yield f"loops: {kind}:{seed}:{number}+1 did not end within {SILENCE:.0f} s"
            is_over = True
            os.killpg(pid, signal.SIGKILL)
    finally:
        os.close(read_end)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        _bury(pid)
    if not is_over:
        yield f"silent: the process was ended ({status}) by {kind}:{seed}:{number}+1"


def _bury(group: int) -> None:
    """What a command left behind in its group is ours to end: nothing of it may outlive a case."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


class TooLong(Exception):
    """One input took longer than it may."""


def _play_all(write_end: int, place: Path, kind: str, seed: str, first: int, count: int) -> None:
    from tests.harness.fuzz.kinds import KINDS

    def tell(**words: object) -> None:
        os.write(write_end, json.dumps(words).encode() + b"\n")

    def too_long(_number: int, _frame: FrameType | None) -> NoReturn:
        raise TooLong

    signal.signal(signal.SIGALRM, too_long)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    number = first
    try:
        played = KINDS[kind][0](place)
        for number in range(first, first + count):
            tell(at=number)
            signal.alarm(PATIENCE)
            wrong = _played(played.play, random.Random(f"{kind}:{seed}:{number}"))
            signal.alarm(0)
            if wrong:
                tell(at=number, wrong=[wrong])
        tell(wrong=played.end())
    except BaseException:  # noqa: BLE001 - told, like all the rest
        tell(at=number, wrong=[f"silent: the runner failed: {traceback.format_exc()[-3000:]}"])
    tell(over=True)


def _played(play: Callable[[random.Random], str], draw: random.Random) -> str:
    try:
        return play(draw)
    except TooLong:
        return f"loops: it took longer than {PATIENCE} s:\n{traceback.format_exc()[-3000:]}"
    except Exception:  # noqa: BLE001 - that is what we look for
        return f"silent: a traceback\n{traceback.format_exc()[-3000:]}"
