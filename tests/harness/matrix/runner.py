"""Runs one case: play it with its faults, recover, recover again, and let the independent checker look."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tests.harness.matrix import git_faults
from tests.harness.matrix.cases import ACTIONS, ENDS, ENGINE, KILL, USURP, Case, Fault
from tests.harness.matrix.scenarios import SCENARIOS
from tests.harness.matrix.steps import state
from tests.harness.matrix.world import KEEPER, Stuck, World
from tests.harness.preload_imports import import_everything

from holdfast.checker import fingerprint, violations
from holdfast.processes.cgroups import probe_cgroups

ROOM = 256 * 1024 * 1024
MANY_FILES = 100
RECOVER = "recover"  # the role of the first supervisor after the faults
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, slots=True)
class Result:
    """What one case showed. `missed` faults never happened: their point was not reached."""

    case: str
    violations: tuple[str, ...]
    missed: tuple[str, ...]
    seconds: float
    reached: dict[str, list[tuple[str, int, bool]]] = field(default_factory=dict)
    log: str = ""
    skipped: bool = False
    git_calls: tuple[git_faults.Call, ...] = ()


class Runner:
    """One per worker process, which it makes a subreaper, with an environment of its own."""

    def __init__(self, root: Path, broken: str = "") -> None:
        self._root = root
        self._broken = broken
        self._number = 0
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._template, self._larger = root / "template", root / "larger"

    def run(self, case: Case) -> Result:
        self._number += 1
        began = time.monotonic()
        template = self._larger if git_faults.wants_many_files(case) else self._template
        world = World(self._root / f"{os.getpid()}-{self._number}", template, case, self._broken)
        try:
            found = self._play(world, case)
            reached = {role: world.reached(role) for role in world.roles()}
            log = world.log.read_text(errors="replace")[-4000:] if found and world.log.exists() else ""
            return Result(
                str(case),
                tuple(found),
                _missed(case, reached),
                time.monotonic() - began,
                reached,
                log,
                git_calls=git_faults.calls(world.root),
            )
        finally:
            world.close()

    def _play(self, world: World, case: Case) -> list[str]:
        scenario = SCENARIOS[case.scenario]
        try:
            scenario.play(world)
            world.up(RECOVER)
            if any(fault.role == RECOVER for fault in case.faults):
                world.up("recover2")
            if not (world.home / "holdfast.db").exists():
                return ["lost: the store was never made"]
            before = fingerprint(str(world.home))
            world.up("recover3")
            after = fingerprint(str(world.home))
        except Stuck as stuck:
            return [f"loops: {stuck}", *self._look(world), *scenario.also(world)]
        changed = [f"loops: a second recovery changed {part}" for part in before if before[part] != after.get(part)]
        return [*changed, *self._look(world), *_unexpected(world, case)]

    def _look(self, world: World) -> list[str]:
        if not (world.home / "holdfast.db").exists():
            return []
        world.gather()
        return [str(found) for found in violations(str(world.home), at_rest=True, witness=str(world.witness))]


def _unexpected(world: World, case: Case) -> list[str]:
    """Whether each task ended as its scenario says; one that was never acknowledged may be missing."""
    found = []
    for prompt, allowed in SCENARIOS[case.scenario].expected.items():
        ended = state(world, prompt)
        if ended not in git_faults.allowed(case, allowed):
            found.append(f"lost: '{prompt}' ended {ended}, not {' or '.join(allowed)}")
    return [*found, *SCENARIOS[case.scenario].also(world)]


def _missed(case: Case, reached: dict[str, list[tuple[str, int, bool]]]) -> tuple[str, ...]:
    def happened(fault: Fault) -> bool:
        return fault.hit == 0 or any(
            (point, hit) == (fault.point, fault.hit) for point, hit, _fails in reached.get(fault.role, [])
        )

    return tuple(str(fault) for fault in case.faults if not happened(fault))


def prepare(root: Path) -> None:
    """The environment of every process of the matrix, and the repository that each case gets a copy of."""
    import_everything()
    user = root / "user"
    user.mkdir()
    (user / ".gitconfig").write_text("[user]\n\tname = Matrix\n\temail = matrix@localhost\n[gc]\n\tauto = 0\n")
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    os.environ.clear()
    os.environ.update(kept, HOME=str(user), LANG="C.UTF-8", HOLDFAST_CONFIG=str(user / "none.toml"))
    os.environ["HOLDFAST_ENV_PASS"] = "WITNESS WORLD"
    _make_template(root / "template", 0)
    _make_template(root / "larger", MANY_FILES)


def _make_template(template: Path, more: int) -> None:
    (template / "src").mkdir(parents=True)
    (template / "README.md").write_text("# Matrix\n")
    (template / "src" / "app.py").write_text("print('hello')\n")
    for number in range(more):
        (template / "src" / f"part{number}.py").write_text(f"# {number}\n")
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "Start"], ["gc", "-q"]):
        subprocess.run(["git", *words], cwd=template, check=True)
    shutil.rmtree(template / ".git" / "hooks", ignore_errors=True)
    (template / ".git" / "info" / "exclude").write_text("*.private\n")


def fast_directory() -> Path:
    """In memory where there is room: processes are killed here, not machines, so fsync proves nothing."""
    base = "/dev/shm"
    if not os.access(base, os.W_OK) or shutil.disk_usage(base).free < ROOM:
        base = tempfile.gettempdir()
    return Path(tempfile.mkdtemp(prefix="holdfast-matrix-", dir=base))


@cache
def has_cgroups() -> bool:
    """Whether a dead keeper's tree can be proven empty without the supervisor that spawned it."""
    found = probe_cgroups(tempfile.gettempdir())
    if isinstance(found, str):
        return False
    found.leave()
    return True


