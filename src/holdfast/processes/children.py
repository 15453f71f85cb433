"""The supervisor's children: which are ours, and what a dead keeper left behind.

The supervisor is a child subreaper. Keepers and helpers are registered in the same breath as they are spawned, all on
the loop's thread, so a child that is not registered is a dead keeper's stray (or a helper's), and may be ended.
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
from holdfast.core.runs.liveness import Identity
from holdfast.processes.identity import identify, sight, signal_exactly
from holdfast.processes.open_files import has_open

PR_SET_CHILD_SUBREAPER = 36
NEWBORNS = 100  # a stray that forks and exits all the time: what it forked last has one of the next pids
OOM_SCORE = -500
TERM_PATIENCE = 0.25  # seconds that a helper has to tidy up; nothing else of ours runs meanwhile


class Children:
    """Spawns processes and remembers them. One per supervisor."""

    def __init__(self) -> None:
        self._known: dict[int, subprocess.Popen[bytes] | _Born] = {}
        self._spawned: set[Identity] = set()  # all that ever were ours: what they leave behind becomes our child

    def become_subreaper(self) -> bool:
        """Orphans of our descendants become our children from now on. False where the system cannot."""
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
        """Start a process in a session of its own; its pid. Blocks for the few milliseconds of the fork."""
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
        """A keeper that the cradle forked: our child by inheritance, and ours from the same moment as a spawned one."""
        self._known[pid] = _Born(pid)
        identity = identify(pid)
        if identity is not None and _parent(pid) == os.getpid():  # else what it leaves does not come to us
            self._spawned.add(identity)

    def find_stray(self, held: os.stat_result) -> int | None:
        """The child that nobody registered and that has that very file open, once it is in a session of its own."""
        while True:
            holders = [pid for pid in self.strays() if has_open(pid, held)]
            if not holders:
                return None
            for pid in holders:
                with contextlib.suppress(ProcessLookupError):
                    if os.getsid(pid) == pid:
                        return pid
            time.sleep(0.002)  # the one in the middle, which ends at once, or the keeper before its first step

    def owns(self, identity: Identity) -> bool:
        """Whether we spawned that very process, in this life of ours."""
        return identity in self._spawned

    def ended_well(self, identity: Identity) -> bool:
        """Whether a keeper did all it had to do, by its exit status: its records lie where the agent can write. One
        that is not our child is believed."""
        process = self._known.get(identity.pid)
        return process is None or not self.owns(identity) or process.poll() == 0

    def reap(self, identity: Identity) -> None:
        """Collect a child of ours that ended. Another process under a reused pid is left alone."""
        process = self._known.get(identity.pid)
        if process is not None and self.owns(identity) and process.poll() is not None:
            del self._known[identity.pid]

    def strays(self) -> list[int]:
        """Children that nobody registered."""
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and self._is_stray(int(name))]

    def _is_stray(self, pid: int) -> bool:
        return pid not in self._known and _parent(pid) == os.getpid()

    def end_strays(self, patience: float = 5.0) -> bool:
        """Kill and reap strays until none is left: True is the proof that every dead keeper's tree is empty.

        A stray's own children become ours when it dies, so "no stray child" means "no stray descendant".
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
                for near in range(pid + 1, pid + 1 + NEWBORNS):
                    if self._is_stray(near):
                        self._end_stray(near)
            time.sleep(0.002)  # a kill takes effect in microseconds; this loop runs only after a keeper was killed

    def end_strays_with(self, held: os.stat_result, patience: float = 5.0) -> None:
        """Kill and reap those that have that very file open: what a helper left, whatever it did to be forgotten."""
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
        if identity is not None and not sight(pid).zombie:
            signal_exactly(identity, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)

    def end_group_and_reap(self, pid: int) -> int:
        """End a helper that is still at work. TERM first: git then removes its lock files, which would stand in the
        way of the user's own git (and of ours) for ever. Blocks for milliseconds; the stubborn are killed."""
        faults.passed("helper.term")
        with contextlib.suppress(
            OSError
        ):  # gone, not ours to signal, out of descriptors: the KILL below ends it anyway
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
        """End a helper's whole process group, and wait until the kernel says that it is empty.

        The leader is not reaped before the group is signalled, so the group's number cannot belong to anyone else.
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
                os.waitpid(-pid, 0)  # members whose parent died are ours: we are a subreaper
        return code


class _Born:
    """A child that we did not start ourselves: waited for by its pid, which is its own until then."""

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
                self._code = 0  # reaped before it was taken in
            else:
                self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code


def protect_from_oom() -> None:
    """When memory is short the kernel should take agents (which raise their own score) before us. Needs privilege."""
    faults.passed("supervisor.protect")
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "r+b", buffering=0) as file:
        if int(file.read()) > OOM_SCORE:
            file.write(str(OOM_SCORE).encode())


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return -1  # gone, or hidden from us (hidepid): not our child. Any other error means "cannot tell"


def run_apart(work: Callable[[], None]) -> int | None:
    """None: the work was done here. A number: it was done in a child, which ended with that code."""
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
        pid, status = os.wait()  # strangers that became ours are collected too
        if pid == child:
            return abs(os.waitstatus_to_exitcode(status))
