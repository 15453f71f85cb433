"""The supervisor's children: those that it started, and the strays that dead keepers left behind.

The supervisor is a child subreaper. Keepers and helpers are registered directly after they are started, all on the
loop's thread. So a child that is not registered is a stray of a dead keeper (or of a helper), and may be killed.

That holds only if the supervisor starts without children. `sh -c 'daemon & exec holdfast up'` gives it a foreign child,
and process 1 of a container inherits every orphan. In both cases `run_without_foreign_children` runs the supervisor in
a forked child, and the original process stays behind as the parent of the foreign children.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

from holdfast.base import faults
from holdfast.core.runs.liveness import ProcessIdentity
from holdfast.processes.identity import identify, read_process, signal_exactly
from holdfast.processes.open_files import has_open

PR_SET_CHILD_SUBREAPER = 36
PIDS_TO_CHECK = 100  # the newest child of a stray that constantly forks and exits has one of the next pids
OOM_SCORE = -500
TERM_PATIENCE = 0.25  # seconds that a helper has to clean up; the supervisor's loop is blocked meanwhile


class Children:
    """The register of the processes that the supervisor started. One per supervisor."""

    def __init__(self) -> None:
        self._known: dict[int, subprocess.Popen[bytes] | _ForkedChild] = {}
        self._spawned: set[ProcessIdentity] = (
            set()
        )  # all that we ever started: the processes they leave become our children

    def become_subreaper(self) -> bool:
        """Make orphans of our descendants our children from now on. False if the system cannot do that."""
        try:
            return bool(ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
        except (OSError, AttributeError):
            return False

    def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        stdin: int,
        stdout: int,
        stderr: int,
        pass_fds: Sequence[int] = (),
    ) -> int:
        """Start a process in a session of its own and return its pid. Blocks for the few milliseconds of the fork."""
        faults.effect("process.spawn")
        process = subprocess.Popen(
            list(argv),
            cwd=cwd,
            env=dict(env),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=tuple(pass_fds),
            start_new_session=True,
        )
        self._known[process.pid] = process
        identity = identify(process.pid)
        if identity is not None:
            self._spawned.add(identity)
        faults.passed("process.spawned")
        return process.pid

    def take_in(self, pid: int) -> None:
        """Register a keeper that the keeper fork server forked. It is our child: we are the nearest subreaper."""
        self._known[pid] = _ForkedChild(pid)
        identity = identify(pid)
        if identity is not None and _parent(pid) == os.getpid():  # else its orphans do not become our children
            self._spawned.add(identity)

    def find_stray(self, held: os.stat_result) -> int | None:
        """Return the unregistered child that has that file open, once the child is in a session of its own."""
        while True:
            holders = [pid for pid in self.strays() if has_open(pid, held)]
            if not holders:
                return None
            for pid in holders:
                with contextlib.suppress(ProcessLookupError):
                    if os.getsid(pid) == pid:
                        return pid
            # Either the process between fork server and keeper, which ends at once, or a keeper before its setsid().
            time.sleep(0.002)

    def has_started(self, identity: ProcessIdentity) -> bool:
        """True if this supervisor process started exactly that process."""
        return identity in self._spawned

    def exited_cleanly(self, identity: ProcessIdentity) -> bool:
        """True if a keeper finished all its work, according to its exit status. True also if it is not our child.

        The keeper's records are not enough, because the agent can write them.
        """
        process = self._known.get(identity.pid)
        return process is None or not self.has_started(identity) or process.poll() == 0

    def reap(self, identity: ProcessIdentity) -> None:
        """Reap a child of ours that ended. Another process with a reused pid is left alone."""
        process = self._known.get(identity.pid)
        if process is not None and self.has_started(identity) and process.poll() is not None:
            del self._known[identity.pid]

    def strays(self) -> list[int]:
        """Return the children that are not registered."""
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and self._is_stray(int(name))]

    def _is_stray(self, pid: int) -> bool:
        return pid not in self._known and _parent(pid) == os.getpid()

    def end_strays(self, patience: float = 5.0) -> bool:
        """Kill and reap strays until none is left. True proves that every dead keeper's tree is empty.

        A stray's own children become ours when the stray dies, so "no stray child" means "no stray descendant".
        """
        deadline = time.monotonic() + patience
        while True:
            strays = self.strays()
            if not strays:
                return True
            if time.monotonic() > deadline:
                return False
            faults.passed("strays.end")
            for pid in strays:
                self._end_stray(pid)
                for near in range(pid + 1, pid + 1 + PIDS_TO_CHECK):
                    if self._is_stray(near):
                        self._end_stray(near)
            # Blocking is acceptable: a kill takes microseconds, and this loop runs only after a keeper was killed.
            time.sleep(0.002)

    def end_strays_with(self, held: os.stat_result, patience: float = 5.0) -> None:
        """Kill and reap the strays that have that file open: what a helper left, even if it tried to hide."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            left = [pid for pid in self.strays() if has_open(pid, held)]
            if not left:
                return
            for pid in left:
                self._end_stray(pid)
            time.sleep(0.002)

    def _end_stray(self, pid: int) -> None:
        identity = identify(pid)
        if identity is not None and not read_process(pid).zombie:
            signal_exactly(identity, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)

    def end_group_and_reap(self, pid: int) -> int:
        """End a helper that is still running, and return its exit code. Blocks for at most TERM_PATIENCE.

        TERM first: git then removes its lock files, which would block the user's own git (and ours) for ever. A helper
        that ignores TERM is killed.
        """
        faults.passed("helper.term")
        # Gone, we may not signal it, or out of descriptors: in each case the KILL below ends the helper.
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGTERM)
            handle = os.pidfd_open(pid)
            try:
                ended = select.poll()  # not select(), which refuses descriptors above 1023
                ended.register(handle, select.POLLIN)
                ended.poll(TERM_PATIENCE * 1000)
            finally:
                os.close(handle)
        return self.kill_group_and_reap(pid)

    def kill_group_and_reap(self, pid: int) -> int:
        """Kill a helper's whole process group, and wait until the kernel reports it empty. Return the exit code.

        The leader is not reaped before the group is signalled, so the group's number cannot belong to other processes.
        """
        process = self._known[pid]
        faults.passed("helper.end")
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        code = process.wait()
        del self._known[pid]
        self._spawned = {identity for identity in self._spawned if identity.pid != pid}  # helpers leave nothing
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-pid, 0)  # orphans of the group are our children: we are a subreaper
        return code