def playable() -> list[str]:
    """Those for which this machine has what they need; which have not, and why, is said."""
    missing = {name: why for name, scenario in SCENARIOS.items() if (why := scenario.absent())}
    for why in dict.fromkeys(missing.values()):
        print(f"NOT RUN: {', '.join(name for name in missing if missing[name] == why)}: {why}", flush=True)
    return [name for name in SCENARIOS if name not in missing]


def single_faults(
    scenario: str, reached: dict[str, list[tuple[str, int, bool]]], actions: Sequence[str] = ACTIONS
) -> list[Case]:
    """Every point × hit × action that a run of the scenario without faults has shown."""
    found = []
    played, proves = SCENARIOS[scenario], has_cgroups()
    for role, points in reached.items():
        if role.startswith(RECOVER) or role == ENGINE or (role == KEEPER and not (played.keepers_may_die or proves)):
            continue
        for point, hit, may_fail in dict.fromkeys(points):
            for action in actions:
                if action in ENDS and role == "up" and not (played.supervisor_may_die or proves):
                    continue
                if action in ENDS or may_fail:
                    found.append(Case(scenario, (Fault(role, point, hit, action),)))
    return found


def usurpations(scenario: str, reached: dict[str, list[tuple[str, int, bool]]]) -> list[Case]:
    """A second supervisor at each outside effect of the first. Not inside a transaction: there it would only wait."""
    if SCENARIOS[scenario].is_attended:
        return []
    points = dict.fromkeys((point, hit) for point, hit, _fails in reached.get("up", []))
    skipped = ("tx.", "store.", "writer.", "backup.", "doorbell.", "home.")
    return [Case(scenario, (Fault("up", point, hit, USURP),)) for point, hit in points if not point.startswith(skipped)]


def second_faults(case: Case, reached: dict[str, list[tuple[str, int, bool]]]) -> list[Case]:
    """The same case, with a kill at every point of its recovery."""
    points = dict.fromkeys((point, hit) for point, hit, _fails in reached.get(RECOVER, []))
    return [case.then(Fault(RECOVER, point, hit, KILL)) for point, hit in points]
