"""Whole commands through the real front door, in a place of their own: an exit code that is documented, one line of
complaint (with --json: one object), no traceback, no escape, nothing added that was not acknowledged, nothing lost.

Only what would wait for ever (a supervisor, a follower) is cut short.
"""

from __future__ import annotations

import io
import json
import os
import random
import re
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import apsw
from tests.harness.fuzz.place import DATABASE

from holdfast import config
from holdfast.api import rehearse as rehearsal
from holdfast.api.home import daemon
from holdfast.base.home import ensure_home
from holdfast.cli import main
from holdfast.workspaces.git import git

DOCUMENTED = {0, 1, 2, 3, 4, 69, 75, 130}
REFUSALS = {2, 3, 4, 69}
MANY = re.compile(r"\d+ of \d+ tasks were not changed\.\n")
ESCAPES = "\x1b\x07\x9b"
PARSED_ONLY = ("service",)  # the machine's own manager
LISTING = ("config", "workflows")  # what is wrong is their answer, a line for each


class Nap(KeyboardInterrupt):
    """Somebody of ours would wait: as if Ctrl-C had been pressed."""


def bound(*, cached: bool) -> None:
    """For the rest of this process: nothing waits, and no supervisor is started. `cached`: a repository that stays as
    it is; git's answers are real, but asked once."""
    really_nap = time.sleep

    def nap(seconds: Any) -> None:
        if str(sys._getframe(1).f_globals["__name__"]).startswith("holdfast."):
            raise Nap
        really_nap(seconds)  # subprocess does that too

    def up(home: str, *, agents: int | None, idle_exit: object) -> int:
        ensure_home(home)
        config.load(flags={"agents": agents})
        return 1

    def rehearse(scenario: str, *, timeout: float | None) -> NoReturn:
        rehearsal.load_scenario(scenario)
        raise Nap

    def rehearse_agent(agent: str, scenario: str, *, timeout: float | None) -> NoReturn:
        raise Nap

    time.sleep = nap
    daemon.run_here = daemon.start_detached = up  # type: ignore[assignment]  # a stand-in
    rehearsal.rehearse = rehearse
    rehearsal.rehearse_agent = rehearse_agent
    if cached:
        really_call, once = git.run_sync, lru_cache(maxsize=4096)(git.run_sync)
        # What is asked with an environment cannot be looked up.
        git.run_sync = lambda *words, **how: (really_call if "env" in how else once)(*words, **how)
    for name in PARSED_ONLY:
        module = import_module(f"holdfast.cli.{main.COMMANDS[name][0]}")
        setattr(module, f"run_{name}", lambda _arguments: 0)


class Typist:
    """Types commands in a place. The place is a copy, and its home may be removed under our feet: by our own purge."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._home = place / "home"
        self._given = os.open(place / "stdin", os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(self._given, 0)
        os.environ.update(HOLDFAST_HOME=str(self._home), HOME=str(place / "user"), SHELL="/bin/true")
        os.environ["HOLDFAST_CONFIG"] = str(place / "user" / "none.toml")
        os.chdir(place / "repo")
        self._surroundings = dict(os.environ)
        self._opened: tuple[int, apsw.Connection] | None = None
        self.acknowledged = self.ids()
        self.is_gone = False  # a purge, a restore: what was there need not be there any more

    def type(
        self,
        argv: list[str],
        given: bytes = b"",
        variables: Mapping[str, str] | None = None,
        *,
        counted: bool = True,
        is_damaged: bool = False,
    ) -> str:
        """What is wrong with how it was answered, or nothing.

        `counted`: the store can be asked for its tasks. `is_damaged`: a value in it makes no sense, so one line about
        something that the command does not understand is an answer. Elsewhere it is a mistake of ours.
        """
        os.ftruncate(self._given, 0)
        os.pwrite(self._given, given, 0)
        os.lseek(0, 0, os.SEEK_SET)
        with self._with(variables or {}):
            is_here = counted and os.environ["HOLDFAST_HOME"] == str(self._home)
            before = self._count() if is_here else 0
            code, said, complained = _run(argv)
            after = self._count() if is_here else 0
        if code is None:
            return f"silent: {argv!r} raised\n{complained}"
        name = argv[0] if argv and argv[0] in main.COMMANDS else ""
        self.is_gone = self.is_gone or (name in ("purge", "restore") and code in (0, 1))
        is_complaint = _is_complaint(argv, code, complained)
        if is_damaged and code == main.UNFORESEEN and is_complaint:
            return ""
        trouble = _misbehaved(name, code, said, complained, is_complaint)
        expected = _added(name, argv, code, said)
        if not trouble and is_here and not self.is_gone and after - before != expected:
            trouble = f"lost: {after - before} task(s) were added, not {expected}"
        if not trouble:
            return ""
        return f"{trouble}: {argv!r} → {code}\n  stdout: {said[:500]!r}\n  stderr: {complained[:800]!r}"

    @contextmanager
    def _with(self, variables: Mapping[str, str]) -> Iterator[None]:
        os.environ.update(variables)
        try:
            yield
        finally:
            for name in set(os.environ) - set(self._surroundings):
                del os.environ[name]
            os.environ.update(self._surroundings)
            os.chdir(self._place / "repo")

    def ids(self) -> list[str]:
        """Of all tasks, as the database says, with no code of ours."""
        database = self._database()
        return [] if database is None else [str(row[0]) for row in database.execute("SELECT id FROM tasks")]

    def _count(self) -> int:
        database = self._database()
        return 0 if database is None else int(database.execute("SELECT count(*) FROM tasks").get)

    def _database(self) -> apsw.Connection | None:
        """The one that is there now: a restore puts another in its place."""
        path = self._home / DATABASE
        try:
            inode = path.stat().st_ino
        except OSError:
            return None
        if self._opened is None or self._opened[0] != inode:
            self._opened = inode, apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        return self._opened[1]

    def release_lost_task(self) -> None:
        """Of the database, which is about to be replaced."""
        if self._opened is not None:
            self._opened[1].close()
            self._opened = None

    def lost(self) -> list[str]:
        """At the end: every task that was there is there, and the store is sound."""
        if self.is_gone:
            return []
        database = self._database()
        sound = "gone" if database is None else str(database.execute("PRAGMA integrity_check").get)
        missing = sorted(set(self.acknowledged) - set(self.ids()))
        return ([f"lost: the tasks {missing}"] if missing else []) + (
            [f"lost: the store is damaged: {sound}"] if sound != "ok" else []
        )


def _run(argv: list[str]) -> tuple[int | None, str, str]:
    """Code (None: it raised), output, complaint."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace") for _ in range(2))
    sys.stdout, sys.stderr = out, err
    try:
        code: int | None = main.run(list(argv))
    except BaseException as error:  # noqa: BLE001 - that is what we look for
        return None, "", "".join(traceback.format_exception(error))[-3000:]
    finally:
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    texts = []
    for stream in (out, err):
        stream.flush()
        assert isinstance(stream.buffer, io.BytesIO)
        texts.append(stream.buffer.getvalue().decode())
    return code, texts[0], texts[1]


