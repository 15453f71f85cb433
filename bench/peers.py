"""The same hostile tree under Holdfast, supervisord and circus: who survives a stop, and a manager's own death."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench import proc
from bench.figures import Figure, Scale
from bench.hostile_tree import MEMBERS
from bench.managers import GRACE, Holdfast, Manager, PeerProblem, Place, circus, is_alive, supervisord

SIZE = len(MEMBERS) + 1  # with the leader
PATIENCE = 20.0
ORPHAN_GRACE = 2.0  # seconds, where the manager is not started again
MANAGERS: dict[str, Callable[[Place], Manager]] = {
    "holdfast": Holdfast,
    "supervisord": supervisord,
    "circus": partial(circus, stop_children=False),
    "circus-children": partial(circus, stop_children=True),
}
UNIT = "survivors"


def run(scale: Scale, folder: Path) -> list[Figure]:
    figures = []
    for name, make in MANAGERS.items():
        for verb, scenario in (("stop", _stop), ("crash", _crash), ("orphan", _orphan)):
            if not scale.peers and name != "holdfast":
                figures.append(_skipped(name, verb, "not part of this run"))
                continue
            try:
                place = Place(folder / f"{name}-{verb}", ORPHAN_GRACE if scenario is _orphan else 120.0)
                figures.append(_one(name, verb, make, partial(scenario, scale), place))
            except PeerProblem as problem:
                figures.append(_skipped(name, verb, str(problem)))
    return figures


Found = tuple[int, dict[str, float | str]]


def _one(
    name: str, verb: str, make: Callable[[Place], Manager], scenario: Callable[[Manager, Place], Found], place: Place
) -> Figure:
    manager = make(place)
    try:
        survivors, detail = scenario(manager, place)
    finally:
        manager.close()
        proc.end(proc.holders(place.witness), place.witness)
    goal = 0.0 if name == "holdfast" else None
    detail = {**detail, "version": manager.version}
    return Figure(name=f"peers.{verb}.{name}", value=survivors, unit=UNIT, goal=goal, detail=detail)


def _skipped(name: str, verb: str, why: str) -> Figure:
    return Figure(name=f"peers.{verb}.{name}", value=None, unit=UNIT, skipped=why)


def _stop(scale: Scale, manager: Manager, place: Place) -> Found:
    _grow(manager, place)
    seconds = manager.stop_tree()
    time.sleep(scale.settle)
    survivors = proc.holders(place.witness)
    return len(survivors), {
        "processes of the tree": SIZE,
        "ms until it says stopped": round(seconds * 1e3),
        "grace ms": GRACE * 1000,
    }


def _crash(scale: Scale, manager: Manager, place: Place) -> Found:
    """Killed, started again, and then told to stop what it runs."""
    first = _grow(manager, place)
    manager.crash()
    time.sleep(scale.settle)
    alive = len(proc.holders(place.witness))
    place.ready.unlink()
    manager.start()
    second = _leader(place, _time_is_up(scale.second_copy))
    copies = is_alive(first) + (second is not None and is_alive(second))
    seconds = manager.stop_tree()
    time.sleep(scale.settle)
    return len(proc.holders(place.witness)), {
        "processes of the tree": SIZE,
        "alive after the kill": alive,
        "copies of the tree after the restart": copies,
        "ms until it says stopped": round(seconds * 1e3),
    }


def _orphan(scale: Scale, manager: Manager, place: Place) -> Found:
    """Killed, and not started again."""
    _grow(manager, place)
    manager.crash()
    wait = ORPHAN_GRACE + GRACE + scale.settle
    time.sleep(wait)
    survivors = len(proc.holders(place.witness))
    return survivors, {"processes of the tree": SIZE, "seconds after the kill": wait}


def _grow(manager: Manager, place: Place) -> int:
    """Start the manager and its tree; the leader's pid."""
    manager.start()
    leader = _leader(place, proc.Patience(PATIENCE).is_over)
    if leader is None:
        raise PeerProblem(f"it did not start the tree within {PATIENCE:.0f} s")
    found = len(proc.holders(place.witness))
    if found != SIZE:
        raise PeerProblem(f"the tree has {found} members instead of {SIZE}")
    return leader


def _time_is_up(seconds: float) -> Callable[[], bool]:
    """By the clock: how long something may come that is not waited for. The trees live for a minute only."""
    deadline = time.monotonic() + seconds
    return lambda: time.monotonic() > deadline


def _leader(place: Place, is_over: Callable[[], bool]) -> int | None:
    while not place.ready.exists():
        if is_over():
            return None
        time.sleep(0.01)
    return int(place.ready.read_text())
