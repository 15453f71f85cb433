"""The await walker: cancels a coroutine at its k-th await, for every k until it ends by itself.

    def make() -> Coroutine[Any, Any, None]:      # called again for every case; may set the scene
        return copy_into(target)

    def check(ended: Ended[None]) -> None:        # called after every case, when its loop is closed
        assert not half_copied(target)

    walk(make, check, second=True)

Cancelled code has to raise CancelledError, and to leave no task, no thread at work, no open descriptor and no exception
that nobody saw; the walker checks that by itself. `check` looks at the rest. A failure names the await, and the one
command that replays its case.

Environment: HOLDFAST_WALK=k:mode[:j] runs one case only; HOLDFAST_WALK_ALL=1 runs all cases where `most` would draw a
sample, HOLDFAST_WALK_MOST=n makes those samples larger; HOLDFAST_WALK_SEED=n draws another one.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import os
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from tests.harness.await_case import Case, Ended, Mode, chain, run_case

__all__ = ["LATE", "SOON", "Case", "Ended", "Mode", "Walk", "WalkFailed", "chain", "walk"]

T = TypeVar("T")
SOON, LATE = Mode.SOON, Mode.LATE
ENDLESS = 10_000  # awaits: more than that in one coroutine under test is a loop
REDRAWS = 5


class WalkFailed(AssertionError):
    """A case went wrong. The message says where, what, and how to run it again."""


@dataclass(kw_only=True)
class Walk:
    """What was walked."""

    name: str
    start_from_head: int | None = None  # None: every case there is
    awaits: int = 0  # suspensions of the run that was left alone
    cases: list[Case] = field(default_factory=list)  # each one reached its await
    missed: int = 0  # chosen, but this time the coroutine took another way and ended before
    seconds: float = 0.0
    slowest: float = 0.0  # seconds from a cancellation to the end, at most

    def __str__(self) -> str:
        which = "all" if self.start_from_head is None else f"a sample, seed {self.start_from_head}"
        missed = f", {self.missed} not reached" if self.missed else ""
        twice = sum(1 for case in self.cases if case.j)
        return (
            f"await walk {self.name}: {self.awaits} awaits, {len(self.cases)} cancellations ({which}; "
            f"{twice} of them twice{missed}), {self.seconds:.1f} s; at most {self.slowest * 1000:.0f} ms to clean up"
        )


def walk(
    make: Callable[[], Coroutine[Any, Any, T]],
    check: Callable[[Ended[T]], None],
    *,
    modes: Sequence[Mode] = (SOON, LATE),
    second: bool = False,
    children: bool = False,
    most: int | None = None,
    interrupt: Callable[[asyncio.Task[Any]], object] | None = None,
    patience: float = 30.0,
    apart: bool = False,
) -> Walk:
    """Cancel `make()` at every await, and see that it leaves nothing behind.

    Awaits of the tasks that it makes count like its own: it is cancelled at each of them, too.

    - `second`: cancel again at every await that follows the first cancellation.
    - `children`: then also cancel not the coroutine but the suspended task that it made, at each of its awaits.
    - `most`: at most that many cases (and as many with a second cancellation), drawn by a seed that is printed.
    - `interrupt`: do this to the task instead of cancelling it (ask for a stop, say). `check` judges the ending then.
    - `apart`: run each case in a forked process, for code that owns its process (signal handlers, children).
    """
    walker = _Walker(make, check, modes, second, children, interrupt, patience, apart)
    began = time.monotonic()
    try:
        walker.run(_allowed(most))
    finally:
        walker.walk.seconds = time.monotonic() - began
        print(walker.walk)
    return walker.walk


def _allowed(most: int | None) -> int | None:
    if most is None or os.environ.get("HOLDFAST_WALK_ALL"):
        return None
    return int(os.environ.get("HOLDFAST_WALK_MOST", most))


class _Walker(Generic[T]):
    def __init__(
        self,
        make: Callable[[], Coroutine[Any, Any, T]],
        check: Callable[[Ended[T]], None],
        modes: Sequence[Mode],
        second: bool,
        children: bool,
        interrupt: Callable[[asyncio.Task[Any]], object] | None,
        patience: float,
        apart: bool,
    ) -> None:
        self._make = make
        self._check = check
        self._modes = modes
        self._second = second
        self._victims = (False, True) if children else (False,)
        self._interrupt = interrupt
        self._run_case = functools.partial(
            run_case, interrupt=interrupt or asyncio.Task.cancel, patience=patience, apart=apart
        )
        self._node = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        self.walk = Walk(name=self._node or getattr(make, "__qualname__", "of a coroutine"))

    def run(self, most: int | None) -> None:
        if chosen := os.environ.get("HOLDFAST_WALK"):
            if not self._case(Case.parse(chosen)).reached:
                raise WalkFailed(f"HOLDFAST_WALK={chosen}: it ended by itself before that await.")
            return
        alone = self._case(None)
        self.walk.awaits = alone.awaits
        if most is None:
            self._everything()
        else:
            self._sample(alone, most)
        if alone.awaits and not self.walk.cases:
            raise WalkFailed("No case reached its await: nothing was tested.")

    # -- which cases -------------------------------------------------------------------------------------------------

    def _everything(self) -> None:
        for of_child, mode in itertools.product(self._victims, self._modes):
            for k in range(1 if of_child else 0, ENDLESS):
                case = Case(k=k, mode=mode, of_child=of_child)
                ended = self._case(case)
                if not ended.reached:
                    break
                if self._second:
                    self._every_second(case, ended.awaits_after)

    def _every_second(self, case: Case, awaits: int) -> None:
        j = 0
        while (j := j + 1) <= min(awaits, ENDLESS):
            awaits = max(awaits, self._case(replace(case, j=j)).awaits_after)

    def _sample(self, alone: Ended[T], most: int) -> None:
        self.walk.start_from_head = int(os.environ.get("HOLDFAST_WALK_SEED", "1"))
        draw = random.Random(self.walk.start_from_head)
        population = []
        for of_child, mode in itertools.product(self._victims, self._modes):
            awaits = alone.child_awaits if of_child else alone.awaits
            population += [Case(k=k, mode=mode, of_child=of_child) for k in range(1 if of_child else 0, awaits + 1)]
        twice = []
        for case in sorted(draw.sample(population, min(most, len(population)))):
            ended = self._reached(case, draw)
            if ended is not None and ended.case is not None:
                twice += [replace(ended.case, j=j) for j in range(1, ended.awaits_after + 1)]
        if self._second:
            for case in sorted(draw.sample(twice, min(most, len(twice)))):
                self._case(case)

    def _reached(self, case: Case, draw: random.Random) -> Ended[T] | None:
        """Timing may take a coroutine another way: a case that was not reached is replaced by an earlier one."""
        for _ in range(REDRAWS):
            ended = self._case(case)
            if ended.delivered:
                return ended
            case = replace(case, k=draw.randint(1, max(1, ended.child_awaits if case.of_child else ended.awaits)))
        return None

    # -- one case ----------------------------------------------------------------------------------------------------

    def _case(self, case: Case | None) -> Ended[T]:
        ended = self._run_case(self._make(), case)
        problems = [*self._judge(ended), *ended.left]
        cause: Exception | None = None
        if not problems:
            try:
                self._check(ended)
            except Exception as error:  # noqa: BLE001 - any complaint of the check is told with its case
                problems, cause = [f"{type(error).__name__}: {error}"], error
        if problems:
            raise WalkFailed(self._told(ended, problems)) from (cause or ended.error)
        if case is not None and (ended.delivered_again if case.j else ended.delivered):
            self.walk.cases.append(case)
            self.walk.slowest = max(self.walk.slowest, ended.cleanup_seconds)
        elif case is not None and (self.walk.start_from_head is not None or (ended.again if case.j else ended.reached)):
            self.walk.missed += 1  # what is not even reached is, in a complete walk, just its end
        return ended

    def _judge(self, ended: Ended[T]) -> list[str]:
        if ended.case is None and ended.how == "raised":
            return [f"left alone, it raised {ended.error!r}"]
        if not ended.delivered or self._interrupt is not None or ended.case is None or ended.case.of_child:
            return []
        if ended.how == "returned":
            return [f"it swallowed the cancellation and returned {ended.value!r}"]
        if ended.how == "raised":
            return [f"it was cancelled and raised {ended.error!r} instead of CancelledError"]
        return []

    def _told(self, ended: Ended[T], problems: Sequence[str]) -> str:
        if ended.case is None:
            return "\n".join(["Left alone, without any cancellation:", *(f"  problem: {one}" for one in problems)])
        when = "" if ended.delivered else " (it ended before that arrived)"
        lines = [f"Cancelled at await {ended.case.k}, mode {ended.case.mode}{when}:", f"  where:   {ended.where}"]
        if ended.again:
            lines.append(f"  again:   {ended.again} (await {ended.case.j} after the first cancellation)")
        lines += [f"  problem: {one}" for one in problems]
        lines.append(f"  replay:  HOLDFAST_WALK={ended.case} pytest '{self._node}'")
        return "\n".join(lines)
