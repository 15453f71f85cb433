"""What is relied on is on disk first: one task, its system calls seen from outside by strace.

Only a machine that loses its power shows that an fsync is missing. What can be shown without one is their order: each
record is synced before it gets its name, its directory before whoever relies on it continues, and the store before it
says that a task is there. The file system is another's word: it has to do what fsync promises.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.harness.campaign.family import Played, Run, Scope
from tests.harness.campaign.shared_setup import Grounds
from tests.harness.mutations import Mutation

AGENT = ": the-agent-of-this-case"
CALLS = "openat,write,pwrite64,fsync,fdatasync,rename,renameat,renameat2,execve,exit_group"
LONGEST = 60.0  # seconds for a command under strace
# Each record, and what relies on it: a call, and a word in it (none: a call of the process that made the record).
RECORDS = {
    "owner.json": ("execve", "git"),
    "intent.json": ("openat", '"intent.json"'),
    "pid.json": ("execve", AGENT),
    "exit.json": ("rename", '"empty.json"'),
    "empty.json": ("exit_group", ""),
}
COMMIT = "commit"
_LINE = re.compile(r"(\d+) +(?:<\.\.\. \w+ resumed>(?P<rest>.*)|(?P<name>\w+)\((?P<words>.*))")
_UNFINISHED = " <unfinished ...>"


@dataclass(slots=True)
class Call:
    """A system call; `begun` and `done` are its places in the order of all."""

    pid: str
    name: str
    words: str
    begun: int
    done: int


class Synced(Grounds):
    name = "synced"
    about = "each record and each commit is synced before anybody relies on it (strace)"

    def absent(self) -> str:
        if not shutil.which("strace"):
            return "strace is not installed: a missing fsync would not be noticed"
        command = ["strace", "-f", "-e", "trace=none", "true"]
        tried = subprocess.run(command, capture_output=True, text=True, check=False)
        return f"strace may not trace here ({tried.stderr.strip()[:100]})" if tried.returncode else ""

    def cases(self, scope: Scope, run: Run) -> Sequence[str]:
        return [*RECORDS, COMMIT]

    def play(self, case: str) -> Played:
        if missing := self.absent():
            return Played(case, (f"silent: {missing}",))
        began, root = time.monotonic(), self._root / f"synced-{os.getpid()}-{case}"
        shutil.copytree(self._root / "template", root / "repo", symlinks=True)
        try:
            added = self._trace(root, "add", "be synced", "--", "sh", "-c", f"{AGENT}; echo done > done")
            if case == COMMIT:
                found = list(_commit(added))
            else:
                found = list(_record(self._trace(root, "up", "--idle-exit", "0s"), case))
        finally:
            shutil.rmtree(root, ignore_errors=True)  # our own, and the supervisor has ended
        return Played(case, tuple(found), seconds=time.monotonic() - began)

    def _trace(self, root: Path, *words: str) -> list[Call]:
        file = root / f"trace-{words[0]}"
        strace = [
            "strace",
            "-f",
            "-y",
            "-qq",
            "-s",
            "200",
            "-e",
            "signal=none",
            "-e",
            f"trace={CALLS}",
            "-o",
            str(file),
        ]
        environment = {**os.environ, "HOLDFAST_HOME": str(root / "home")}
        subprocess.run(
            [*strace, *Mutation(self._broken, root / "mutant").command, *words],
            cwd=root / "repo",
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=LONGEST,
        )
        return list(calls_of(file.read_text(errors="replace").splitlines()))


def calls_of(lines: Sequence[str]) -> Iterator[Call]:
    open_ones: dict[str, Call] = {}
    for number, line in enumerate(lines):
        if not (match := _LINE.match(line)):
            continue
        if match["name"] is None:
            if call := open_ones.pop(match[1], None):
                call.words += match["rest"]
                call.done = number
                yield call
        else:
            call = Call(match[1], match["name"], match["words"].removesuffix(_UNFINISHED), number, number)
            if match["words"].endswith(_UNFINISHED):
                open_ones[call.pid] = call
            else:
                yield call
    yield from open_ones.values()  # an exit, say: it never comes back


def _record(calls: Sequence[Call], record: str) -> Iterator[str]:
    named = [
        call for call in calls if call.name.startswith("rename") and re.search(rf'[/".]?{record}"[^"]*$', call.words)
    ]
    if not named:
        yield f"silent: no {record} was made"
    for rename in named:
        source = rename.words.split('"')[1]
        if not _is_synced(calls, os.path.basename(source) + ">", 0, rename):
            yield f"lost: {record} got its name before its content was synced"
        kind, word = RECORDS[record]
        relying = [
            call
            for call in calls
            if call.name == kind
            and call.begun > rename.done
            and (word in call.words if word else call.pid == rename.pid)
        ]
        if not relying:
            yield f"silent: nobody came to rely on {record}"
        elif not _folder_is_synced(calls, rename, relying[0]):
            yield f"lost: {record} was relied on before its directory was synced"


def _is_synced(calls: Sequence[Call], path: str, since: int, before: Call) -> bool:
    """Between the last write to it and `before`, by the same process."""
    mine = [call for call in calls if call.pid == before.pid and since <= call.begun < before.begun]
    files = [call for call in mine if path in call.words.split(",")[0]]
    writes = [call.done for call in files if "write" in call.name]
    return any(
        "sync" in call.name and call.done < before.begun and call.begun > max(writes, default=-1) for call in files
    )


def _folder_is_synced(calls: Sequence[Call], rename: Call, before: Call) -> bool:
    """The directory that the record is in: after the rename, before somebody relies on it."""
    folders = [
        call for call in calls if call.pid == rename.pid and rename.done < call.begun and call.done < before.begun
    ]
    target = rename.words.split('"')[3]
    within = os.path.dirname(target) if target.startswith("/") else ""
    return any("sync" in call.name and re.search(rf"{within or '/runs/[^/]+'}>\)", call.words) for call in folders)


def _commit(calls: Sequence[Call]) -> Iterator[str]:
    told = [call for call in calls if call.pid == calls[0].pid and call.name == "write" and call.words.startswith("1<")]
    if not told:
        yield "silent: the task's id was never printed"
    elif not _is_synced(calls, "holdfast.db-wal>", 0, told[0]):
        yield "lost: a task was acknowledged before the store was synced"
