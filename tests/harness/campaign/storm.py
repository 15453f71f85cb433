"""A storm: supervisors, keepers and agents of many tasks are killed at random instants, then all comes to rest.

A case is the seed of one storm: which victims and which pauses, not which instant of theirs it met. Twenty tasks and a
hundred kills each, ten of them side by side; `SEED/200/1000` is one with that many tasks and kills in one home, as the
long campaign has it. The tasks work in worktrees, clones, directories, copies and, where an engine can be had, in
containers.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from tests.harness.campaign.family import Played, Run, Scope
from tests.harness.campaign.shared_setup import Grounds
from tests.harness.engines.image import why_not
from tests.harness.matrix import containers, steps
from tests.harness.matrix.cases import Case
from tests.harness.matrix.runner import has_cgroups
from tests.harness.matrix.steps import COMMIT
from tests.harness.matrix.world import Stuck, World

from holdfast.api.commands import Commands, NewTask
from holdfast.api.queries import Queries
from holdfast.base.errors import HoldfastError
from holdfast.checker import fingerprint, violations

TASKS, KILLS = 20, 100
# Task N has the workspace N % 10: a container costs as much as ten others.
WORKSPACES = (
    *("worktree", "clone", "directory", "worktree", "container"),
    *("worktree", "clone", "directory:copy", "worktree", "clone"),
)
LARGE = (200, 1000)
LONGEST = 1.8  # seconds for each kill, at most: a storm must have found its victims by then
BIRTH = 0.5  # seconds for which a kill waits for a keeper or an agent to be there
ALIVE = 0.15  # seconds, at most, from then to the kill
ENDS = 12  # supervisors after the storm, at most: each may leave some work to the next
SETTINGS = """\
[crash]
max_in_window = 100000
[lost]
max = 100000
[runs]
max = 100000
[retry]
base = "10ms"
[mass_death]
agents = 0
[checkpoint]
every = "1s"
"""


class Storm(Grounds):
    name = "storm"
    about = f"SIGKILL for supervisors, keepers and agents at random instants, {TASKS} tasks and {KILLS} kills each"
    USUAL = 10

    def prepare(self, root: Path) -> None:
        super().prepare(root)
        if why := why_not():
            print(f"NOT RUN: {self.name}: its tasks in containers: {why}", flush=True)

    def cases(self, scope: Scope, run: Run) -> Sequence[str]:
        chance = random.Random(scope.start_from_head)
        seeds = [str(chance.randrange(10**6)) for _ in range(scope.amount(self.USUAL, 10 * self.USUAL))]
        return [*seeds, "/".join(map(str, (chance.randrange(10**6), *LARGE)))] if scope.long else seeds

    def play(self, case: str) -> Played:
        began = time.monotonic()
        seed, tasks, wanted = map(int, case.split("/")) if "/" in case else (int(case), TASKS, KILLS)
        world = World(self._root / f"storm-{os.getpid()}-{seed}", self._root / "template", Case("storm"), self._broken)
        kills: Counter[str] = Counter()
        try:
            world.configure(SETTINGS)
            world.patience += tasks  # what the storm left of them takes its time, too
            try:
                _rage(world, random.Random(seed), kills, tasks, wanted)
                found = _rest(world, tasks)
            except Stuck as stuck:
                found = [f"loops: {stuck}"]
            log = world.log.read_text(errors="replace")[-4000:] if found and world.log.exists() else ""
            return Played(
                case,
                tuple(found),
                f"{kills.total()} of {wanted} kills" if kills.total() < wanted or len(kills) < len(_victims()) else "",
                weight=kills.total(),
                seconds=time.monotonic() - began,
                found=kills,
                log=log,
            )
        finally:
            world.close()


def _victims() -> list[str]:
    """Keepers only where somebody else can prove that what they leave is dead."""
    return ["supervisor", "agent", *(["keeper"] if has_cgroups() else [])]


def _rage(world: World, chance: random.Random, kills: Counter[str], tasks: int, wanted: int) -> None:
    """Kill, and start supervisors again, until there were enough kills."""
    inside = {} if why_not() else containers.settings(world)

    def add_all() -> None:
        os.environ.update(inside)  # what counts for containers only; the strategy is the task's own
        for number in range(tasks):
            workspace = WORKSPACES[number % len(WORKSPACES)]
            if workspace == "container" and not inside:
                workspace = "clone"
            script = _script(number, chance, containers if workspace == "container" else steps)
            new = NewTask(
                prompt=f"task {number}", directory=str(world.repo), command=("sh", "-c", script), workspace=workspace
            )
            world.acknowledge(Commands(str(world.home)).add(new).id)

    world.client("add", add_all)
    ups, deadline = 0, time.monotonic() + LONGEST * wanted
    while kills.total() < wanted and time.monotonic() < deadline:
        role = f"up-{ups}"
        if ups == 0 or not world.is_running(role):
            if not _unfinished(world):
                break
            ups += 1
            role = f"up-{ups}"
            world.start(role, agents=4)
        time.sleep(chance.random() * 0.12)
        _kill_one(world, role, chance, kills)
    for number in range(1, ups + 1):
        world.kill(f"up-{number}")


def _script(number: int, chance: random.Random, shell: ModuleType) -> str:
    """`shell` tells the witness: an agent in a container by its channel. Only where there is a git a commit is made."""
    script = str(shell.RAN + shell.write(f"first-{number}", f"first {number}")) + COMMIT.replace("\n", " || :\n")
    return script + f"sleep 0.{chance.randrange(10, 60)}\n" + str(shell.write(f"second-{number}", f"second {number}"))


def _unfinished(world: World) -> bool:
    try:
        return any(row["state"] != "completed" for row in Queries(str(world.home)).tasks(everything=True))
    except HoldfastError:
        return True


def _kill_one(world: World, role: str, chance: random.Random, kills: Counter[str]) -> None:
    kind = chance.choice(_victims())
    if kind == "supervisor":
        if world.is_running(role):
            world.kill(role)
            kills[kind] += 1
        return
    deadline = time.monotonic() + BIRTH
    while not living(world, kind) and world.is_running(role) and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(chance.random() * ALIVE)
    victims = living(world, kind)
    with contextlib.suppress(ProcessLookupError):
        if victims:
            os.kill(chance.choice(sorted(victims)), signal.SIGKILL)
            kills[kind] += 1


def living(world: World, kind: str) -> list[int]:
    """Keepers and agents of this world, by what their own records say, checked against the system."""
    found = []
    for path in (world.home / "runs").glob("*/pid.json"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            record = json.loads(path.read_bytes().rstrip(b"\0 \n"))
            who = record[kind]
            stat = Path(f"/proc/{who['pid']}/stat").read_bytes().rpartition(b")")[2].split()
            if int(stat[19]) == who["start"] and stat[0] != b"Z":
                found.append(int(who["pid"]))
    return found


def _rest(world: World, tasks: int) -> list[str]:
    """Supervisors until nothing is left to do; then the promises, and that one more changes nothing."""
    for number in range(ENDS):
        world.up(f"rest-{number}", agents=4)
        if not _unfinished(world):
            break
    before = fingerprint(str(world.home))
    world.up("last")
    after = fingerprint(str(world.home))
    world.gather()
    found = [f"loops: a second recovery changed {part}" for part in before if before[part] != after.get(part)]
    found += [] if why_not() else containers.nothing_left(world)
    found += [str(one) for one in violations(str(world.home), at_rest=True, witness=str(world.witness))]
    for row in Queries(str(world.home)).tasks(everything=True):
        if row["state"] != "completed":
            found.append(f"lost: {row['prompt']} ended {row['state']}: {row['reason']}")
    if len(world.acknowledged()) != tasks:
        found.append(f"lost: only {len(world.acknowledged())} of {tasks} tasks were acknowledged")
    return found
