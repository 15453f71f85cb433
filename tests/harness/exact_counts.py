"""What the life of a task costs, counted: git processes, operations of the store, SQL statements, syncs of records.

These numbers do not depend on the machine or on its load, so a test and `make bench-check` hold them exactly.

- git: a shim in front of PATH appends a line for each start.
- The store: `exact_counts.py FILE ARGUMENTS…` runs `holdfast` and appends a line for each operation, with its number
  of SQL statements. apsw's trace sees them. The product has no switch for that.
- Syncs: strace writes down each fsync. The path in it has the id of the task or of its run.

Counted is what happens for a task. The services look at the store whenever a clock or the doorbell wakes them, so
their operations are left out: how many there are is a matter of time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
_SERVICES = "run_on_home"  # the coroutine in which all services look at the store
_LOOKS = ("CleanupService._waiting",)  # repeated until nothing waits
_ROW = "row"
_OPTIONS = re.compile(r"(-c \S+|--no-pager) ")


class Counts(NamedTuple):
    """The numbers of one command, or of one task from its claim to its removed workspace."""

    git: int  # processes
    operations: int  # of the store
    writes: int  # operations that write: each is a synced transaction, unless others run at the same moment
    statements: int  # SQL
    syncs: int | None = None  # of files and directories beside the store. None: strace cannot tell


class Ledger(NamedTuple):
    """All counts, and the lines behind them for a message."""

    counts: dict[str, Counts]
    lines: dict[str, list[str]]


def strace_problem() -> str:
    """Return why strace cannot count here, or an empty string."""
    if not shutil.which("strace"):
        return "strace is not installed"
    tried = subprocess.run(["strace", "-f", "-e", "trace=none", "true"], capture_output=True, text=True, check=False)
    return f"strace may not trace here ({tried.stderr.strip()[:100]})" if tried.returncode else ""


class _Logs:
    """Where a shim of git and a counted process of Holdfast write what they do."""

    def __init__(self, folder: Path, path: str) -> None:
        folder.mkdir()
        self.git, self.store = folder / "git.log", folder / "store.log"
        shim = folder / "git"
        shim.write_text(
            f'#!/bin/sh\nprintf "%s\\n" "$(echo $*)" >> {self.git}\nexec {shutil.which("git", path=path)} "$@"\n'
        )
        shim.chmod(0o755)
        self.path = f"{folder}:{path}"
        self.command = [sys.executable, str(Path(__file__).resolve()), str(self.store)]

    def begin(self, row: str) -> None:
        for path in (self.git, self.store):
            with path.open("a") as log:
                log.write(f"{_ROW}\t{row}\n")


class Counter:
    """Counts what a fleet's commands and its supervisor do, row by row."""

    def __init__(self, fleet: Any) -> None:
        self._fleet = fleet
        self._commands, self._supervisor = (
            _Logs(fleet.root / name, fleet.env["PATH"]) for name in ("count-commands", "count-supervisor")
        )
        self._trace = fleet.root / "syncs.log"
        self._rows: dict[str, _Logs] = {}
        self._ids: dict[str, list[str]] = {}
        self._has_trace = False

    def add(self, row: str, *options: object, script: str = "true") -> str:
        """Count a command that queues a task. Return the task's id."""
        self._begin(row, self._commands)
        done = subprocess.run(
            [*self._commands.command, "add", "work", *map(str, options), "--json", "--", "sh", "-c", script],
            cwd=self._fleet.repo,
            env={**self._fleet.env, "PATH": self._commands.path},
            capture_output=True,
            check=True,
        )
        return str(json.loads(done.stdout)["id"])

    def run(self, row: str, *words: object) -> None:
        """Count any other command."""
        self._begin(row, self._commands)
        subprocess.run(
            [*self._commands.command, *map(str, words)],
            cwd=self._fleet.repo,
            env={**self._fleet.env, "PATH": self._commands.path},
            capture_output=True,
            check=True,
        )

    def play(self, row: str, *options: object, script: str = "true") -> str:
        """Count a task from its claim until its workspace is gone. Return its id."""
        self._begin(row, self._supervisor)
        task = self._fleet.add("work", *options, command=("sh", "-c", script))
        self._fleet.wait_state(task, "completed")
        self._fleet.wait_clean()
        self._ids[row] = [task, *(run["id"] for run in self._fleet.show(task)["runs"])]
        return str(task)

    @contextlib.contextmanager
    def supervisor(self, *, syncs: bool) -> Iterator[None]:
        """Run a supervisor that is counted. `syncs`: under strace."""
        self._has_trace = syncs
        trace = [
            "strace",
            "-f",
            "-y",
            "-qq",
            "-e",
            "signal=none",
            "-e",
            "trace=fsync,fdatasync",
            "-o",
            str(self._trace),
        ]
        self._begin("start", self._supervisor)
        with (self._fleet.root / "supervisor.log").open("ab") as log:
            process = subprocess.Popen(
                [*(trace if syncs else []), *self._supervisor.command, "up"],
                cwd=self._fleet.root,
                env={**self._fleet.env, "PATH": self._supervisor.path},
                stdout=log,
                stderr=log,
            )
        try:
            yield
        finally:
            self._begin("end", self._supervisor)
            pid = self._fleet.supervisor_pid()
            os.kill(process.pid if pid is None else pid, signal.SIGTERM)
            process.wait(timeout=120)

    def _begin(self, row: str, logs: _Logs) -> None:
        assert row not in self._rows, row
        self._rows[row] = logs
        logs.begin(row)

    def ledger(self) -> Ledger:
        """Return all counts. The supervisor has ended."""
        syncs = self._trace.read_text(errors="replace").splitlines() if self._has_trace else []
        counts, lines = {}, {}
        for row, logs in self._rows.items():
            git, operations = _by_row(logs.git)[row], [line.split("\t") for line in _by_row(logs.store)[row]]
            synced = [line for line in syncs if any(id_ in line for id_ in self._ids.get(row, ()))]
            counts[row] = Counts(
                git=len(git),
                operations=len(operations),
                writes=sum(int(wrote) for _name, wrote, _statements in operations),
                statements=sum(int(statements) for _name, _wrote, statements in operations),
                syncs=len(synced) if self._has_trace and row in self._ids else None,
            )
            lines[row] = [*(_OPTIONS.sub("", line) for line in git), *("\t".join(words) for words in operations)]
            lines[row] += [re.sub(r"^\d+ +", "", line) for line in synced]
        return Ledger(counts, lines)