def _misbehaved(name: str, code: int | None, said: str, complained: str, is_complaint: bool) -> str:
    if code not in DOCUMENTED and name != "shell":
        return f"silent: exit code {code} is not documented"
    if "Traceback" in complained:
        return "silent: a traceback"
    if name == "add" and (complained.endswith(" mistake(s).\n") or _read_object(said).get("mistakes")):
        return "" if code == 2 else "silent: a list with mistakes was not refused"
    if MANY.match(complained) or _is_of_many(said, complained):
        return ""  # several tasks: a line for each on standard output, and without --json their number
    if code in REFUSALS and name not in ("run", "shell", *LISTING) and not is_complaint:
        return "silent: not exactly one line of complaint"
    if code in (2, 3, 4) and said and name not in ("shell", *LISTING):
        return "silent: a refusal with output"
    if any(letter in complained for letter in ESCAPES):
        return "silent: an escape sequence in a complaint"
    return ""


def _is_of_many(said: str, complained: str) -> bool:
    """True if each line is the object of a task, and at least one task was not changed."""
    rows = [_read_object(line) for line in said.splitlines()]
    return not complained and any(row.get("done") is False for row in rows) and all(row.get("message") for row in rows)


def _added(name: str, argv: list[str], code: int | None, said: str) -> int:
    """How many tasks such an answer adds to the store: what is refused adds none; a list, as many as it says."""
    helped = any(word in ("-h", "--help") for word in argv)
    if name == "add" and code == 0 and not helped and any(word.startswith("--f") for word in argv):
        if said.startswith("{"):
            return sum(row["id"] is not None for row in _read_object(said)["queued"])
        return 0 if "--dry-run" in argv else len(said.split())
    return int(not helped and ((name == "add" and code == 0) or (name == "run" and code not in REFUSALS)))


def _read_object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _is_complaint(argv: list[str], code: int | None, text: str) -> bool:
    """One line; where JSON is asked for, one object that says all that the line says."""
    if "--json" not in (argv[: argv.index("--")] if "--" in argv else argv):
        return _is_one_line(text)
    row = _read_object(text)
    is_whole = all(isinstance(row.get(key), str) and row[key] for key in ("error", "message", "kept", "next"))
    return is_whole and row.get("exit_code") == code and text.endswith("\n") and text.count("\n") == 1


def _is_one_line(text: str) -> bool:
    return (
        text.startswith("holdfast: ")
        and text.endswith("\n")
        and text.count("\n") == 1
        and len(text) > len("holdfast: .")
    )


# Nothing that a command of ours could replace: it once replaced /dev/null itself.
HARMLESS = ("/", "/proc/self/mem", "/dev/null/x", "/proc/none")


def confined(argv: list[str], place: Path, draw: random.Random) -> list[str]:
    """No word is a path that leads out of the place, but for those where nothing can be done."""

    def tame(word: str) -> str:
        head, sign, value = word.partition("=") if word.startswith("-") else ("", "", word)
        if value in HARMLESS or value.startswith((str(place), "/dev/null/")):
            return word
        while "../.." in value:
            value = value.replace("../..", "..")
        return f"{head}{sign}{place}{value}" if value.startswith("/") else f"{head}{sign}{value}"

    return [tame(word) for word in argv]
