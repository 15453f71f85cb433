"""`python -m tests.harness.matrix`: discover the points, run the cases, print what was shown."""

from __future__ import annotations

import argparse
import gc
import importlib
import multiprocessing
import os
import pkgutil
import random
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing.synchronize import Event
from pathlib import Path

from tests.harness.matrix import git_faults
from tests.harness.matrix.cases import ACTIONS, KILL, Case, parse
from tests.harness.matrix.runner import (
    RECOVER,
    Result,
    Runner,
    fast_directory,
    playable,
    prepare,
    second_faults,
    single_faults,
    usurpations,
)
from tests.harness.matrix.scenarios import SCENARIOS

from holdfast.store.sqlite.engine.statements import migrations, statements

AGAIN = 2  # a case whose point was not reached is timing, unless that repeats itself
_runner: Runner | None = None
_enough: Event | None = None


def main(argv: Sequence[str]) -> int:
    arguments = _arguments(argv)
    signal.signal(signal.SIGTERM, _unwind)
    root = fast_directory()
    try:
        prepare(root)
        _import_what_is_imported_late()
        gc.freeze()
        began = time.monotonic()
        forking = multiprocessing.get_context("fork")
        enough = forking.Event()
        with ProcessPoolExecutor(
            arguments.jobs, mp_context=forking, initializer=_become_worker, initargs=(root, arguments.broken, enough)
        ) as pool:
            campaign = Campaign(pool, arguments, enough)
            try:
                if arguments.list_points:
                    return campaign.list_points()
                if arguments.case:
                    list(campaign.run([parse(arguments.case)], "replay"))
                elif arguments.git or arguments.git_kills:
                    campaign.git_fails()
                else:
                    campaign.whole()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        return campaign.report(time.monotonic() - began)
    finally:
        shutil.rmtree(root, ignore_errors=True)  # made by us just now


def _import_what_is_imported_late() -> None:
    """Every supervisor is forked from here: what each would import, compile and read again is done once."""
    from holdfast import agents
    from holdfast.store import sqlite

    for package in (agents, sqlite):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    migrations()
    for file in Path(sqlite.__path__[0], "queries").glob("*.sql"):
        statements(file.stem)


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.harness.matrix", description=__doc__)
    parser.add_argument("--case", help="replay one case, as a failure prints it")
    parser.add_argument("--list-points", action="store_true", help="only print every point that a scenario reaches")
    parser.add_argument("--scenario", action="append", choices=list(SCENARIOS), help="only these scenarios")
    parser.add_argument("--point", help="only faults at points whose name contains this")
    parser.add_argument("--actions", default=",".join(ACTIONS), help="kill, ENOSPC, EIO")
    parser.add_argument("--first-hits", action="store_true", help="only the first hit of each point")
    parser.add_argument(
        "--each-point", action="store_true", help="each point once with a kill, every fifth with an error (by --seed)"
    )
    parser.add_argument(
        "--share", type=int, default=1, metavar="N", help="with --each-point: one Nth of the points, by --seed"
    )
    parser.add_argument("--sample", type=int, metavar="N", help="at most N cases of each kind, picked by --seed")
    parser.add_argument(
        "--double", choices=["none", "sample", "distinct", "points", "hits"], default="none", help="second faults"
    )
    parser.add_argument("--doubles", type=int, metavar="N", help="at most N second faults, picked by --seed")
    parser.add_argument(
        "--git",
        metavar="HOW",
        default="",
        help=f"only: git misbehaves at every call ({', '.join(git_faults.BEHAVIOURS)})",
    )
    parser.add_argument(
        "--git-kills",
        metavar="PHASE=N,…",
        default="",
        help=f"only: git is killed at N of its instants in each phase ({', '.join(git_faults.PHASES)})",
    )
    parser.add_argument("--usurp", action="store_true", help="also let a second supervisor take over at each effect")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="for everything that is picked at random")
    parser.add_argument("--jobs", type=int, default=2 * (os.cpu_count() or 1), help="worker processes")
    parser.add_argument("--break", dest="broken", default="", metavar="MUTANT", help="play this mutant, such as fence")
    parser.add_argument("--stop-after", type=int, default=0, metavar="N", help="end after N violating cases")
    return parser.parse_args(argv)


