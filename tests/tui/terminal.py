"""`holdfast top` in a real terminal: tmux draws it, keys go through a pty, and what a person would see is read back.

Each terminal has a tmux server of its own, on a socket of its own, and a shell that survives what runs in it.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.fleet import PATIENCE, Fleet, lives, wait_until

PROMPT = "ready>"
needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


class Terminal:
    """`term` is what programs in it are told that they have; tmux itself understands them all."""

    def __init__(self, fleet: Fleet, *, columns: int, lines: int, term: str, env: Mapping[str, str]) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="hf-tmux-"))  # a socket's path must be short
        self._env = {**fleet.env, **env}
        self._term = term
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(lines), "-c", str(fleet.repo))
        self.server = int(self._tell("#{pid}"))
        self.shell = int(self._tell("#{pane_pid}"))
        self.tty = self._tell("#{pane_tty}")

    def _tmux(self, *arguments: str) -> str:
        command = ["tmux", "-S", str(self._folder / "s"), *arguments]
        if "new-session" in arguments:
            command += [f"exec env -u COLORTERM -u TMUX -u TMUX_PANE TERM={self._term} PS1='{PROMPT} ' sh"]
        done = subprocess.run(command, env=self._env, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def _tell(self, words: str) -> str:
        return self._tmux("display-message", "-p", words).strip()

    # -- what a person does --------------------------------------------------------------------------------------------

    def type(self, line: str) -> None:
        self._tmux("send-keys", "-l", line)
        self._tmux("send-keys", "Enter")

    def press(self, *keys: str) -> None:
        """Keys by tmux's names: Enter, Escape, C-c, Down, and letters."""
        self._tmux("send-keys", *keys)

    def resize(self, columns: int, lines: int) -> None:
        self._tmux("resize-window", "-x", str(columns), "-y", str(lines))

    def top(self, *arguments: str) -> int:
        """Start `holdfast top` in the shell's foreground, by its absolute name; its pid."""
        self.type(f"{shlex.quote(sys.executable)} -m holdfast top {' '.join(arguments)}; echo ended: $?")
        return int(wait_until(self._children, "the shell has started it")[0])

    def _children(self) -> list[str]:
        return Path(f"/proc/{self.shell}/task/{self.shell}/children").read_text().split()

    # -- what a person sees --------------------------------------------------------------------------------------------

    def text(self, *, colours: bool = False) -> str:
        """What is on the screen; with `colours` the escape sequences that draw it."""
        return self._tmux("capture-pane", "-p", *(("-e",) if colours else ()))

    def until_seen(self, *words: str, patience: float = PATIENCE) -> str:
        deadline = time.monotonic() + patience
        while True:
            text = self.text()
            if all(word in text for word in words):
                return text
            if time.monotonic() > deadline:
                pytest.fail(f"these are never on the screen together: {words}\n{text}")
            time.sleep(0.05)

    def until_line(self, pattern: str) -> str:
        """Until a line has it: words that are in the banner too do not say which screen it is."""
        return wait_until(
            lambda: next((line for line in self.text().splitlines() if re.search(pattern, line)), ""),
            f"a line matches {pattern}",
        )

    def take_clipboard(self) -> None:
        """Let tmux take what programs in it send by OSC 52."""
        self._tmux("set-option", "-s", "set-clipboard", "on")

    def clipboard(self) -> str:
        return self._tmux("show-buffer")

    def title(self) -> str:
        return self._tell("#{pane_title}")

    def size(self) -> tuple[int, int]:
        columns, lines = self._tell("#{pane_width} #{pane_height}").split()
        return int(columns), int(lines)

    def modes(self) -> dict[str, bool]:
        """What a program may leave behind in a terminal, and must not."""
        names = ("alternate_on", "cursor_flag", "mouse_any_flag", "wrap_flag", "keypad_flag")
        said = self._tell(" ".join(f"#{{{name}}}" for name in names)).split()
        return {name: flag == "1" for name, flag in zip(names, said, strict=True)}

    def settings(self) -> set[str]:
        """Of the line discipline, as `stty` tells them: `echo` or `-echo`."""
        done = subprocess.run(["stty", "-a", "-F", self.tty], capture_output=True, text=True, check=True, timeout=60)
        return {word.strip(";") for word in done.stdout.split()}

    def close(self) -> None:
        if lives(self.server):
            self._tmux("kill-server")
        wait_until(lambda: not lives(self.server), "tmux is gone")
        shutil.rmtree(self._folder, ignore_errors=True)


@contextlib.contextmanager
def terminal(
    fleet: Fleet,
    *,
    columns: int = 80,
    lines: int = 24,
    term: str = "screen",
    env: Mapping[str, str] | None = None,
) -> Iterator[Terminal]:
    """80×24 and 16 colours, unless told otherwise: what ssh into an old machine gives."""
    made = Terminal(fleet, columns=columns, lines=lines, term=term, env=env or {})
    try:
        made.until_seen(PROMPT)
        yield made
    finally:
        made.close()


def is_sane(made: Terminal) -> bool:
    """Ready for the next command: no alternate screen, a cursor, lines wrap, keys are echoed and end programs."""
    modes = made.modes()
    return (
        modes
        == {
            "alternate_on": False,
            "cursor_flag": True,
            "mouse_any_flag": False,
            "wrap_flag": True,
            "keypad_flag": False,
        }
        and {"echo", "icanon", "isig", "ixon", "icrnl"} <= made.settings()
    )
