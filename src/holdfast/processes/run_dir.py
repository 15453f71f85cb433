"""The run directory: the files in which launcher, keeper and a later supervisor share what they know of one run.

intent.json holds all that a keeper needs to run the agent, and all that the next supervisor needs to adopt the run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import time
from collections.abc import Mapping
from typing import Any

from holdfast.base import clock, faults
from holdfast.base.files import open_log_file
from holdfast.base.text import one_line
from holdfast.core.runs.liveness import ProcessIdentity
from holdfast.core.runs.outcome import Cause, ProcessEnd
from holdfast.processes.agent_channel import NotRegularChannelFile, read_regular_file
from holdfast.processes.cgroups import HomeCgroups
from holdfast.processes.port import LaunchSpec

PROTOCOL = 1
ROOM = 4096
GIVEN_UP = "never started"  # the proof recorded for a run that was not started and will not be
BOOT_SLACK = 1.0  # seconds by which wall time and boot time may disagree
CHANNEL = "channel"  # a directory for what the agent writes to us; a container sees only this part of the run directory
MAX_LEFT_FILE = 1 << 20  # bytes of a file that the agent left for us
STDIN = "stdin"  # what the agent reads, usually the prompt
PROMPT = "prompt"  # the prompt that the agent got, if that is not its task's own prompt
FILES = f"{CHANNEL}/files"  # a directory with the agent's private settings for this run; a container sees it too
MOST_INTENT = 16 * 1024 * 1024  # bytes; a command line may have a few million
MOST_PID = 2**22  # the kernel's own limit
MOST_CODE, MOST_SIGNAL = 255, 64  # the kernel's own limits
MOST_DETAIL = 1000  # characters
_ENDLESS = ("out.log", "err.log", "keeper.log")


class RunDirectory:
    """One run's directory. The agent can write into it too, so no record is trusted without a check."""

    def __init__(self, path: str) -> None:
        self.path = path

    def file(self, name: str) -> str:
        return os.path.join(self.path, name)

    def prepare(
        self, intent: dict[str, object], stdin: str, files: Mapping[str, str] | None = None, told: str = ""
    ) -> None:
        """Write everything the keeper needs to disk, before the keeper is started. Repeatable after a crash."""
        faults.effect("rundir.make")
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        os.makedirs(self.file(CHANNEL), mode=0o700, exist_ok=True)
        faults.passed("rundir.made")
        for name in _ENDLESS:
            os.close(os.open(self.file(name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
        self._write(STDIN, stdin.encode())
        if told:
            self._write(PROMPT, told.encode())
        for name, text in (files or {}).items():
            os.makedirs(os.path.dirname(self.file(f"{FILES}/{name}")), mode=0o700, exist_ok=True)
            self._write(f"{FILES}/{name}", text.encode())
        for name in ("exit.json.room", "empty.json.room"):
            self._write(name, b" " * ROOM)
        if not os.path.exists(self.file("control")):
            os.mkfifo(self.file("control"), 0o600)
        self._write("intent.json.new", json.dumps({"protocol": PROTOCOL, **intent}, indent=1).encode(), is_record=True)
        self.intend()

    def intend(self) -> None:
        """Make intent.json visible and durable: from now on the run exists for the next supervisor too."""
        faults.effect("rundir.intend")
        os.rename(self.file("intent.json.new"), self.file("intent.json"))
        self._sync()
        faults.passed("rundir.intent")

    def take_lock(self) -> int | None:
        """Return the run's flock as a descriptor, or None while a keeper (or a launcher) holds the lock."""
        fd = os.open(self.file("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        return fd

    def is_free(self) -> bool:
        """True if no keeper lives or will wake: the run's lock can be taken."""
        lock = self.take_lock()
        if lock is None:
            return False
        os.close(lock)
        return True

    def exists(self) -> bool:
        return os.path.exists(self.file("intent.json"))

    def identities(self) -> tuple[ProcessIdentity, ProcessIdentity] | None:
        """Return (keeper, agent) as recorded in pid.json, or None without a valid record."""
        record = self._read("pid.json")
        if record is None:
            return None

        def one(name: str) -> ProcessIdentity:
            pid, start = int(record[name]["pid"]), int(record[name]["start"])
            if not 0 < pid <= MOST_PID or not 0 <= start < 2**63:
                raise ValueError("no process")
            return ProcessIdentity(boot_id=str(record["boot_id"]), pid=pid, start_ticks=start)

        try:
            return one("keeper"), one("agent")
        except (KeyError, TypeError, ValueError, OverflowError):
            return None

    def note(self) -> str:
        """Return what the keeper could not do for its agent. Bounded and only for display: the agent can write it."""
        record = self._read("pid.json")
        return one_line(str(record.get("note") or ""), 200) if record else ""

    def is_of_an_earlier_boot(self) -> bool:
        """True if the run's keeper was started before the last reboot.

        The proof needs both the boot id that the keeper recorded and the ctime of the record, which the kernel sets.
        """
        identities = self.identities()
        if identities is None or identities[0].boot_id == clock.boot_id():
            return False
        now = clock.now()
        return os.stat(self.file("pid.json")).st_ctime < now.wall - now.boottime + BOOT_SLACK

    def leaf(self) -> object:
        """Return the agent's cgroup leaf as recorded, or None. The caller must check that the leaf is ours."""
        record = self._read("pid.json")
        return record.get("leaf") or None if record else None

    def token(self) -> str:
        """Return the token that the reports of this run must carry.

        Empty when the record is missing or damaged: then no report is accepted.
        """
        token = self.registration().get("token")
        return token if isinstance(token, str) else ""

    def registration(self) -> dict[str, object]:
        """Return what was recorded before the agent was started (R-TERM-02). Empty when it is missing or damaged."""
        try:
            record = json.loads(read_regular_file(self.file("intent.json"), MOST_INTENT))
        except (NotRegularChannelFile, FileNotFoundError, ValueError, RecursionError):
            return {}
        return record if isinstance(record, dict) else {}

    def is_empty(self) -> bool:
        """True if empty.json exists: the proof that no process of this run is left."""
        return self._read("empty.json") is not None

    def ending(self) -> ProcessEnd | None:
        record = self._read("exit.json")
        if record is None:
            return None
        try:
            return ProcessEnd(
                cause=Cause(record["cause"]),
                code=_number(record["code"], MOST_CODE),
                signal=_number(record["signal"], MOST_SIGNAL),
                detail=one_line(str(record["detail"]), MOST_DETAIL),
                oom_kills=int(record.get("oom_kills", 0)),
                at=float(record["at"]) if "at" in record else None,
            )
        except (KeyError, TypeError, ValueError, OverflowError):
            return None  # not written by the keeper

    def declare_empty(self, proof: str, at: float) -> None:
        """Write empty.json in place of a dead keeper, when the supervisor itself has the proof."""
        faults.effect("rundir.declare")
        record = json.dumps({"proof": proof, "by": "supervisor", "at": at}).encode().ljust(ROOM)
        room = self.file("empty.json.room")
        if os.path.isfile(room) and not os.path.islink(room):
            with open(room, "r+b") as file:  # overwriting in place works on a full disk
                file.write(record)
                file.flush()
                os.fsync(file.fileno())
        else:
            self._rename_obstacle("empty.json.room")
            self._write("empty.json.room", record, is_record=True)
        if os.path.isdir(self.file("empty.json")):
            self._rename_obstacle("empty.json")
        os.rename(room, self.file("empty.json"))
        self._sync()
        faults.passed("rundir.empty")

    def give_up(self, at: float) -> bool:
        """Record that this run must not be started any more. False: a keeper or launcher holds the lock.

        The record is written under the run's lock, which every launcher holds. A supervisor that was suspended and
        replaced meanwhile may be about to start the run.
        """
        faults.effect("rundir.give_up")
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        lock = self.take_lock()
        if lock is None:
            return False
        try:
            self.declare_empty(GIVEN_UP, at)
        finally:
            os.close(lock)
        return True

    def is_given_up(self) -> bool:
        record = self._read("empty.json")
        return record is not None and record.get("proof") == GIVEN_UP and self.identities() is None

    def _rename_obstacle(self, name: str) -> None:
        """Rename whatever the agent put where a record belongs. It is kept under another name."""
        with contextlib.suppress(FileNotFoundError):
            os.rename(self.file(name), self.file(f"{name}.obstacle-{time.monotonic_ns()}"))

    def tail(self, name: str, limit: int = 2000) -> str:
        """Return the end of a log, for records and messages."""
        try:
            fd = open_log_file(self.file(name))
        except OSError:
            return ""
        try:
            size = os.fstat(fd).st_size
            return os.pread(fd, limit, max(0, size - limit)).decode(errors="replace")
        finally:
            os.close(fd)

    def left(self, name: str) -> str:
        """Return a file that the agent left in its channel, or "". Reads a bounded size and never blocks."""
        try:
            return read_regular_file(os.path.join(self.file(CHANNEL), name), MAX_LEFT_FILE).decode(errors="replace")
        except (OSError, NotRegularChannelFile):
            return ""

    def _read(self, name: str) -> dict[str, Any] | None:
        """Return a record, or None without a valid one. The agent may have overwritten it."""
        try:
            record = json.loads(read_regular_file(self.file(name), 2 * ROOM))
        except (FileNotFoundError, NotADirectoryError, NotRegularChannelFile, ValueError, RecursionError):
            return None  # any other error (for example out of descriptors) means "unknown", not "no record"
        return record if isinstance(record, dict) else None

    def _write(self, name: str, content: bytes, *, is_record: bool = False) -> None:
        """Write a file, in reserved space. `is_record`: a power cut must not lose it, so it is synced.

        The other files are for the keeper and its agent, and no process outlives a power cut.
        """
        faults.effect("rundir.file")
        fd = os.open(self.file(name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            if content:
                os.posix_fallocate(fd, 0, len(content))
            view = memoryview(content)
            while view:
                view = view[os.write(fd, view) :]
            if is_record:
                os.fsync(fd)  # raises: after a failure, the next sync would succeed although the content was lost
        finally:
            os.close(fd)

    def _sync(self) -> None:
        for folder in (self.path, os.path.dirname(self.path)):
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)


def _number(value: object, most: int) -> int | None:
    """Return a number of a keeper's record. ValueError if it is not one: the agent may have written the record."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most):
        raise ValueError("no such number")
    return value


def intent_of(spec: LaunchSpec, cgroups: HomeCgroups | None) -> dict[str, object]:
    """Return the content of intent.json, which is written before the keeper is started.

    The environment is left out: it may hold secrets, and the keeper inherits it. The token is included: it is valid
    only for this run, and the run's next supervisor needs it.
    """
    mask = os.umask(0o077)
    os.umask(mask)
    return {
        "run": spec.run_id,
        "argv": list(spec.argv),
        "cwd": spec.cwd,
        "timeout": spec.timeout,
        "grace": spec.grace,
        "fast_grace": spec.fast_grace,
        "orphan_grace": spec.orphan_grace,
        "umask": mask,
        "limits": dataclasses.asdict(spec.limits),
        "cgroup": cgroups.intent(spec.run_id, spec.limits) if cgroups else {},
        "ender": list(spec.ender),
        "token": spec.token,
        "metadata": {**spec.metadata, "prompt_file": PROMPT if spec.told else STDIN if spec.stdin else None},
    }
