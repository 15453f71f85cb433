"""The wall clock is moved while tasks run, wait, are paused, scheduled and kept: by years, hours, summer time.

A case is `life/moment/moves`: which life, and at which moment of it the first of the moves comes; the others come at
the moments after that. `paused/waiting/+10y,-10y`.
"""

from __future__ import annotations

import os
import random
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.harness.campaign.faked_clock import Clock, Preloaded, library, serve
from tests.harness.campaign.family import Played, Run, Scope
from tests.harness.campaign.kept_lives import KEPT
from tests.harness.campaign.lives import LIVES as WAITING
from tests.harness.campaign.lives import Life
from tests.harness.campaign.shared_setup import Grounds
from tests.harness.campaign.timed_lives import TIMED
from tests.harness.matrix.cases import Case
from tests.harness.matrix.world import Stuck, World
from tests.harness.preload_imports import import_everything

from holdfast.checker import fingerprint, violations

LIVES: dict[str, Life] = {**WAITING, **KEPT, **TIMED}
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "y": 365 * 86400}
ONCE = ("+10y", "-10y", "+1h", "-1h", "+1d", "-1d", "-70s", "+40d")
TWICE = ("+10y,-10y", "-10y,+10y", "+1h,-1h", "-1h,+1h", "-1d,-1d", "+1d,+10y")
_MOVE = re.compile(r"([+-]\d+)([smhdy])")


class Clocks(Grounds):
    name = "clock"
    about = "the wall clock jumps by years, days, hours, and over summer time (libfaketime)"
    USUAL = 14

    def __init__(self, broken: str = "") -> None:
        super().__init__(broken)
        self._preloaded: Preloaded | None = None

    def absent(self) -> str:
        if sys.platform != "linux" or not library():
            return "libfaketime is not installed (apt-get install faketime): no clock was moved"
        return ""

    def cases(self, scope: Scope, run: Run) -> Sequence[str]:
        every = [
            f"{name}/{moment}/{moves}"
            for name, life in LIVES.items()
            for moment in life.moments
            for moves in life.moves or (*ONCE, *TWICE)
        ]
        chance = random.Random(scope.start_from_head)
        wanted = scope.amount(self.USUAL, len(every))
        piles = [chance.sample(pile, len(pile)) for pile in _by_life(every)]
        chance.shuffle(piles)
        chosen: list[str] = []
        while len(chosen) < min(wanted, len(every)):
            chosen += [pile.pop() for pile in piles if pile]
        return chosen[:wanted]

    def play(self, case: str) -> Played:
        if missing := self.absent():
            return Played(case, (f"silent: {missing}",))
        if self._preloaded is None:  # one per worker
            self._preloaded = Preloaded(self._root, self._broken)
        return self._preloaded.play(case)


def _by_life(cases: Sequence[str]) -> list[list[str]]:
    piles: dict[str, list[str]] = {}
    for case in cases:
        piles.setdefault(case.partition("/")[0], []).append(case)
    return list(piles.values())


class Moves:
    """Those of a case, one at each moment from the one on that it names."""

    def __init__(self, case: str, clock: Clock) -> None:
        self.life, self._first, moves = case.split("/")
        self._left = [] if moves == "none" else moves.split(",")
        self._clock, self.begun = clock, False

    def at(self, moment: str) -> None:
        self.begun = self.begun or moment == self._first
        if self.begun and self._left:
            self._clock.move(seconds_of(self._left.pop(0)))


def seconds_of(move: str) -> float:
    found = _MOVE.fullmatch(move)
    if found is None:
        raise ValueError(f"'{move}' is no move of a clock; one is +10y, -1h, +70s")
    return float(found[1]) * UNITS[found[2]]


def play(root: Path, broken: str, case: str) -> Played:
    """In the interpreter with libfaketime."""
    began = time.monotonic()
    word = re.sub(r"[^\w+-]", "_", case)
    world = World(root / f"clock-{os.getpid()}-{word}", root / "template", Case("clock"), broken)
    try:
        clock = Clock(world)
        moves = Moves(case, clock)
        life = LIVES[moves.life]
        try:
            found = [*life.play(world, clock, moves.at), *_rest(world, life)]
        except Stuck as stuck:
            found = [f"loops: {stuck}"]
        log = world.log.read_text(errors="replace")[-4000:] if found and world.log.exists() else ""
        missed = "" if moves.begun else "its moment never came"
        return Played(case, tuple(found), missed, seconds=time.monotonic() - began, log=log)
    finally:
        os.environ.pop("TZ", None)
        time.tzset()
        world.close()


def _rest(world: World, life: Life) -> list[str]:
    """The promises, when all has come to rest; and one more supervisor changes nothing."""
    world.up("rest")
    before = fingerprint(str(world.home))
    world.up("last")
    after = fingerprint(str(world.home))
    found = [f"loops: a second recovery changed {part}" for part in before if before[part] != after.get(part)]
    return found + [
        str(one) for one in violations(str(world.home), at_rest=life.comes_to_rest, witness=str(world.witness))
    ]


def main(root: str, broken: str) -> None:
    import_everything()
    serve(lambda case: play(Path(root), broken, case))


if __name__ == "__main__":
    main(*sys.argv[1:])
