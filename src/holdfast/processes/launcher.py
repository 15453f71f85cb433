"""The launcher: starts agents under keepers, and finds the runs of an earlier supervisor again."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator

from holdfast.base import clock, faults
from holdfast.base.errors import LaunchError
from holdfast.base.files import data_lines
from holdfast.core.agents.stream import Stream
from holdfast.core.runs.liveness import Liveness, ProcessIdentity
from holdfast.core.runs.outcome import REBOOTED, Cause, ProcessEnd
from holdfast.processes import cgroups as groups
from holdfast.processes.agent_channel import ReportFile
from holdfast.processes.cgroups import CgroupRecord, HomeCgroups
from holdfast.processes.children import Children
from holdfast.processes.helpers import wait_readable
from holdfast.processes.identity import identify, life_of, open_pidfd, signal_exactly
from holdfast.processes.keeper_fork_client import KeeperForkClient, with_own_faults
from holdfast.processes.observe.observer import RunObserver
from holdfast.processes.open_files import children_of, command_line, has_open, processes_of_run, processes_with_open
from holdfast.processes.port import LaunchSpec
from holdfast.processes.run_dir import CHANNEL, RunDirectory, intent_of
from holdfast.processes.strays import StrayProcesses

KEEPER = os.path.join(os.path.dirname(__file__), "keeper.py")
LOOKS_BEFORE_SEARCH = 50
LOOK_AGAIN = 0.02  # seconds; while the lock is held but pid.json is missing, the keeper is about to write it


class KeeperProcesses(StrayProcesses):
    """The Processes port, implemented with keepers. `root` holds one directory per run."""

    def __init__(
        self, root: str, children: Children, cgroups: HomeCgroups | None = None, bases: CgroupRecord | None = None
    ) -> None:
        self._root = root
        self._bases = bases
        self._children = children
        self._cgroups = cgroups
        self._fork_client = KeeperForkClient(children)

    def launch(self, spec: LaunchSpec) -> KeeperRun:
        """Start a keeper for a run.

        Raise OSError for a temporary reason (disk full, out of descriptors). The run then stays recorded, but not
        started.
        """
        directory = RunDirectory(os.path.join(self._root, spec.run_id))
        directory.prepare(intent_of(spec, self._cgroups), spec.stdin, spec.files, spec.told)
        lock = directory.take_lock()
        if lock is None:
            raise LaunchError(f"Run {spec.run_id} has a keeper already; a second one is refused.")
        with contextlib.ExitStack() as closing, contextlib.ExitStack() as on_failure:
            closing.callback(os.close, lock)
            if directory.is_given_up():
                raise LaunchError(f"Run {spec.run_id} was given up by another supervisor and is not started any more.")
            ready_r, ready_w = os.pipe2(os.O_CLOEXEC)
            on_failure.callback(os.close, ready_r)
            closing.callback(os.close, ready_w)
            log = os.open(directory.file("keeper.log"), os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            closing.callback(os.close, log)
            faults.passed("keeper.locked")
            # The keeper inherits the lock, so a living keeper holds it at every moment.
            pid = self._start_keeper(directory, spec, lock, ready_w, log)
            on_failure.pop_all()
        return KeeperRun(directory, self._children, self._cgroups, identify(pid), ready_r)

    def _start_keeper(self, directory: RunDirectory, spec: LaunchSpec, lock: int, ready: int, log: int) -> int:
        """Return the pid of a new keeper: from the keeper fork server or, if that fails, started as a new process."""
        try:
            pid = self._fork_client.fork_keeper(directory.path, spec.env, lock, ready, log)
        except OSError:
            self._fork_client.close()
            # The server may have forked a keeper just before it failed, without an answer to us.
            born = self._children.find_stray(os.fstat(lock))
            if born is None:
                return self._spawn(directory, spec, lock, ready, log)
            pid = born
        self._children.take_in(pid)
        return pid

    def _spawn(self, directory: RunDirectory, spec: LaunchSpec, lock: int, ready: int, log: int) -> int:
        return self._children.spawn(
            [sys.executable, "-I", "-S", "-X", "utf8", KEEPER, directory.path, str(lock), str(ready)],
            cwd="/",
            env=with_own_faults(spec.env),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(lock, ready),
        )

    def close(self) -> None:
        """End the keeper fork server. Keepers stay with their agents."""
        self._fork_client.close()

    def find(self, run_id: str) -> KeeperRun:
        directory = RunDirectory(os.path.join(self._root, run_id))
        return KeeperRun(directory, self._children, self._cgroups, None, None)

    def is_held(self, run_id: str) -> bool:
        directory = RunDirectory(os.path.join(self._root, run_id))
        return directory.exists() and not directory.is_free()

    def sweep(self, open_runs: Iterable[str]) -> int:
        return self._bases.sweep(open_runs) if self._bases else 0

    def forget(self, run_id: str) -> None:
        directory = RunDirectory(os.path.join(self._root, run_id))
        faults.effect("rundir.forget")
        for name in (
            "control",
            "exit.json.room",
            "empty.json.room",
            "lock",
            "stdin",
            "intent.json.new",
            "pid.json.new",
            "reading.json",
            "reading.json.new",
        ):
            with contextlib.suppress(OSError):  # the agent may have put anything there: not worth an error
                os.unlink(directory.file(name))
        if self._cgroups is not None:
            self._cgroups.remove(run_id)  # they exist only if the keeper was killed before it could remove them
        faults.passed("rundir.forgotten")

    def observe(self, on_change: Callable[[str, bool], None]) -> RunObserver:
        return RunObserver(self._root, on_change)


class KeeperRun:
    """One run: a run directory, and perhaps a living keeper."""

    def __init__(
        self,
        directory: RunDirectory,
        children: Children,
        cgroups: HomeCgroups | None,
        keeper: ProcessIdentity | None,
        ready: int | None,
    ) -> None:
        self._directory = directory
        self._children = children
        self._cgroups = cgroups
        self._keeper = keeper
        self._ready = ready
        self._started = False
        self._handle: int | None = None  # the keeper's pidfd, while we wait for its end

    @property
    def keeper(self) -> ProcessIdentity | None:
        return self._keeper

    @property
    def agent(self) -> ProcessIdentity | None:
        identities = self._directory.identities()
        return identities[1] if identities else None

    async def wait_started(self) -> int | None:
        if self._ready is not None:
            await wait_readable(self._ready)
            told = os.read(self._ready, 32)  # the agent's pid; empty if the keeper died before it released the agent
            self._close_ready()
            if told:
                self._started = True
                return int(told)
        return await self._find_started()

    async def _find_started(self) -> int | None:
        """Return the agent's pid from the records of a dead supervisor's keeper, or None if no agent was started.

        The keeper may be running, starting up, or gone.
        """
        looks = 0
        while True:
            identities = self._directory.identities()
            if identities is not None and self._is_keeper(identities[0]):
                self._keeper = self._keeper or identities[0]
                self._started = True
                return identities[1].pid
            if self._has_no_keeper():
                return None
            looks += 1
            if looks % LOOKS_BEFORE_SEARCH == 0 and (agent := self._find_agent()) is not None:
                return agent
            await asyncio.sleep(LOOK_AGAIN)

    def _is_keeper(self, recorded: ProcessIdentity) -> bool:
        """True if the recorded process is this run's keeper.

        A living process must have the run's lock open. The agent can write records too, and a signal must never reach
        an unrelated process. The record of a dead process is accepted, because nothing is sent to that process.
        """
        if life_of(recorded) is not Liveness.ALIVE:
            return self._directory.is_free()  # while the lock is held, the keeper is another, living process
        try:
            return has_open(recorded.pid, os.stat(self._directory.file("lock")))
        except FileNotFoundError:
            return False

    def _find_agent(self) -> int | None:
        """Find keeper and agent without pid.json, by the process that has the run's lock open.

        The record may be unreadable (the agent can write there), or the keeper is slow to write it. The keeper's child
        runs the agent's program only after the keeper recorded and released the agent.
        """
        for pid in processes_with_open(os.stat(self._directory.file("lock"))):
            if os.fsencode(KEEPER) not in command_line(pid) or identify(pid) is None:
                continue
            for child in children_of(pid):
                if os.fsencode(KEEPER) not in command_line(child):
                    self._keeper = identify(pid)
                    self._started = True
                    return child
        return None

    def _has_no_keeper(self) -> bool:
        """True if no keeper lives or will wake. Takes the lock to check, then reads the records again."""
        if not self._directory.exists():
            return True
        return self._directory.is_free() and self._directory.identities() is None

    async def wait_ended(self) -> ProcessEnd:
        await self._wait_keeper_gone()
        if self._directory.exists() and not self._directory.is_free():
            raise OSError(errno.EBUSY, "its keeper still holds the run's lock")  # temporary: the caller tries again
        is_whole = self._keeper is None or self._children.exited_cleanly(self._keeper)
        if self._directory.is_empty() and is_whole:
            if self._directory.is_given_up():
                return ProcessEnd(cause=Cause.NEVER_STARTED)
            ending = self._directory.ending()
            return ending or ProcessEnd(cause=Cause.KEEPER_DIED, detail="it left no exit record")
        return await self._end_without_keeper()

    async def _wait_keeper_gone(self) -> None:
        if self._keeper is None:
            return
        fd = open_pidfd(self._keeper)
        if fd is None:
            return
        self._handle = fd
        try:
            await wait_readable(fd)
        finally:
            self._handle = None
            os.close(fd)

    async def _end_without_keeper(self) -> ProcessEnd:
        """End the tree of a keeper that was killed before it could prove the end, and prove as much as possible."""
        ended = await self._end_leaf()  # first, because it also kills processes that we may not signal
        swept = False
        if self._keeper is not None and self._children.has_started(self._keeper):
            self._children.reap(self._keeper)
            swept = self._children.end_strays()
        identities = self._directory.identities()
        if identities is None and not self._started:
            if not self._directory.give_up(clock.now().wall):
                raise OSError(errno.EBUSY, "another supervisor is about to start it")  # the caller tries again
            return ProcessEnd(cause=Cause.NEVER_STARTED)  # because of the go-pipe, an unrecorded agent never ran
        if not swept and self._directory.is_of_an_earlier_boot():
            return self._declare_proven(REBOOTED, "reboot")
        if ended:
            left = [] if swept else processes_of_run(self._directory.path)
            if left:  # a process may leave its cgroup if it may enter another one
                return ProcessEnd(cause=Cause.UNPROVEN, detail=f"pid {left[0]} left its cgroup and lives")
            return self._declare_proven("the supervisor ended its cgroup", "cgroup")
        if swept:
            return self._declare_proven("the supervisor ended what it left", "outer-subreaper")
        return ProcessEnd(cause=Cause.UNPROVEN, detail=f"keeper pid {self._keeper.pid if self._keeper else 'unknown'}")

    async def _end_leaf(self) -> bool:
        """End all processes in the run's cgroup leaf. True proves the leaf empty.

        False if the leaf is not ours: then nothing is ended and nothing is proven.
        """
        runs, run_id = os.path.split(self._directory.path)
        leaf = self._directory.leaf()
        if not groups.is_our_leaf(leaf, os.path.dirname(runs), run_id):
            return False
        ended = await groups.end_leaf(str(leaf), self._cgroups.base if self._cgroups else "")
        if ended and self._cgroups is not None:
            self._cgroups.remove(run_id)
        return ended

    def _declare_proven(self, detail: str, proof: str) -> ProcessEnd:
        known = self._directory.ending()  # the keeper wrote it when the leader ended, before the keeper was killed
        self._directory.declare_empty(proof, clock.now().wall)
        if known is not None:
            return known
        return ProcessEnd(cause=Cause.KEEPER_DIED, detail=detail)

    def stop(self, *, fast: bool) -> None:
        """Signal the keeper to end its tree. CONT follows, so that a stopped keeper obeys too."""
        if self._keeper is not None:
            faults.passed("keeper.stop")
            signal_exactly(self._keeper, signal.SIGTERM if fast else signal.SIGUSR1, signal.SIGCONT)

    def beat(self, incarnation: str) -> None:
        """Send the supervisor's heartbeat to the keeper. Skips a full or missing pipe: the next heartbeat is enough.

        CONT goes with the heartbeat, because an agent may stop its keeper, whose deadlines would stop too.
        """
        with contextlib.suppress(OSError):
            faults.effect("keeper.beat")
            if self._handle is not None:
                signal.pidfd_send_signal(self._handle, signal.SIGCONT)
            elif self._keeper is not None:
                signal_exactly(self._keeper, signal.SIGCONT)
            fd = os.open(self._directory.file("control"), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                os.write(fd, f"beat {time.monotonic():.3f} {incarnation}\n".encode())
            finally:
                os.close(fd)

    def output(self, stream: Stream = Stream.OUT) -> Iterator[str]:
        """Yield the agent's output so far line by line, because it may be larger than memory."""
        with contextlib.suppress(OSError):  # the agent removed or replaced the log: then there is no output
            yield from data_lines(self._directory.file(f"{stream}.log"))

    def note(self) -> str:
        return self._directory.note()

    def error_tail(self) -> str:
        return self._directory.tail("err.log")

    def left(self, name: str) -> str:
        return self._directory.left(name)

    def channel(self, offset: int) -> ReportFile:
        return ReportFile(self._directory.file(CHANNEL), self._directory.token(), offset)

    def close(self) -> None:
        """Close our descriptors, and reap the keeper if it was our child and has ended."""
        self._close_ready()
        if self._keeper is not None:
            self._children.reap(self._keeper)

    def _close_ready(self) -> None:
        if self._ready is not None:
            os.close(self._ready)
            self._ready = None
