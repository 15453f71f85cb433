"""Plays the commands of a page and compares, or rewrites, the output that the page shows.

A page is Markdown. Its ```console blocks are played in order, in one directory that `cd` changes. A comment above a
block says how:

    <!-- ids: a b … -->        once, at the top: the ids of the tasks that the page adds, in that order
    <!-- file: NAME -->        the block is the text of a file, not commands
    <!-- append: NAME -->      the block is added to the end of a file
    <!-- not played: WHY -->   the block is only read
    <!-- quiet -->             the output of the block is neither shown nor compared
    <!-- cut: FIRST LAST -->   of each output only so many lines at its beginning and its end are shown
    <!-- exit: N -->           the commands of the block exit with N

A line `…` in an output stands for any number of lines. Times, pids, hashes and durations may differ. A line for a
tool that has begun (`▸`) appears only if the tool is slow. Such lines are left out.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import sqlite3
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from tests.fleet import user_name

COLUMNS, LINES = 100, 40
USER_ON_PAGE, HOME_ON_PAGE, PLACE_ON_PAGE = "ada", "/home/ada", "/opt/ada"
SAVED_ON_PAGE = ("s7ved2work", "t3ved4work")  # the ids of salvages
SKIPPED = "…"
PATIENCE = 120.0

_FENCE = re.compile(r"^```(\w*)$")
_COMMENT = re.compile(r"^<!-- (ids|file|append|not played|quiet|cut|exit)(?:: (.*))? -->$")
_SLOW_TOOL = re.compile(r"^  \| ▸ ")
_ESCAPE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-_])")
# What differs between two plays, and the word that it is compared as. The order matters.
_VOLATILE: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), word)
    for pattern, word in (
        (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "UUID"),
        (r"\b\d{4}-\d\d-\d\d\b", "DATE"),
        (r"\b\d\d:\d\d(:\d\d)?\b", "TIME"),
        (r"\bpid \d+", "pid N"),
        (r"\b(?=[0-9a-f]*\d)[0-9a-f]{7,40}\b", "HASH"),
        (r"\b(?=[a-z]*\d)[a-z0-9]{12}\b", "RUN"),
        (r"/workspaces/[a-z0-9]{8}/", "/workspaces/REPO/"),
        (r"\b\d+(\.\d+)? ?(ms|s|m|h|d)\b( ?\d+ ?(s|m|h)\b)?", "DURATION"),
        (r"\b\d+(\.\d+)? ?(B|KiB|MiB|GiB|kB|MB|GB)\b", "SIZE"),
        (r"\bgit \d+(\.\d+)+", "git VERSION"),
        (r" {2,}", "  "),
    )
)


@dataclass
class Command:
    text: str
    shown: list[str] = field(default_factory=list)  # the output on the page


@dataclass
class Block:
    """A fenced block with its comments. `first` and `last` are the lines of its fences."""

    language: str
    first: int
    last: int
    notes: Mapping[str, str]
    lines: list[str]

    def commands(self) -> list[Command]:
        commands: list[Command] = []
        for line in self.lines:
            if line.startswith("$ "):
                commands.append(Command(line[2:]))
            elif line.startswith("> ") and commands and not commands[-1].shown:
                commands[-1].text += "\n" + line[2:]
            elif commands:
                commands[-1].shown.append(line)
        return commands


def read_blocks(text: str) -> Iterator[Block]:
    lines = text.splitlines()
    notes: dict[str, str] = {}
    at = 0
    while at < len(lines):
        if found := _COMMENT.match(lines[at]):
            notes[found[1]] = found[2] or ""
        elif fence := _FENCE.match(lines[at]):
            end = next(number for number in range(at + 1, len(lines)) if lines[number] == "```")
            yield Block(fence[1], at, end, notes, lines[at + 1 : end])
            notes, at = {}, end
        elif lines[at].strip():
            notes = {}
        at += 1


def ids_of(text: str) -> list[str]:
    found = re.search(r"^<!-- ids: (.*) -->$", text, re.M)
    return found[1].split() if found else []


class Player:
    """One life of a page: a user's home, a working directory, and the ids of the tasks so far."""

    def __init__(self, user: Path, env: Mapping[str, str], ids: list[str]) -> None:
        self.user, self.env, self.ids = user, dict(env), ids
        self.place = user
        self.real: list[str] = []
        self.saved: list[str] = []

    def play(self, text: str) -> str:
        """Play a page. Return the page with the output of this play."""
        lines = text.splitlines()
        shift = 0
        for block in read_blocks(text):
            new = self._play_block(block)
            lines[block.first + 1 + shift : block.last + shift] = new
            shift += len(new) - len(block.lines)
        return "\n".join(lines) + "\n"

    def _play_block(self, block: Block) -> list[str]:
        notes = block.notes
        if "not played" in notes:
            return block.lines
        if "file" in notes or "append" in notes:
            name, mode = (notes["file"], "w") if "file" in notes else (notes["append"], "a")
            with (self.place / name).open(mode) as file:
                file.write("\n".join(block.lines) + "\n")
            return block.lines
        if block.language != "console":
            return block.lines
        new = []
        for command in block.commands():
            output = self._run(command.text, int(notes.get("exit", "0")))
            first, *more = command.text.splitlines()
            new += [f"$ {first}", *(f"> {line}" for line in more)]
            if "quiet" not in notes:
                new += _keep_same(command.shown, _cut(output, notes.get("cut", "")))
        return new

    def _run(self, command: str, expected: int) -> list[str]:
        where = self.user / ".place"
        script = f"{self._with_real_ids(command)}\nstatus=$?; pwd > {where}; exit $status"
        code, output = _in_terminal(["bash", "-c", script], self.env, self.place)
        self.place = Path(where.read_text().strip())
        self._learn_ids()
        text = self._with_page_ids(output)
        assert code == expected, f"`{command}` exited with {code}, not {expected}:\n{text}"
        return [line.rstrip() for line in text.splitlines() if not _SLOW_TOOL.match(line)]

    def _learn_ids(self) -> None:
        store = self.user / ".local/state/holdfast/holdfast.db"
        if not store.exists():
            return
        with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
            for table, known in (("tasks", self.real), ("salvages", self.saved)):
                found = [str(row[0]) for row in connection.execute(f"SELECT id FROM {table} ORDER BY rowid")]
                known += [name for name in found if name not in known]

    def _pairs(self) -> list[tuple[str, str]]:
        assert len(self.real) <= len(self.ids), f"the page names {len(self.ids)} ids, and has {len(self.real)} tasks"
        return list(zip(self.real, self.ids, strict=False))

    def _with_real_ids(self, command: str) -> str:
        for real, ours in self._pairs():
            command = re.sub(rf"\b{ours[:4]}({ours[4:]})?\b", real, command)
        return command

    def _with_page_ids(self, output: str) -> str:
        for real, ours in self._pairs():
            output = output.replace(real, ours)
            output = re.sub(rf"^{real[:4]}(?=  )", ours[:4], output, flags=re.M)
        for real, ours in zip(self.saved, SAVED_ON_PAGE, strict=False):
            output = output.replace(real, ours)
        output = re.sub(rf"\bby {re.escape(user_name())}\b", f"by {USER_ON_PAGE}", output)
        return output.replace(str(self.user), HOME_ON_PAGE).replace(str(self.user.parent), PLACE_ON_PAGE)


