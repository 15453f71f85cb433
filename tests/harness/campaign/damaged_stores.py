"""Stores that a power loss or a bad disk left: logs cut at every sector, bytes turned over anywhere.

What killing processes cannot show. A store of a real life is copied, damaged and used: it must open with a prefix of
what was acknowledged, or refuse in one line that names a way back; never a traceback, a hang, or a task run twice.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.harness.campaign.family import Played, Run, Scope
from tests.harness.mutations import Mutation

from holdfast.api.queries import Queries
from holdfast.base import clock
from holdfast.base.errors import HoldfastError, NotFound
from holdfast.base.ids import new_id
from holdfast.checker import violations as broken_promises
from holdfast.core.model import TaskSpec
from holdfast.store.sqlite.engine.store import SqliteStore

SECTOR = 512
TASKS = 40
PATIENCE = 90.0  # seconds in which a damaged store is opened or refused
DATABASE, LOG = "holdfast.db", "holdfast.db-wal"


def make_store(home: Path, *, log: bool) -> dict[str, int]:
    """A home whose tasks have histories: those acknowledged, in order, and how long the log was then. With `log`:
    everything is still in the log."""
    home.mkdir(mode=0o700)
    store = SqliteStore(str(home))
    acknowledged = {}
    repo = store.write(lambda tx: tx.workspaces.register_repo(str(home.parent), str(home.parent / ".git"), clock.now()))
    for number in range(TASKS):
        spec = TaskSpec(id=new_id(), repo_id=repo.id, prompt=f"task {number}", agent="scripted")
        added = store.write(lambda tx, spec=spec: tx.tasks.add(spec, clock.now()))  # type: ignore[misc]  # bound now
        acknowledged[added.id] = os.path.getsize(home / LOG)
        if number % 3 == 0:
            store.write(lambda tx, spec=spec: tx.tasks.cancel_waiting(spec.id, "campaign", "", clock.now()))  # type: ignore[misc]  # bound now
    if log:
        for name in (DATABASE, LOG):
            shutil.copyfile(home / name, home.parent / name)
    store.close()
    if log:  # as it was before the last connection wrote the log back
        for name in (DATABASE, LOG):
            os.replace(home.parent / name, home / name)
    return acknowledged


class Torn:
    """Bases of both families: a prepared home, copied for each case."""

    name = ""
    about = ""
    has_log = False
    looks_at = TASKS  # of its tasks, the last ones
    may_miss: tuple[type[Exception], ...] = ()

    def __init__(self, broken: str = "") -> None:
        self._broken = broken
        self._home, self._work = Path(), Path()
        self._acknowledged: list[str] = []
        self._in_log: dict[str, int] = {}

    def absent(self) -> str:
        return ""

    def prepare(self, root: Path) -> None:
        self._work = root / "work"
        self._work.mkdir()
        self._home = root / "made" / "home"
        self._home.parent.mkdir()
        self._in_log = make_store(self._home, log=self.has_log)
        self._acknowledged = list(self._in_log)

    def cases(self, scope: Scope, run: Run) -> Sequence[str]:
        raise NotImplementedError

    def play(self, case: str) -> Played:
        began = time.monotonic()
        place = Path(tempfile.mkdtemp(dir=self._work))
        try:
            home = place / "home"
            shutil.copytree(self._home, home)
            self.damage(home, case)
            return Played(case, tuple(self._use(home, case)), seconds=time.monotonic() - began)
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def damage(self, home: Path, case: str) -> None:
        raise NotImplementedError

    def _use(self, home: Path, case: str) -> list[str]:
        """In a process of its own: a damaged file may end it by SIGBUS or hang it, and that would be a finding."""
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read_end)
            code = 70
            try:
                Mutation(self._broken, home.parent / "mutant").apply()
                os.write(write_end, "\n".join(self._look(home, case)).encode()[:60_000])
                code = 0
            except BaseException as error:  # noqa: BLE001 - the finding itself
                os.write(write_end, f"silent: a traceback, {type(error).__name__}: {error}".encode()[:2000])
                code = 0
            finally:
                os._exit(code)
        os.close(write_end)
        return _told(pid, read_end)

    def _look(self, home: Path, case: str) -> list[str]:
        """What a command and a supervisor would do. Refusing is allowed, if it is said what to do."""
        try:
            store = SqliteStore(str(home), create=False)
        except HoldfastError as error:
            return [] if _says_what_to_do(str(error)) else [f"silent: refused without a remedy: {error}"]
        found = []
        try:
            queries = Queries(str(home))
            rows = queries.tasks(everything=True)
            for row in rows[-self.looks_at :]:
                with contextlib.suppress(*self.may_miss):
                    queries.task(row["id"])
            queries.events()
            queries.alerts()
            found += self.check([str(row["id"]) for row in rows], case)
            spec = (
                TaskSpec(id=new_id(), repo_id=str(queries.repos()[0]["id"]), prompt="after", agent="scripted")
                if rows
                else None
            )
            if spec is not None:
                store.write(lambda tx: tx.tasks.add(spec, clock.now()))
            found += self.check_sound(home, f"{len(rows)}-{queries.last_seq()}")
        except HoldfastError as error:
            if not _says_what_to_do(str(error)):
                found.append(f"silent: refused without a remedy: {error}")
        finally:
            try:
                store.close()
            except HoldfastError as error:
                if not _says_what_to_do(str(error)):
                    found.append(f"silent: refused without a remedy: {error}")
        return found

    def check(self, ids: list[str], case: str) -> list[str]:
        """Of what was read: no more than was ever acknowledged."""
        strangers = [task_id for task_id in ids if task_id not in self._acknowledged]
        return [f"lost: a task that nobody added: {strangers[0]!r}"] if strangers else []

    def check_sound(self, home: Path, prefix: str) -> list[str]:
        return []


def _says_what_to_do(words: str) -> bool:
    return any(
        word in words
        for word in ("holdfast restore", "backups", "holdfast doctor", "upgrade Holdfast", "holdfast init")
    )


def _told(pid: int, read_end: int) -> list[str]:
    deadline, told = time.monotonic() + PATIENCE, b""
    with os.fdopen(read_end, "rb", 0) as pipe:
        fd = os.pidfd_open(pid)
        try:
            import select

            poller = select.poll()
            poller.register(fd, select.POLLIN)
            if not poller.poll(max(0.0, deadline - time.monotonic()) * 1000):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return [f"loops: it was neither opened nor refused within {PATIENCE:.0f} s"]
        finally:
            os.close(fd)
        told = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status != 0:
        return [f"lost: the process ended with {status}"]
    return [line for line in told.decode(errors="replace").split("\n") if line]


class CutLogs(Torn):
    """The log ends at any sector: what opens is a prefix of what was acknowledged."""

    name = "cut-log"
    about = "the write-ahead log cut at every 512-byte boundary"
    has_log = True
    looks_at = 2  # what a cut can reach

    def cases(self, scope: Scope, run: Run) -> Sequence[str]:
        cuts = range(0, os.path.getsize(self._home / LOG) + SECTOR, SECTOR)
        wanted = scope.amount(len(cuts), len(cuts))
        return [str(cut) for cut in sorted(random.Random(scope.start_from_head).sample(cuts, wanted))]

    def damage(self, home: Path, case: str) -> None:
        size = os.path.getsize(home / LOG)
        os.truncate(home / LOG, min(int(case), size))

    def check(self, ids: list[str], case: str) -> list[str]:
        if ids != self._acknowledged[: len(ids)]:
            return [f"lost: {len(ids)} tasks, which are not the first {len(ids)} of those acknowledged"]
        whole = sum(end <= int(case) for end in self._in_log.values())
        return [f"lost: {len(ids)} tasks, but the log has {whole} as a whole"] if len(ids) < whole else []

    def check_sound(self, home: Path, prefix: str) -> list[str]:
        """Once for each prefix: the same commits are the same store, at whichever sector of the next one it was cut."""
        try:
            (self._work / f"sound-{prefix}").touch(exist_ok=False)
        except FileExistsError:
            return []
        return [str(found) for found in broken_promises(str(home), at_rest=False) if found.promise != "leaked"]


class TurnedBytes(Torn):
    """Bytes anywhere in the database file are not what was written. SQLite has no checksum of content: what is promised
    is a clear refusal or an answer, not that a changed letter is noticed."""

    name = "bad-bytes"
    about = "bytes of the database turned over, one per case"
    may_miss = (NotFound,)  # an id is content too: under the one in the table it is not in the index

    def cases(self, scope: Scope, run: Run) -> Sequence[str]:
        chance, size = random.Random(scope.start_from_head), os.path.getsize(self._home / DATABASE)
        head = [f"{offset}^255" for offset in range(100)]  # the header: each of its bytes
        wanted = scope.amount(900, size)
        if wanted >= size:
            return [f"{offset}^{chance.randrange(1, 256)}" for offset in range(size)]
        return head[: scope.amount(100, 100)] + [
            f"{chance.randrange(100, size)}^{chance.randrange(1, 256)}" for _ in range(wanted)
        ]

    def damage(self, home: Path, case: str) -> None:
        offset, _, mask = case.partition("^")
        with open(home / DATABASE, "r+b") as file:
            file.seek(int(offset))
            byte = file.read(1)[0]
            file.seek(int(offset))
            file.write(bytes([byte ^ int(mask)]))

    def check(self, ids: list[str], case: str) -> list[str]:
        return []  # an id is content too
