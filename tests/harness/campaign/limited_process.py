"""What the families of bad circumstances share: a real world, commands as people type them, and how all comes to rest.

The processes are forked from a warm interpreter and go through the command line's own front door, so that what a person
would read is in the world's log: a traceback there is a violation, and so is a refusal without a word.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from tests.harness.campaign.family import Played, Run, Scope
from tests.harness.campaign.shared_setup import Grounds
from tests.harness.matrix.cases import Case
from tests.harness.matrix.steps import RAN
from tests.harness.matrix.world import PATIENCE, Stuck, World

from holdfast.api.queries import Queries
from holdfast.api.tasks.models import TaskRow
from holdfast.base.errors import HoldfastError
from holdfast.checker import fingerprint, violations
from holdfast.cli.main import COMMANDS, run

TRACEBACK = "Traceback (most recent call last)"
ENDS = 6  # supervisors afterwards, at most: each may leave some work to the next
TICKS = os.sysconf("SC_CLK_TCK")
SETTINGS = """\
[crash]
max_in_window = 1000
[lost]
max = 1000
[runs]
max = 1000
[retry]
base = "10ms"
[mass_death]
agents = 0
[breaker]
hold = "30ms"
max_hold = "60ms"
[checkpoint]
every = "1s"
"""


class Ordeal(Grounds):
    """A family whose cases each have a world of their own. `settings`: of its user."""

    name = ""
    about = ""
    settings = SETTINGS

    def prepare(self, root: Path) -> None:
        super().prepare(root)
        for module in {module for module, _help in COMMANDS.values()} - {"top"}:  # the screen is no part of this
            import_module(f"holdfast.cli.{module}")

    def cases(self, scope: Scope, run: Run) -> Sequence[str]:
        raise NotImplementedError

    def undergo(self, world: World, case: str) -> tuple[list[str], str]:
        """Play the case up to its rest: violations, and why the fault never happened."""
        raise NotImplementedError

    def end(self, world: World) -> None:
        """What only this family made in the world."""

    def play(self, case: str) -> Played:
        began = time.monotonic()
        name = f"{self.name}-{os.getpid()}-{time.monotonic_ns()}"
        world = World(self._root / name, self._root / "template", Case(self.name), self._broken)
        try:
            world.configure(self.settings)
            missed = ""
            try:
                found, missed = self.undergo(world, case)
            except Stuck as stuck:
                found = [f"loops: {stuck}"]
            log = said(world)
            if TRACEBACK in log:
                told = log[log.index(TRACEBACK) :].split("\n")
                ends = next((n for n, line in enumerate(told) if n and line and not line.startswith(" ")), 0)
                found.append(f"silent: a traceback, {told[ends][:200]}")
                log = "\n".join(told[: ends + 1])
            return Played(
                case, tuple(found), missed, seconds=time.monotonic() - began, log=log[-4000:] if found else ""
            )
        finally:
            with contextlib.suppress(OSError):
                self.end(world)
            world.close()


def said(world: World) -> str:
    """What the processes of this world told people."""
    return world.log.read_text(errors="replace") if world.log.exists() else ""


def holdfast(*words: str) -> None:
    """In a process of the world: a command, as the shell would start it."""
    code = run(list(words))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def command(world: World, role: str, *words: str) -> tuple[int, str]:
    """A command's exit code, and what it said."""
    before = len(said(world))
    world.client(role, lambda: holdfast(*words))
    return world.wait(role), said(world)[before:]


def add(world: World, prompt: str, script: str, *, role: str = "add") -> list[str]:
    """Queue a task by the command line: acknowledged means that it is there, and a refusal says something."""
    code, told = command(world, role, *added(prompt, script))
    return acknowledged(world, prompt, role, code, told)


def added(prompt: str, script: str) -> tuple[str, ...]:
    return ("add", prompt, "--", "sh", "-c", RAN + script)


def acknowledged(world: World, prompt: str, role: str, code: int, told: str) -> list[str]:
    """What is wrong with how a task was queued, or was not. The witness knows it from now on."""
    known = {str(row["prompt"]): str(row["id"]) for row in tasks(world)}
    if code == 0:
        if prompt not in known:
            return [f"lost: '{prompt}' was acknowledged, and is not there"]
        world.acknowledge(known[prompt])
        return []
    return refusal(role, code, told)


def refusal(role: str, code: int, told: str) -> list[str]:
    """What is wrong with how something was refused."""
    if code < 0:
        return [f"silent: {role} was ended by signal {-code}"]
    if "holdfast: " not in told and TRACEBACK not in told:
        return [f"silent: {role} ended with {code} and said nothing"]
    return []


def tasks(world: World) -> list[TaskRow]:
    if not (world.home / "holdfast.db").exists():
        return []
    try:
        return Queries(str(world.home)).tasks(everything=True)
    except HoldfastError:
        return []


def unfinished(world: World) -> bool:
    return any(row["state"] not in ("completed", "failed", "cancelled") for row in tasks(world))


def supervise(world: World, role: str, *, agents: int = 2) -> None:
    world.begin(role, lambda: holdfast("up", "--agents", str(agents), "--idle-exit", "0s"))


def let_go_on(world: World, role: str, patience: float) -> list[str]:
    """A supervisor in trouble: it ends by itself, or waits without working itself hot and can be told to end."""
    if not ended_within(world, role, patience):
        used = cpu_of(world.pid(role))
        world.signal(role, signal.SIGTERM)
        found = [f"loops: {role} used {used:.1f} s of CPU in {patience:.0f} s"] if used > 0.6 * patience else []
        if not ended_within(world, role, PATIENCE):
            world.kill(role)
            found.append(f"loops: {role} was told to end, and did not within {PATIENCE:.0f} s")
        return found
    code = world.wait(role)
    return [f"silent: {role} was ended by signal {-code}"] if code < 0 else []


def ended_within(world: World, role: str, patience: float) -> bool:
    deadline = time.monotonic() + patience
    while world.is_running(role):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def rest(world: World, expected: Sequence[str], *, allowed: Sequence[str] = ("completed",)) -> list[str]:
    """Supervisors until nothing is left to do; then the promises, and that one more changes nothing."""
    for number in range(ENDS):
        world.up(f"rest-{number}")
        if not unfinished(world):
            break
    before = fingerprint(str(world.home))
    world.up("last")
    after = fingerprint(str(world.home))
    found = [f"loops: a second recovery changed {part}" for part in before if before[part] != after.get(part)]
    found += [str(one) for one in violations(str(world.home), at_rest=True, witness=str(world.witness))]
    states = {str(row["prompt"]): row for row in tasks(world)}
    for prompt in expected:
        row = states.get(prompt, {"state": "missing", "reason": ""})
        if row["state"] not in allowed:
            found.append(f"lost: '{prompt}' ended {row['state']}: {row['reason']}")
    return found