class _ForkedChild:
    """A child that we did not start ourselves. Its pid cannot be reused before we wait for the child."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        return self._wait(os.WNOHANG)

    def wait(self) -> int:
        code = self._wait(0)
        assert code is not None  # waited without WNOHANG
        return code

    def _wait(self, options: int) -> int | None:
        if self._code is None:
            try:
                pid, status = os.waitpid(self._pid, options)
            except ChildProcessError:
                self._code = 0  # reaped before it was registered
            else:
                self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code


def protect_from_oom() -> None:
    """Lower our out-of-memory score, so that the kernel kills agents before the supervisor. This needs privilege.

    Agents raise their own score.
    """
    faults.passed("supervisor.protect")
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "r+b", buffering=0) as file:
        if int(file.read()) > OOM_SCORE:
            file.write(str(OOM_SCORE).encode())


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return -1  # gone, or hidden from us (hidepid): not our child. Any other error means "unknown" and is raised


def run_without_foreign_children(work: Callable[[], None]) -> int | None:
    """Run `work` in a process without foreign children.

    None: this process ran the work. A number: a new child ran the work and ended with that exit code.
    """
    if os.getpid() != 1 and not Children().strays():
        work()
        return None
    faults.passed("domain.fork")
    child = os.fork()
    if child == 0:
        work()
        return None
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda sent, _frame: os.kill(child, sent))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the child as well
    while True:
        pid, status = os.wait()  # reaps foreign children too
        if pid == child:
            return abs(os.waitstatus_to_exitcode(status))
