"""R-CRASH-10: `w` opens a shell in the task's workspace, in a real terminal; afterwards the screen is there again."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fleet import PATIENCE, Fleet


class Terminal:
    """`holdfast top` behind a pseudo terminal; what it writes is kept."""

    def __init__(self, fleet: Fleet, **variables: str) -> None:
        ours, its = pty.openpty()
        self.fd, self.text = ours, ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "top"],
            cwd=fleet.repo,
            env={**fleet.env, "TERM": "xterm", "LINES": "30", "COLUMNS": "100", **variables},
            stdin=its,
            stdout=its,
            stderr=its,
            start_new_session=True,
        )
        os.close(its)

    def read(self, seconds: float) -> None:
        if select.select([self.fd], [], [], seconds)[0]:
            try:
                self.text += os.read(self.fd, 65536).decode(errors="replace")
            except OSError:  # the other side is closed
                time.sleep(seconds)

    def until(self, fact: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not fact():
            if time.monotonic() > deadline:
                pytest.fail(f"this never became true: {what}\n{self.text[-3000:]!r}")
            self.read(0.05)

    def drain(self) -> None:
        """What it wrote last, before it ended."""
        with contextlib.suppress(OSError):  # the other side is closed, and nothing is left
            while select.select([self.fd], [], [], 0)[0] and (block := os.read(self.fd, 65536)):
                self.text += block.decode(errors="replace")

    def press(self, keys: str) -> None:
        os.write(self.fd, keys.encode())

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.fd)


def test_a_shell_in_the_workspace_and_back(fleet: Fleet) -> None:
    """R-CRASH-10, R-CLEAN-08: the shell has the terminal and is in the workspace, which is leased meanwhile; when it
    ends, or cannot be started, the screen comes back, keys work, and the terminal is left as it was."""
    task = fleet.queue("exec sleep 1000")
    fleet.up("--agents", 1)
    path = Path(fleet.wait_started(task)["workspace"]["path"])
    note, shell = fleet.root / "note", fleet.root / "shell"
    shell.write_text(
        f'#!/bin/sh\n[ -t 0 ] && [ -t 1 ] && pwd > "{note}"\nprintf "say: "; read word; echo "$word" >> "{note}"\n'
    )
    shell.chmod(0o755)
    terminal = Terminal(fleet, SHELL=str(shell))
    try:
        terminal.until(lambda: task in terminal.text and "Shell" in terminal.text, "the fleet is on screen")
        terminal.press("w")
        terminal.until(lambda: "say: " in terminal.text, "the shell asks")
        before, after = terminal.text.rsplit("The workspace of", 1)
        assert before.rfind("\x1b[?1049l") > before.rfind("\x1b[?1049h"), "the alternate screen was left"
        assert "is kept while you are in it" in after
        terminal.text = ""
        terminal.press("hello\n")
        terminal.until(lambda: "\x1b[?1049h" in terminal.text and task in terminal.text, "the screen is back")
        terminal.until(lambda: "The shell in the workspace" in terminal.text, "it is told that the shell ended")
        terminal.press("?")
        terminal.until(lambda: "Keys: fleet" in terminal.text, "keys work again")
        terminal.text = ""
        terminal.press("\r")
        terminal.until(lambda: task in terminal.text, "help is closed")
        shell.unlink()
        terminal.press("w")
        terminal.until(
            lambda: "Help" in terminal.text.partition("Set SHELL")[2], "the refusal, to the last line of keys"
        )
        terminal.text = ""
        terminal.press("\r")
        terminal.until(lambda: task in terminal.text, "the refusal is closed")
        terminal.press("q")
        terminal.until(lambda: terminal.process.poll() is not None, "q quits")
        terminal.drain()
    finally:
        terminal.close()
    assert note.read_text().split() == [str(path), "hello"]
    assert terminal.process.returncode == 0
    assert terminal.text.rfind("\x1b[?1049l") > terminal.text.rfind("\x1b[?1049h"), "the terminal is as it was"
    assert "Traceback" not in terminal.text
