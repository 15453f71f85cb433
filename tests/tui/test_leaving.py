"""A terminal that takes nothing more, and one that is gone without a word: `holdfast top` ends all the same."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest
from tests.fleet import PATIENCE, Fleet, wait_until


def _start(fleet: Fleet) -> tuple[subprocess.Popen[bytes], int]:
    """On a pty that is nobody's controlling terminal: its end sends no signal."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "top"],
        env={**fleet.env, "TERM": "xterm-256color"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    return process, master


def _draws(master: int, word: bytes) -> None:
    drawn, deadline = b"", time.monotonic() + PATIENCE
    while word not in drawn:
        assert time.monotonic() < deadline, f"it never draws {word!r}: {drawn[-500:]!r}"
        if select.select([master], [], [], 0.2)[0]:
            drawn += os.read(master, 65536)


@pytest.mark.parametrize("way", ["stalled", "gone"])
def test_it_ends_when_nobody_reads_what_it_draws(fleet: Fleet, way: str) -> None:
    """R-CRASH-10: `kill` works while its output is stuck; and when its terminal is gone, it does not stay."""
    task = fleet.queue("sleep 1000", prompt="write a poem")
    process, master = _start(fleet)
    try:
        _draws(master, task.encode())
        if way == "gone":
            os.close(master)
            master = -1
        else:
            # Drawn again until the pty is full and nobody reads; the keys that are left over wait in vain.
            for _ in range(200):
                os.write(master, b"\x0c")
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
        wait_until(lambda: process.poll() is not None, "it has ended")
        assert way == "gone" or process.returncode == 128 + signal.SIGTERM
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        if master >= 0:
            os.close(master)