def same(shown: list[str], output: list[str]) -> bool:
    """True if `output` is what the page shows, apart from what differs between two plays."""
    pattern = "".join(r"(?:.*\n)*?" if line.strip() == SKIPPED else re.escape(_masked(line)) + r"\n" for line in shown)
    return re.fullmatch(pattern, "".join(_masked(line) + "\n" for line in output)) is not None


def _masked(line: str) -> str:
    for pattern, word in _VOLATILE:
        line = pattern.sub(word, line)
    return line.strip()


def _keep_same(shown: list[str], output: list[str]) -> list[str]:
    """Return the old output if the new one says the same: a page changes only where the product did."""
    blank = shown and not shown[-1].strip()
    found = (
        shown if same([line for line in shown if line.strip()], [line for line in output if line.strip()]) else output
    )
    return [*found, ""] if blank and found is output else found


def _cut(output: list[str], wanted: str) -> list[str]:
    if not wanted:
        return output
    first, last = (int(number) for number in wanted.split())
    if len(output) <= first + last + 1:
        return output
    return [*output[:first], SKIPPED, *output[len(output) - last :]]


def _in_terminal(argv: list[str], env: Mapping[str, str], where: Path) -> tuple[int, str]:
    """Run a command whose output goes to a terminal, as a person sees it. It has no input."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    process = subprocess.Popen(
        argv, env=dict(env), cwd=where, stdin=subprocess.DEVNULL, stdout=its, stderr=its, start_new_session=True
    )
    os.close(its)
    parts: list[bytes] = []
    deadline = time.monotonic() + PATIENCE
    while True:
        if not select.select([ours], [], [], max(0.0, deadline - time.monotonic()))[0]:
            os.killpg(process.pid, signal.SIGKILL)
            raise AssertionError(f"{argv[-1]!r} took longer than {PATIENCE:g} s:\n{b''.join(parts).decode()}")
        try:
            part = os.read(ours, 65536)
        except OSError:  # the last process that had the terminal ended
            break
        if not part:
            break
        parts.append(part)
    os.close(ours)
    text = _ESCAPE.sub("", b"".join(parts).decode(errors="replace")).replace("\r\n", "\n")
    return process.wait(PATIENCE), "\n".join(line.rpartition("\r")[2] for line in text.split("\n"))
