"""What a family of faults is: it lists its cases by a seed, and plays one of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Played:
    """What one case showed. `weight` counts the faults in it, where that is more than one: the kills of a storm."""

    case: str
    violations: tuple[str, ...] = ()
    missed: str = ""  # the fault never happened, and why
    weight: int = 1
    seconds: float = 0.0
    points: tuple[str, ...] = ()  # the crash points at which its faults came
    found: Any = None  # for the family itself: what a run without faults passed, say
    log: str = ""
    kind: str = ""  # of a family whose faults are of several kinds, each with a line of its own


Run = Callable[[Sequence[str]], Iterable[Played]]


@dataclass(frozen=True, slots=True)
class Scope:
    """How much of it. `long`: all that there is; else what a run of some minutes has room for."""

    start_from_head: int
    long: bool = False
    share: float = 1.0  # of the usual number of cases, for the sampled part in `make test`

    def amount(self, usual: int, everything: int | None = None) -> int:
        if self.long:
            return everything if everything is not None else usual
        return max(1, round(usual * self.share))


class Family(Protocol):
    name: str
    about: str

    def absent(self) -> str:
        """Why it cannot be played on this machine; empty: it can."""

    def prepare(self, root: Path) -> None:
        """Once, before workers are forked: in `root`, which goes away afterwards."""

    def cases(self, scope: Scope, run: Run) -> Sequence[str]:
        """By the seed. `run` plays some first, where only that shows which others there are."""

    def play(self, case: str) -> Played:
        """In a worker process, which is a subreaper; it leaves nothing behind."""


@dataclass(slots=True)
class Tally:
    """A line of the table."""

    family: str
    about: str = ""
    cases: int = 0
    faults: int = 0
    seconds: float = 0.0
    cpu: float = 0.0  # of all processes that it waited for
    points: set[str] = field(default_factory=set)
    absent: str = ""
    broken: str = ""  # the mutant that was played
    kinds: Counter[str] = field(default_factory=Counter)  # faults by kind, where a family has several
    missed: list[str] = field(default_factory=list)
    violating: list[Played] = field(default_factory=list)