def _unwind(_number: int, _frame: object) -> None:
    """SIGTERM: leave by the way we came, so that each world ends its processes and goes."""
    sys.exit(1)


def _become_worker(root: Path, broken: str, enough: Event) -> None:
    global _runner, _enough
    _runner, _enough = Runner(root, broken), enough


def _run(case: Case) -> Result:
    assert _runner is not None
    assert _enough is not None
    if _enough.is_set():
        return Result(str(case), (), (), 0.0, skipped=True)
    try:
        result = _runner.run(case)
        for _again in range(AGAIN):
            if not result.missed or result.violations:
                break
            result = _runner.run(case)
        return result
    except Exception:  # noqa: BLE001 - told like a violation, or the campaign would wait for it for ever
        return Result(str(case), (f"the runner failed: {traceback.format_exc()}",), (), 0.0)


class Campaign:
    """Counts what was run, and remembers what was wrong."""

    def __init__(self, pool: ProcessPoolExecutor, arguments: argparse.Namespace, enough: Event) -> None:
        self._pool = pool
        self._enough = enough
        self._arguments = arguments
        self._random = random.Random(arguments.seed)
        self.cases: Counter[str] = Counter()
        self.points: set[str] = set()
        self.missed: list[str] = []
        self.bad: list[Result] = []

    def whole(self) -> None:
        names = self._arguments.scenario or self._usual()
        plain = list(self.run([Case(name) for name in names], "without faults"))
        if self._arguments.each_point:
            print(f"reached without faults: {' '.join(sorted(self.points))}")
        reached = {result.case: result.reached for result in plain}
        singles = [case for name in names for case in single_faults(name, reached[name], self._actions())]
        done = list(self.run(self._sampled(self._wanted(singles), self._arguments.sample), "single faults"))
        if self._arguments.usurp:
            usurped = [case for name in names for case in usurpations(name, reached[name])]
            list(self.run(self._sampled(self._wanted(usurped), self._arguments.sample), "usurped"))
        if self._arguments.double != "none":
            most = self._arguments.sample if self._arguments.doubles is None else self._arguments.doubles
            list(self.run(self._sampled(self._doubles(done), most), "double faults"))

    def git_fails(self) -> None:
        """Git itself is the fault: how often each scenario calls it is counted first."""
        names = self._arguments.scenario or ["success", "failure", "cancel"]
        how = [word for word in self._arguments.git.split(",") if word]
        wishes = [wish.partition("=") for wish in self._arguments.git_kills.split(",") if wish]
        counted = [git_faults.counting(name, instants=bool(wishes)) for name in names]
        found: list[Case] = []
        for result in list(self.run(counted, "counted")):
            name = parse(result.case).scenario
            cases = git_faults.misbehaving(name, result.reached[git_faults.ROLE], how)
            print(f"  {name}: {len(cases) // max(1, len(how))} calls of git", flush=True)
            found += self._sampled(cases, self._arguments.sample)
            for phase, _, count in wishes:
                found += git_faults.kills(name, result.git_calls, phase, int(count), self._random)
        list(self.run(found, "faults of git"))

    def list_points(self) -> int:
        list(self.run([Case(name) for name in self._usual()], "without faults"))
        print("\n".join(sorted(self.points)))
        return 1 if self.bad else 0

    def _usual(self) -> list[str]:
        """The short runs (each point once, a sample) leave variations out."""
        short = self._arguments.each_point or self._arguments.sample is not None or self._arguments.list_points
        return [name for name in playable() if not (short and SCENARIOS[name].is_variation)]

    def _actions(self) -> list[str]:
        return [word for word in self._arguments.actions.split(",") if word]

    def _wanted(self, cases: list[Case]) -> list[Case]:
        kept = [case for case in cases if (self._arguments.point or "") in case.faults[0].point]
        if self._arguments.first_hits:
            kept = [case for case in kept if case.faults[0].hit == 1]
        if self._arguments.each_point:
            kept = self._one_per_point(kept)
        return kept

    def _one_per_point(self, cases: list[Case]) -> list[Case]:
        """For each point one kill, for every fifth an error too, by the seed: over many runs all of them come up. With
        `--share 2` two seeds in a row have all points between them."""
        by_point: dict[tuple[str, bool], list[Case]] = {}
        for case in cases:
            by_point.setdefault((case.faults[0].point, case.faults[0].action == KILL), []).append(case)
        share, turn = self._arguments.share, self._arguments.seed % self._arguments.share
        points = sorted({point for point, _killed in by_point})[turn::share]
        kills = [self._random.choice(by_point[point, True]) for point in points if (point, True) in by_point]
        errors = [self._random.choice(by_point[point, False]) for point in points if (point, False) in by_point]
        return kills + self._random.sample(errors, -(-len(errors) // 5))

    def _sampled(self, cases: list[Case], most: int | None) -> list[Case]:
        return cases if most is None or len(cases) <= most else sorted(self._random.sample(cases, most))

    def _doubles(self, done: list[Result]) -> list[Case]:
        """A kill at points of the recovery. `hits`: at every hit, after every kill; `points`: at each point's first,
        after the first hit of each; `distinct`: likewise, after one kill of each kind of recovery; `sample`: one of
        those."""
        wanted = self._arguments.double
        kills = [(parse(result.case), result) for result in done if not result.missed]
        kills = [(case, result) for case, result in kills if case.faults[0].action == KILL]
        if wanted == "points":
            kills = [(case, result) for case, result in kills if case.faults[0].hit == 1]
        elif wanted != "hits":
            kills = self._one_of_each_recovery(kills)
        found = []
        for case, result in kills:
            seconds = second_faults(case, result.reached)
            if wanted != "hits":
                seconds = [second for second in seconds if second.faults[-1].hit == 1]
            if wanted == "sample" and seconds:
                seconds = [self._random.choice(seconds)]
            found += seconds
        return found

    def _one_of_each_recovery(self, kills: list[tuple[Case, Result]]) -> list[tuple[Case, Result]]:
        """Two crashes whose recoveries pass the same points have left the same work to do: one of them is enough."""
        by_recovery: dict[tuple[str, frozenset[str]], list[tuple[Case, Result]]] = {}
        for case, result in kills:
            passed = frozenset(point for point, _hit, _fails in result.reached.get(RECOVER, []))
            by_recovery.setdefault((case.scenario, passed), []).append((case, result))
        return [
            self._random.choice(among) for _key, among in sorted(by_recovery.items(), key=lambda item: str(item[0][0]))
        ]

    def run(self, cases: list[Case], kind: str) -> Iterator[Result]:
        self._random.shuffle(cases)
        shown = time.monotonic()
        for done in as_completed([self._pool.submit(_run, case) for case in cases]):
            result = done.result()
            if result.skipped:
                continue
            self.cases[kind] += 1
            if time.monotonic() - shown > 30:
                shown = time.monotonic()
                print(f"  {kind}: {self.cases[kind]} of {len(cases)}, {len(self.bad)} violating", flush=True)
            self._note(result)
            yield result

    def _note(self, result: Result) -> None:
        self.missed += [f"{result.case} ({missed})" for missed in result.missed]
        self.points.update(point for points in result.reached.values() for point, _hit, _fails in points)
        if result.violations:
            self.bad.append(result)
            print(f"\nVIOLATED in {result.case}\n  " + "\n  ".join(result.violations))
            print(f"  replay: {replay(result.case, self._arguments.broken)}   (seed {self._arguments.seed})")
            if result.log:
                print("  log: " + result.log[-1200:].replace("\n", "\n  log: "), flush=True)
            if self._arguments.stop_after and len(self.bad) >= self._arguments.stop_after:
                self._enough.set()

    def report(self, seconds: float) -> int:
        for line in self.missed[:10]:
            print(f"not reached: {line}")
        counted = ", ".join(f"{count} {kind}" for kind, count in self.cases.items())
        print(
            f"points {len(self.points)} · cases {sum(self.cases.values())} ({counted}) · "
            f"not reached {len(self.missed)} · seconds {seconds:.0f} · violations {len(self.bad)} · "
            f"seed {self._arguments.seed}"
        )
        return 1 if self.bad else 0


def replay(case: str, broken: str = "") -> str:
    extra = f" --break {broken}" if broken else ""
    return f"{os.path.relpath(sys.executable)} -m tests.harness.matrix --case '{case}'{extra}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
