"""System calls that fail: strace lets the Nth fsync, fdatasync, rename or write of a command, a supervisor, a keeper,
or of every process that a supervisor starts, end with EIO, ENOSPC or EINTR.

After a failed fsync the kernel has forgotten what it could not write, and the next fsync says that all is well: whoever
syncs again without writing again takes for recorded what is not (fsyncgate). So beside the promises the trace is read:
no file gets its name, and no task is acknowledged, by data that could not be synced and was not written again.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.harness.campaign.family import Run, Scope
from tests.harness.campaign.fsync_order import Call, Synced, calls_of
from tests.harness.campaign.limited_process import (
    Ordeal,
    acknowledged,
    added,
    command,
    let_go_on,
    refusal,
    rest,
    said,
    tasks,
    unfinished,
)
from tests.harness.campaign.limited_process import add as add_unharmed
from tests.harness.matrix.steps import write
from tests.harness.matrix.world import World

ADD, UP, KEEPER, EVERY, CANCEL, BACKUP = "add", "up", "keeper", "every", "cancel", "backup"
SYNC, DATASYNC, RENAME, PWRITE, WRITE = "fsync", "fdatasync", "rename", "pwrite64", "write"
# Who, which call, and how many of them there are, about. What comes later than the last is not reached, and says so.
PLACES = {
    (ADD, DATASYNC): 19,
    (ADD, PWRITE): 350,
    (UP, DATASYNC): 12,
    (UP, PWRITE): 100,
    (KEEPER, SYNC): 4,
    (KEEPER, RENAME): 2,
    (KEEPER, PWRITE): 2,
    (EVERY, SYNC): 5,
    (EVERY, DATASYNC): 14,
    (EVERY, RENAME): 5,
    (CANCEL, DATASYNC): 4,
    (CANCEL, PWRITE): 100,
    (BACKUP, SYNC): 3,
    (BACKUP, DATASYNC): 14,
    (BACKUP, RENAME): 1,
    (BACKUP, WRITE): 30,
}
ERRORS = ("EIO", "EIO", "ENOSPC", "EINTR")
WORDS, PATIENT = "work on a bad disk", "wait on a bad disk"
STAY = 4.0
TRACED = f"{SYNC},{DATASYNC},{RENAME},renameat,renameat2,{PWRITE},{WRITE},unlink,unlinkat"


class Fsyncs(Ordeal):
    """A case is `who/call=ERROR@N`: the Nth such call of each thread (`up`: to the store; `every`: to anything)."""

    name = "fsync"
    about = "the Nth fsync, rename or write of commands, supervisors and keepers fails (strace)"
    USUAL = 14

    def absent(self) -> str:
        return Synced().absent()

    def cases(self, scope: Scope, run: Run) -> Sequence[str]:
        chance = random.Random(scope.start_from_head)
        every = {
            (who, call): [f"{who}/{call}={error}@{n}" for n in range(1, most + 1) for error in dict.fromkeys(ERRORS)]
            for (who, call), most in PLACES.items()
        }
        if scope.long:
            return [case for cases in every.values() for case in cases]
        places = chance.sample(list(every), len(every))
        picked = [places[number % len(places)] for number in range(scope.amount(self.USUAL))]
        return [chance.choice(every[place]) for place in picked]

    def undergo(self, world: World, case: str) -> tuple[list[str], str]:
        if missing := self.absent():
            return [f"silent: {missing}"], ""
        who, _, fault = case.partition("/")
        found = self._with_fault(world, who, _Fault(world, fault))
        calls = _read(world.root / "calls")
        missed = "" if any("(INJECTED)" in call.words for call in calls) else "no such call was made"
        found += _taken_for_recorded(calls)
        if who in (UP, EVERY, KEEPER) and unfinished(world):
            _settle(world)
        found += rest(world, [str(row["prompt"]) for row in tasks(world)], allowed=_ends(who))
        return found, missed

    def _with_fault(self, world: World, who: str, fault: _Fault) -> list[str]:
        script = write("first.txt", "first")
        if who == ADD:
            return _added(world, fault, script)
        found = add_unharmed(world, WORDS, script)
        if who in (UP, EVERY):
            store = [f"{world.home}/holdfast.db", f"{world.home}/holdfast.db-wal"]
            only = [word for path in store for word in ("-P", path)] if who == UP else []
            more = ["-f", "--seccomp-bpf", *only]
            world.begin(UP, fault.before("up", "--agents", "1", "--idle-exit", "0s", more=more))
            fault.wait_for(world)
            return found + let_go_on(world, UP, STAY)
        if who == KEEPER:
            return found + _kept(world, fault)
        if who == CANCEL:
            code, told = _commanded(world, who, fault.before("cancel", _id(world, WORDS), "--no-wait"))
            return found + (refusal(who, code, told) if code else _cancelled(world))
        archive = world.root / "archive.tar"
        code, told = _commanded(world, who, fault.before("backup", str(archive)))
        return found + (refusal(who, code, told) if code else _restorable(world, archive))


class _Fault:
    def __init__(self, world: World, word: str) -> None:
        self.trace = world.root / "calls"
        self._command = world.mutation.command
        call, _, how = word.partition("=")
        error, _, number = how.partition("@")
        self._inject = f"inject={call}:error={error}:when={number}"

    def words(self, *how: str) -> list[str]:
        quiet = ["-qq", "-y", "-s", "80", "-e", "signal=none", "-e", f"trace={TRACED}", "-e", self._inject]
        return ["strace", *how, *quiet, "-o", str(self.trace)]

    def wait_for(self, world: World) -> None:
        """Until it has happened, or the supervisor has ended without it: only from then on does it have to hurry."""
        world.wait_until(self._happened, "the call fails", while_running=UP)

    def _happened(self) -> bool:
        return self.trace.exists() and "(INJECTED)" in self.trace.read_text(errors="replace")

    def before(self, *words: str, more: Sequence[str] = ()) -> Callable[[], None]:
        """A process of the world, in an interpreter of its own; its threads and what it starts only if asked for."""
        how = ["-D", *more]

        def start() -> None:
            os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # its writing is nobody's loss
            os.execvp("strace", [*self.words(*how), *self._command, *words])

        return start


def _commanded(world: World, role: str, work: Callable[[], None]) -> tuple[int, str]:
    before = len(said(world))
    world.client(role, work)
    return world.wait(role), said(world)[before:]


def _added(world: World, fault: _Fault, script: str) -> list[str]:
    code, told = _commanded(world, ADD, fault.before(*added(WORDS, script)))
    found = acknowledged(world, WORDS, ADD, code, told)
    if not tasks(world):
        found += add_unharmed(world, WORDS, script, role="add-again")
    return found


def _kept(world: World, fault: _Fault) -> list[str]:
    """The keeper is at its work already: what it records when its agent ends meets the fault."""
    waiting = "touch $WORLD/working; until [ -e $WORLD/go-on ]; do sleep 0.02; done\n"
    found = add_unharmed(world, PATIENT, waiting + write("late.txt", "late"), role="add-patient")
    world.begin(UP, lambda: _be_supervisor(world))
    world.wait_until((world.root / "working").exists, "the agent works", while_running=UP)
    keeper = _keeper(world)
    with subprocess.Popen([*fault.words("-f"), "-p", str(keeper)], stderr=subprocess.DEVNULL) as strace:
        try:
            world.wait_until(lambda: _is_traced(keeper), "the keeper is traced", while_running=UP)
            (world.root / "go-on").touch()
            fault.wait_for(world)
            found += let_go_on(world, UP, STAY)
        finally:
            strace.terminate()
    return found


def _be_supervisor(world: World) -> None:
    os.execv(sys.executable, [*world.mutation.command, "up", "--agents", "2", "--idle-exit", "0s"])


def _keeper(world: World) -> int:
    """Of the patient task: the only one whose agent still works."""
    patient = next(row for row in tasks(world) if row["prompt"] == PATIENT)
    for run in (world.home / "runs").iterdir():
        try:
            intent, record = json.loads((run / "intent.json").read_text()), json.loads((run / "pid.json").read_text())
        except (OSError, ValueError):
            continue
        if os.path.basename(intent["cwd"]) == patient["id"]:
            return int(record["keeper"]["pid"])
    raise LookupError("the keeper of the patient task")


def _is_traced(pid: int) -> bool:
    try:
        return "TracerPid:\t0\n" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True  # it has ended: nothing is to be waited for


def _settle(world: World) -> None:
    world.up("settle")


def _cancelled(world: World) -> list[str]:
    row = next((row for row in tasks(world) if row["prompt"] == WORDS), None)
    return [] if row and row["state"] == "cancelled" else [f"lost: a cancel was acknowledged, and the task is {row}"]


def _restorable(world: World, archive: Path) -> list[str]:
    code, told = command(world, "restore", "restore", str(archive), "--yes")
    return [f"lost: a backup was acknowledged, and cannot be restored: {told[-200:]}"] if code else []


def _id(world: World, prompt: str) -> str:
    return next(str(row["id"]) for row in tasks(world) if row["prompt"] == prompt)


def _ends(who: str) -> tuple[str, ...]:
    return ("completed", "cancelled") if who == CANCEL else ("completed",)


def _read(trace: Path) -> list[Call]:
    try:
        lines = trace.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return []
    numbered = [line if line[:1].isdigit() else f"0 {line}" for line in lines]  # without threads it has no pids
    return sorted(calls_of(numbered), key=lambda call: call.done)


def _taken_for_recorded(calls: Sequence[Call]) -> Iterator[str]:
    """Whose sync failed, and who was renamed without having been written again."""
    doubtful: Counter[str] = Counter()
    for call in calls:
        path = _path(call)
        if "sync" in call.name:
            if "= -1" in call.words and "EINTR" not in call.words:  # that one has given up nothing yet
                doubtful[path] += 1
        elif "write" in call.name:
            doubtful.pop(path, None)
        elif call.name.startswith("unlink"):
            doubtful.pop(_named(call, 0), None)
        elif call.name.startswith("rename") and "= 0" in call.words:
            source = _named(call, 0)
            if any(name == source or os.path.basename(name) == source for name in doubtful):
                yield f"lost: {os.path.basename(_named(call, 1))} got its name, but its content could not be synced"


def _path(call: Call) -> str:
    match = re.match(r"\d+<([^>]*)>", call.words)
    return match[1] if match else ""


def _named(call: Call, number: int) -> str:
    words = re.findall(r'"([^"]*)"', call.words)
    return words[number] if len(words) > number else ""
