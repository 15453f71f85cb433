"""A tree of processes that does not want to be found: `hostile_tree.py WITNESS READY [--plain|--stubborn|--many N]`.

Every member holds WITNESS open and ends by itself after LIFETIME seconds, whatever became of its manager. READY is
written when all of them run; it has the leader's pid.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

LIFETIME = "60"


def sleep(env: dict[str, str] | None = None) -> None:
    os.execvpe("sleep", ["sleep", LIFETIME], os.environ if env is None else env)


def own_group() -> None:
    os.setpgid(0, 0)
    sleep()


def daemon() -> None:
    os.setsid()
    sleep()


def double_fork() -> None:
    os.setsid()
    if os.fork():
        os._exit(0)
    sleep()


def term_ignorer() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # exec keeps it
    os.setsid()
    sleep()


def scrubbed() -> None:
    os.setsid()
    sleep({"PATH": os.environ.get("PATH", os.defpath)})


MEMBERS: dict[str, Callable[[], None]] = {
    "plain child": sleep,
    "own group": own_group,
    "setsid daemon": daemon,
    "double fork": double_fork,
    "TERM-ignorer": term_ignorer,
    "scrubbed environment": scrubbed,
}


def spawn(member: Callable[[], None], leaves: bool) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            member()
        finally:
            os._exit(127)
    if leaves:
        os.waitpid(pid, 0)  # its child is nobody's now


def main() -> None:
    witness, ready, *how = sys.argv[1:]
    fd = os.open(witness, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.set_inheritable(fd, True)
    if how[:1] == ["--stubborn"] or how[:1] == ["--many"]:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # inherited by all of them: only KILL ends this tree
    if how:
        for _ in range(int(how[1]) - 1 if how[0] == "--many" else 3):
            spawn(sleep, leaves=False)
    else:
        for member in MEMBERS.values():
            spawn(member, leaves=member is double_fork)
    with open(ready + ".new", "w", encoding="ascii") as file:
        file.write(str(os.getpid()))
    os.rename(ready + ".new", ready)
    sleep()


if __name__ == "__main__":
    main()
