"""A system that is not Linux, as well as one can have it on Linux: `python tests/darwin.py ARGUMENTS of holdfast`.

Takes Linux-only attributes away, calls the platform darwin and hides /proc and /sys, before anything of ours is
imported. With `--import-everything` it imports every module instead. No proof that macOS works, only of what we say
about it.
"""

from __future__ import annotations

import builtins
import ctypes
import fcntl
import io
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

ABSENT: dict[ModuleType, tuple[str, ...]] = {
    os: (
        *("pidfd_open", "P_PIDFD", "pipe2", "eventfd", "eventfd_read", "eventfd_write", "memfd_create", "waitid"),
        *("posix_fallocate", "posix_fadvise", "fdatasync", "copy_file_range", "splice", "getrandom"),
        *("setns", "unshare", "setresgid", "getresuid"),
        *("sched_getaffinity", "sched_setaffinity", "getxattr", "setxattr", "listxattr", "removexattr", "setresuid"),
        *("O_PATH", "O_TMPFILE", "O_DIRECT", "O_LARGEFILE", "O_NOATIME", "O_RSYNC"),
    ),
    signal: ("pidfd_send_signal", "sigtimedwait", "sigwaitinfo", "SIGRTMIN", "SIGRTMAX", "SIGPWR", "SIGPOLL"),
    select: ("epoll", "EPOLLIN", "EPOLLOUT", "EPOLLERR", "EPOLLHUP", "EPOLLPRI", "EPOLLET", "EPOLL_CLOEXEC"),
    time: ("CLOCK_BOOTTIME", "CLOCK_TAI"),
    socket: ("SOCK_CLOEXEC", "SOCK_NONBLOCK", "SO_PEERCRED", "SO_PASSCRED", "AF_NETLINK"),
    fcntl: ("F_SETPIPE_SZ", "F_GETPIPE_SZ", "F_OFD_SETLK", "F_OFD_SETLKW", "F_OFD_GETLK", "F_ADD_SEALS", "F_NOTIFY"),
    resource: ("prlimit",),
}
NOT_IN_LIBC = frozenset({"prctl", "pidfd_open", "inotify_init1", "inotify_add_watch", "openat2", "close_range"})
HIDDEN = ("/proc", "/sys")


def become_darwin() -> None:
    for module, names in ABSENT.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    sys.platform = "darwin"
    proxies = sys.modules["_scproxy"] = ModuleType("_scproxy")  # macOS has this one, and urllib.request asks it
    vars(proxies).update(_get_proxies=dict, _get_proxy_settings=dict)
    looking = {builtins: ("open",), io: ("open",), os: ("open", "listdir", "scandir", "readlink", "stat")}
    for place, names in looking.items():
        for name in names:
            setattr(place, name, _blind(getattr(place, name)))
    found = ctypes.CDLL.__getattr__

    def only_what_darwin_has(library: ctypes.CDLL, name: str) -> Any:
        if name in NOT_IN_LIBC:
            raise AttributeError(f"symbol not found: {name}")
        return found(library, name)

    ctypes.CDLL.__getattr__ = only_what_darwin_has  # type: ignore[method-assign]


def _blind(call: Callable[..., Any]) -> Callable[..., Any]:
    def looks(path: Any = ".", *arguments: Any, **options: Any) -> Any:
        named = os.fspath(path) if isinstance(path, str | bytes | os.PathLike) else ""
        word = os.fsdecode(named)
        if word in HIDDEN or word.startswith(tuple(f"{root}/" for root in HIDDEN)):
            raise FileNotFoundError(2, "No such file or directory", word)
        return call(path, *arguments, **options)

    return looks


def import_everything() -> None:
    import importlib
    import pkgutil

    import holdfast

    count = 0
    for module in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
        if not module.name.endswith(".__main__"):
            importlib.import_module(module.name)
            count += 1
    print(count)


if __name__ == "__main__":
    become_darwin()
    if sys.argv[1:] == ["--import-everything"]:
        import_everything()
    else:
        from holdfast.cli.main import run

        sys.exit(run(sys.argv[1:]))
