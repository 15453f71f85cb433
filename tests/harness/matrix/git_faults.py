"""Faults of git itself: a shim in front of PATH lets the Nth call of a supervisor fail, hang or die.

They are written like all faults, with the point `git`: `success/up/git:7:hang`. Every call of a supervisor counts, the
agents' own do not. `leader@140` ends git at its 140th system call (`tracer`).
"""

from __future__ import annotations

import os
import random
import shlex
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.harness.matrix import tracer
from tests.harness.matrix.cases import GIT, Case, Fault

COUNT, MEASURE, FAIL, HANG, DIE, LATE = "count", "measure", "fail", "hang", "die", "late"
BEHAVIOURS = (FAIL, HANG, DIE, LATE)
VICTIMS = ("leader", "group", "leader-and-supervisor", "group-and-supervisor")
PHASES = ("add", "salvage", "removal")
TIMEOUT = 1.0  # a git that hangs is given up after this; tests have no five minutes
ROLE = "up"
RAN = "agent-ran"  # the file by which agents say that the workspace is made
_MANNERS = {
    FAIL: "echo 'fatal: the shim lets this call fail' >&2; exit 128",
    HANG: "trap '' TERM; exec sleep 1000",  # the worst of hanging: what is asked to end does not
    DIE: "kill -9 $$",
    LATE: '"$git" "$@"; kill -9 $$',
}


@dataclass(frozen=True, slots=True)
class Call:
    """One call of git in a run without faults: how many system calls it made."""

    number: int
    after_agent: bool
    instants: int
    words: str


def wants_many_files(case: Case) -> bool:
    """In a checkout of two files nearly every instant of git is its own start."""
    return any(fault.point == GIT and ("@" in fault.action or fault.action == MEASURE) for fault in case.faults)


def put_in_front(root: Path, case: Case, role: str, trace: Path) -> dict[str, str]:
    """The environment with which that role meets the shim; nothing for roles that the case leaves alone."""
    faults = [fault for fault in case.faults if fault.point == GIT and fault.role == role]
    if not faults:
        return {}
    folder = root / f"shim-{role}"
    folder.mkdir()
    shim = folder / "git"
    shim.write_text(_script(folder, root, faults, trace))
    shim.chmod(0o755)
    added = {"PATH": f"{folder}:{os.environ['PATH']}"}
    if any(fault.action == HANG for fault in faults):
        added["HOLDFAST_GIT_TIMEOUT"] = str(TIMEOUT)
    return added


def _script(folder: Path, root: Path, faults: Sequence[Fault], trace: Path) -> str:
    """No process but git itself is started: `true > file` with noclobber takes a number that nobody else has."""
    python = f"{shlex.quote(sys.executable)} -I -S {shlex.quote(tracer.__file__)}"
    counts = shlex.quote(str(root / "git-calls"))
    arms = ""
    for fault in faults:
        who, _, at = fault.action.partition("@")
        if fault.action == COUNT:
            continue
        if fault.action == MEASURE:
            flag = f"[ -e {shlex.quote(str(root / RAN))} ] && after=+ || after=-"
            arms += f'*) {flag}; exec {python} count "$after$n" {counts} "$git" "$@" ;;\n'
        elif at:
            arms += f'{fault.hit}) exec {python} {who} {at} {counts} "$git" "$@" ;;\n'
        else:
            arms += f"{fault.hit}) {_MANNERS[who]} ;;\n"
    return f"""#!/bin/sh
git={shlex.quote(shutil.which("git") or "git")} n=1
[ -z "$HOLDFAST_RUN_ID" ] || exec "$git" "$@"
set -C
while ! true > {shlex.quote(str(folder))}/call-$n; do n=$((n + 1)); done 2> /dev/null
set +C
echo "{GIT}:$n" >> {shlex.quote(str(trace))}
case $n in
{arms}esac
exec "$git" "$@"
"""


def calls(root: Path) -> tuple[Call, ...]:
    """What a case with `count` has noted."""
    try:
        lines = (root / "git-calls").read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return ()
    found = []
    for line in lines:
        number, instants, words = line.split(" ", 2)
        found.append(Call(abs(int(number)), int(number) > 0, int(instants), words))
    return tuple(sorted(found, key=lambda call: call.number))


def counting(scenario: str, *, instants: bool) -> Case:
    """A run without faults in which calls are counted, and the system calls of each if that is wanted."""
    return Case(scenario, (Fault(ROLE, GIT, 0, MEASURE if instants else COUNT),))


def misbehaving(scenario: str, reached: Iterable[tuple[str, int, bool]], behaviours: Sequence[str]) -> list[Case]:
    """Every call × every behaviour."""
    numbers = [hit for point, hit, _fails in reached if point == GIT]
    return [Case(scenario, (Fault(ROLE, GIT, number, how),)) for number in numbers for how in behaviours]


def phase_of(counted: Sequence[Call]) -> dict[str, list[Call]]:
    """Making the workspace, saving what is in it, removing it: told by the agent's run and by the last saved ref."""
    saved = max((call.number for call in counted if call.after_agent and _writes_ref(call)), default=0)
    found: dict[str, list[Call]] = {phase: [] for phase in PHASES}
    for call in counted:
        phase = "add" if not call.after_agent else "salvage" if call.number <= saved else "removal"
        found[phase].append(call)
    return found


def _writes_ref(call: Call) -> bool:
    return " update-ref " in call.words and " -d " not in call.words


def kills(scenario: str, counted: Sequence[Call], phase: str, count: int, pick: random.Random) -> list[Case]:
    """`count` instants, one in each equal part of all the system calls of that phase; victims in turn."""
    instants = [(call.number, at) for call in phase_of(counted)[phase] for at in range(1, call.instants + 1)]
    found = []
    for number in range(count if instants else 0):
        first, last = len(instants) * number // count, len(instants) * (number + 1) // count
        call, at = instants[pick.randrange(first, max(last, first + 1))]
        found.append(Case(scenario, (Fault(ROLE, GIT, call, f"{VICTIMS[number % len(VICTIMS)]}@{at}"),)))
    return found


def allowed(case: Case, states: tuple[str, ...]) -> tuple[str, ...]:
    """A git that refuses may fail the task; one that was killed, or did not answer, is tried again."""
    return (*states, "failed") if any(fault.action == FAIL for fault in case.faults) else states
