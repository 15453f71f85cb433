"""A hostile process tree for tests: everything that ever escaped a supervisor, in one agent. Standard library only.

`tree.py MARKS SECONDS LEADER [quiet]` is run by the `command` agent. The directory MARKS gets one file per kind of
member, and each member holds a shared flock on its file: the open description is inherited by whatever it forks or
execs, scrubbed environments included, and the kernel drops the lock with its last holder. So "the lock can be had" is
an exact proof that no process of that kind lives: no scan of /proc can miss a process that hops.

LEADER is `obey` or `ignore` (TERM). The leader ends by itself when MARKS/go says `exit` or `crash`. `quiet`: members
that would show activity (new children, CPU) wait with it until they are told to end.

MARKS/end is the test's way to be rid of those that nobody can catch: hoppers and watchdogs fork no more.

Safety: a kernel timer that sends SIGKILL ends every member after SECONDS (90 at most), stopped ones included.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import shutil
import signal
import struct
import sys
import time
from collections.abc import Callable

LONGEST = 90.0
HOP = 0.004
KINDS = (
    "plain",
    "group",
    "session",
    "daemon",
    "stubborn",
    "scrubbed",
    "hopper",
    "watchdogs",
    "stopped",
    "polite",
    "tmux",
    "pane",
    "leader",
)

_libc = ctypes.CDLL(None, use_errno=True)
_CLOCK_MONOTONIC, _SIGEV_SIGNAL = 1, 0


def die_at(deadline: float) -> None:
    """SIGKILL from the kernel at that moment of CLOCK_MONOTONIC. Not inherited by fork: every child arms its own."""
    left = min(LONGEST, max(0.001, deadline - time.monotonic()))
    event = struct.pack("@Qii48x", 0, signal.SIGKILL, _SIGEV_SIGNAL)
    timer = ctypes.c_void_p()
    if _libc.timer_create(_CLOCK_MONOTONIC, event, ctypes.byref(timer)) != 0:
        os._exit(99)
    when = struct.pack("@qqqq", 0, 0, int(left), int(left % 1 * 1e9))
    if _libc.timer_settime(timer, 0, when, None) != 0:
        os._exit(99)


class Tree:
    def __init__(self, marks: str, seconds: float, quiet: bool) -> None:
        self.marks = marks
        self.deadline = time.monotonic() + min(seconds, LONGEST)
        self.unbench = quiet

    def hold(self, kind: str) -> None:
        """Our mark: a descriptor that stays open whatever we become."""
        fd = os.open(os.path.join(self.marks, f"{kind}.lock"), os.O_RDWR | os.O_CREAT, 0o666)
        fcntl.flock(fd, fcntl.LOCK_SH)
        os.set_inheritable(fd, True)

    def member(self, kind: str, life: Callable[[], None]) -> None:
        if os.fork() == 0:
            try:
                die_at(self.deadline)
                self.hold(kind)
                life()
            finally:
                os._exit(0)

    def fork(self) -> int:
        if os.path.exists(os.path.join(self.marks, "end")):
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            die_at(self.deadline)
        return pid

    def linger(self) -> None:
        while time.monotonic() < self.deadline:
            time.sleep(1)

    # -- the kinds -----------------------------------------------------------------------------------------------

    def plain(self) -> None:
        self.linger()

    def group(self) -> None:
        os.setpgid(0, 0)
        self.linger()

    def session(self) -> None:
        os.setsid()
        self.linger()

    def daemon(self) -> None:
        """The classic double fork: its parent is dead, its session is its own, its directory is the root."""
        os.setsid()
        if self.fork() != 0:
            os._exit(0)
        os.chdir("/")
        self.linger()

    def stubborn(self) -> None:
        ignore_requests()
        self.linger()

    def scrubbed(self) -> None:
        """No environment, another directory, another name: nothing that a scan could go by."""
        ignore_requests()  # an ignored signal stays ignored over exec
        os.setsid()
        os.chdir("/")
        left = str(max(1, int(self.deadline - time.monotonic())))
        os.execve(shutil.which("sleep") or "/bin/sleep", ["[kworker/0:1]", left], {})

    def hopper(self) -> None:
        """Forks and exits every few milliseconds: whatever pid a scan saw is gone before it can be signalled."""
        os.setsid()
        if self.unbench:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            signal.sigtimedwait({signal.SIGTERM}, LONGEST)
        ignore_requests()
        while time.monotonic() < self.deadline:
            if self.fork() != 0:
                os._exit(0)
            time.sleep(HOP)

    def watchdogs(self) -> None:
        """Two that watch each other and restart whoever died. Each generation is a new session."""
        ignore_requests()
        parent = os.getpid()
        child = self.fork()
        while time.monotonic() < self.deadline:
            os.setpgid(0, 0)
            if child != 0:
                os.waitpid(child, 0)
            else:
                wait_for_end(parent)
                parent = os.getpid()
            child = self.fork()

    def stopped(self) -> None:
        os.setsid()
        while True:
            os.kill(os.getpid(), signal.SIGSTOP)  # and again whenever somebody continues it

    def polite(self) -> None:
        """Stopped, but it would tidy up if it were told: TERM reaches it only if CONT follows."""
        told = os.path.join(self.marks, "polite.told")

        def tidy_up(_number: int, _frame: object) -> None:
            os.close(os.open(told, os.O_CREAT | os.O_WRONLY, 0o644))
            os._exit(0)

        signal.signal(signal.SIGTERM, tidy_up)
        os.setsid()
        os.kill(os.getpid(), signal.SIGSTOP)
        self.linger()

    def tmux(self) -> None:
        """A server of its own: it daemonizes and keeps our descriptor; its pane holds a mark of its own."""
        left = str(self.deadline - time.monotonic())
        pane = [sys.executable, "-I", "-S", os.path.abspath(__file__), self.marks, left, "pane"]
        socket = os.path.join(self.marks, "server")  # tmux itself locks SOCKET.lock: it must not be one of our marks
        words = ["timeout", "-s", "KILL", "30", "tmux", "-S", socket, "-f", "/dev/null", "new-session", "-d", *pane]
        os.execvp(words[0], words)

    def lead(self, obey: bool) -> None:
        if not obey:
            ignore_requests()
        die_at(self.deadline)
        for kind in KINDS:
            if kind not in ("pane", "leader") and (kind != "tmux" or shutil.which("tmux")):
                self.member(kind, getattr(self, kind))
        print("all members are planted", flush=True)  # a first sign of life; without one the start-up rule would hold
        self.hold("leader")  # the last, so that no member inherits it
        go = os.path.join(self.marks, "go")
        while time.monotonic() < self.deadline and not os.path.exists(go):
            time.sleep(0.02 if not self.unbench else 0.2)
        with open(go, encoding="ascii") as file:
            if file.read() == "crash":
                os.kill(os.getpid(), signal.SIGSEGV)
        sys.exit(0)


def ignore_requests() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)


def wait_for_end(pid: int) -> None:
    """Of a process that is not our child, at no cost."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ended = select.poll()
        ended.register(fd, select.POLLIN)
        ended.poll(LONGEST * 1000)
    finally:
        os.close(fd)


def main() -> None:
    tree = Tree(sys.argv[1], float(sys.argv[2]), quiet="quiet" in sys.argv[4:])
    if sys.argv[3] == "pane":
        ignore_requests()
        die_at(tree.deadline)
        tree.hold("pane")
        tree.linger()
    else:
        tree.lead(obey=sys.argv[3] == "obey")


if __name__ == "__main__":
    main()
