"""An agent that notices a second one of its kind: `solo.py DIRECTORY SECONDS`. Standard library only.

It appends a line to DIRECTORY/ran, and holds an exclusive flock while it lives: whoever finds it taken appends to
DIRECTORY/overlap, which must never exist.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time


def main() -> None:
    folder, seconds = sys.argv[1], float(sys.argv[2])
    alone = os.open(os.path.join(folder, "alone"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        note(folder, "overlap")
    note(folder, "ran")
    go = os.path.join(folder, "go")
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not os.path.exists(go):
        time.sleep(0.01)


def note(folder: str, name: str) -> None:
    fd = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.write(fd, f"{os.environ.get('HOLDFAST_RUN_ID', '?')} {os.getpid()}\n".encode())
    os.close(fd)


if __name__ == "__main__":
    main()