NEW_FILE = "echo work > new.txt"


def measure(fleet: Any, *, syncs: bool) -> Ledger:
    """Count what `add` costs, then the life of one task of each kind, without a supervisor's first tasks."""
    counter = Counter(fleet)
    counter.add("add, first in a home")
    counter.add("add, worktree")
    counter.add("add, directory", "--workspace", "directory")
    with counter.supervisor(syncs=syncs):
        for strategy in ("worktree", "directory"):
            counter.play(f"first, {strategy}", "--workspace", strategy)
        for strategy in ("worktree", "directory"):
            counter.play(f"task, {strategy}, nothing changed", "--workspace", strategy)
            counter.play(f"task, {strategy}, a new file", "--workspace", strategy, script=NEW_FILE)
    found = counter.ledger()
    rows = [row for row in found.counts if row.startswith(("add", "task"))]
    return Ledger({row: found.counts[row] for row in rows}, {row: found.lines[row] for row in rows})


def _by_row(path: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in path.read_text(errors="replace").splitlines():
        word, _, row = line.partition("\t")
        if word == _ROW:
            lines = found.setdefault(row, [])
        else:
            lines.append(line)
    return found


# -- in the counted process --------------------------------------------------------------------------------------------


def _count_store(path: str) -> None:
    """Append a line for each operation of the store: its name, 1 if it wrote, and how many statements it ran."""
    import apsw

    from holdfast.store.sqlite.engine.group_commit import GroupWriter
    from holdfast.store.sqlite.engine.store import SqliteStore

    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    now = threading.local()

    def traced(event: dict[str, Any]) -> None:
        if not str(event["sql"]).startswith("--"):  # a trigger's statements are those of its table
            now.statements = getattr(now, "statements", 0) + 1

    apsw.connection_hooks.append(lambda connection: connection.trace_v2(apsw.SQLITE_TRACE_STMT, traced))

    def note(name: str, connection: apsw.Connection, before: int) -> None:
        wrote = connection.total_changes() > before
        os.write(log, f"{name}\t{int(wrote)}\t{now.statements}\n".encode())

    def is_counted(name: str) -> bool:
        with contextlib.suppress(RuntimeError):
            task = asyncio.current_task()
            coroutine = task.get_coro() if task is not None else None
            if getattr(coroutine, "__qualname__", "") == _SERVICES:
                return False
        return not name.startswith(_LOOKS)

    hand_in, own_write = GroupWriter.write, SqliteStore.write

    def write(self: Any, operation: Any, operation_id: str | None = None) -> Any:
        name = getattr(operation, "__qualname__", "") or getattr(operation, "func", operation).__qualname__
        if not is_counted(name):
            return hand_in(self, operation, operation_id)

        def counted(tx: Any) -> Any:
            before, now.statements = self._connection.total_changes(), 0
            try:
                return operation(tx)
            finally:
                note(name, self._connection, before)

        return hand_in(self, counted, operation_id)

    GroupWriter.write = write  # type: ignore[method-assign]

    def write_directly(self: Any, operation: Any, *arguments: Any, **options: Any) -> Any:
        before, now.statements = self._connection.total_changes(), 0
        try:
            return own_write(self, operation, *arguments, **options)
        finally:
            note(getattr(operation, "__qualname__", "operation"), self._connection, before)

    SqliteStore.write = write_directly  # type: ignore[method-assign]


def main(arguments: Sequence[str]) -> None:
    path, *words = arguments
    sys.path[0] = str(ROOT)  # instead of our own directory: here `tests` is found
    _count_store(path)
    from holdfast import __main__

    sys.argv = [__main__.__file__, *words]
    __main__.main()


if __name__ == "__main__":
    main(sys.argv[1:])
