"""Plays the families one after the other on a pool of forked workers, and counts."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from tests.harness.campaign.family import Family, Played, Scope, Tally
from tests.harness.campaign.journal import Journal
from tests.harness.matrix.runner import fast_directory
from tests.harness.preload_imports import import_everything

LONGEST = 900.0  # seconds for a case: one that never ends is told like any other defect
AGAIN = 2  # a case whose fault never happened is timing, unless that repeats itself
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_families: Sequence[Family] = ()  # of this worker
_is_playing = False  # this worker: a case, which ends what it started
_is_to_end = False


class Campaign:
    """`stop_after`: violating cases in a family, after which its other cases are left out. `journal`: what was played
    before is not played again."""

    def __init__(self, scope: Scope, *, jobs: int, stop_after: int = 0, journal: Journal | None = None) -> None:
        self._scope, self._jobs, self._stop_after, self._journal = scope, jobs, stop_after, journal
        self.tallies: list[Tally] = []

    def play(self, family: Family) -> Tally:
        tally = Tally(family.name, family.about, absent=family.absent())
        self.tallies.append(tally)
        if tally.absent:
            print(f"NOT RUN: {family.name}: {tally.absent}", flush=True)
            return tally
        began, root, cpu = time.monotonic(), fast_directory(), _cpu_of_children()
        try:
            self._play(family, root, tally)
        finally:
            shutil.rmtree(root, ignore_errors=True)  # made by us just now
        tally.seconds, tally.cpu = time.monotonic() - began, _cpu_of_children() - cpu
        return tally

    def _play(self, family: Family, root: Path, tally: Tally) -> None:
        import_everything()
        family.prepare(root)
        gc.freeze()
        with _pool([family], self._jobs) as pool:
            cases = list(family.cases(self._scope, lambda some: self._run(pool, some, tally)))
            random.Random(self._scope.start_from_head).shuffle(
                cases
            )  # a family that is cut short has seen some of everything
            for _played in self._run(pool, cases, tally):
                if self._stop_after and len(tally.violating) >= self._stop_after:
                    break

    def replay(self, family: Family, case: str, broken: str = "", times: int = 1) -> Tally:
        """One case, as a violation names it."""
        tally = Tally(family.name, family.about, broken=broken)
        for played in self.side_by_side([(family, case)] * times):
            self._count(tally, played)
        return tally

    def side_by_side(self, wanted: Sequence[tuple[Family, str]]) -> Iterator[Played]:
        """Single cases of any families, in the order asked for. Nothing is told: they may be meant to be red."""
        root = fast_directory()
        try:
            import_everything()
            families = list({id(family): family for family, _case in wanted}.values())
            numbers = {id(family): number for number, family in enumerate(families)}
            for number, family in enumerate(families):
                family.prepare(_made(root / str(number)))
            with _pool(families, min(self._jobs, len(wanted))) as pool:
                for done in [pool.submit(_play, case, numbers[id(family)]) for family, case in wanted]:
                    yield done.result()
        finally:
            shutil.rmtree(root, ignore_errors=True)

    def _count(self, tally: Tally, played: Played) -> None:
        tally.cases += 1
        tally.faults += 0 if played.missed and played.weight == 1 else played.weight
        tally.points.update(played.points)
        if played.kind:
            tally.kinds[played.kind] += played.weight
        if played.missed:
            tally.missed.append(f"{played.case} ({played.missed})")
        if played.violations:
            tally.violating.append(played)
            tell(tally, played, self._scope.start_from_head)

    def _run(self, pool: ProcessPoolExecutor, cases: Sequence[str], tally: Tally) -> Iterator[Played]:
        shown = time.monotonic()
        known = {} if self._journal is None else {case: self._journal.known(tally.family, case) for case in cases}
        for before in known.values():
            if before is not None:
                self._count(tally, before)
                yield before
        for done in as_completed([pool.submit(_play, case) for case in cases if known.get(case) is None]):
            played = done.result()
            self._count(tally, played)
            if self._journal is not None:
                self._journal.add(tally.family, played)
            if time.monotonic() - shown > 30:
                shown = time.monotonic()
                print(f"  {tally.family}: {tally.cases} cases, {len(tally.violating)} violating", flush=True)
            yield played


def tell(tally: Tally, played: Played, seed: int) -> None:
    print(f"\nVIOLATED in {tally.family}:{played.case}\n  " + "\n  ".join(played.violations))
    print(f"  replay: {replay(tally.family, played.case, tally.broken)}   (seed {seed})")
    if played.log:
        print("  log: " + played.log[-1200:].replace("\n", "\n  log: "))
    sys.stdout.flush()


def replay(family: str, case: str, broken: str = "") -> str:
    extra = f" --break {broken}" if broken else ""
    return f"{os.path.relpath(sys.executable)} -m tests.harness.campaign --replay '{family}:{case}'{extra}"


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def _pool(families: Sequence[Family], jobs: int) -> Iterator[ProcessPoolExecutor]:
    pool = ProcessPoolExecutor(
        jobs, mp_context=multiprocessing.get_context("fork"), initializer=_become_worker, initargs=(families,)
    )
    try:
        yield pool
    except GeneratorExit:  # whoever asked for cases has them all
        raise
    except BaseException:  # we are to end: a case that is being played may take minutes
        for worker in multiprocessing.active_children():
            worker.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _become_worker(families: Sequence[Family]) -> None:
    global _families
    _families = families
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)  # a campaign that was killed plays no more


def _leave(_number: int, _frame: FrameType | None) -> None:
    """Between two cases at once: the pool, which may be in the middle of a message, would take an exception for an
    answer, wait for the next case and never hear of the end again; or leave half a message to the other workers."""
    global _is_to_end
    _is_to_end = True
    if not _is_playing:
        os._exit(1)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # once is enough, and what the case started is ended first
    raise SystemExit(1)


def _play(case: str, number: int = 0) -> Played:
    """`number`: of the family, among those that this pool was made for."""
    global _is_playing
    try:
        _is_playing = True
        played = _play_in_time(case, _families[number])
        _is_playing = False
        if _is_to_end:  # somebody swallowed it
            os._exit(1)
        return played
    except SystemExit:
        os._exit(1)  # the pool would take it for an answer, and wait for the next one of a worker that nobody ends


def _play_in_time(case: str, family: Family) -> Played:
    began = time.monotonic()
    signal.signal(signal.SIGALRM, _too_long)
    signal.setitimer(signal.ITIMER_REAL, LONGEST)
    try:
        played = family.play(case)
        for _again in range(AGAIN):
            if not played.missed or played.violations:
                break
            played = family.play(case)
    except TimeoutError:
        where = f"loops: the case did not end within {LONGEST:.0f} s: {traceback.format_exc()}"
        return Played(case, (where,), seconds=time.monotonic() - began)
    except Exception:  # noqa: BLE001 - told like a violation, or the campaign would wait for it for ever
        return Played(case, (f"the runner failed: {traceback.format_exc()}",), seconds=time.monotonic() - began)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return played


def _too_long(_number: int, _frame: FrameType | None) -> None:
    raise TimeoutError
