"""Plays fuzz cases in one process of its own: `python -m tests.fuzz.worker ROOT SEED FIRST COUNT`.

The real command line, store and git; only what would wait for ever (a supervisor, a follower) is cut short. Prints one
JSON line per case that broke a rule, and a last one with what was done.
"""

from __future__ import annotations

import io
import json
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import apsw
from tests.fuzz import inputs

from holdfast import config
from holdfast.api import agent_rehearsal, daemon, rehearsal, scenarios
from holdfast.errors import HoldfastError
from holdfast.home import ensure_home
from holdfast.interfaces.cli import main
from holdfast.workspaces import git

DOCUMENTED = {0, 1, 2, 3, 4, 69, 75, 130}
REFUSALS = {2, 3, 4, 69}
PATIENCE = 20.0  # seconds of wall clock for one case
# What is carried out. Every other command is only parsed: what it would do to a home is not known here.
CARRIED_OUT = {
    *(
        "init",
        "run",
        "add",
        "up",
        "down",
        "ps",
        "show",
        "why",
        "events",
        "logs",
        "alerts",
        "crashes",
        "cancel",
        "retry",
        "resume",
    ),
    *("diff", "workspaces", "keep", "salvage", "doctor", "rehearse"),
    *("pause", "dispatch", "tracker", "worker", "accounts", "stats"),
}


class Broken(Exception):
    """A rule was broken; the text says which."""


def bounded() -> None:
    """Nothing waits: no supervisor is started, and the first nap of whoever waits is a Ctrl-C."""

    really_nap = time.sleep

    def nap(seconds: Any) -> None:
        if str(sys._getframe(1).f_globals["__name__"]).startswith("holdfast."):
            raise KeyboardInterrupt
        really_nap(seconds)  # subprocess does that too

    def up(home: str, *, agents: int | None, idle_exit: object) -> int:
        ensure_home(home)
        config.load(flags={"agents": agents})
        return 1

    def rehearse(scenario: str, *, timeout: float | None) -> NoReturn:
        scenarios.load_scenario(scenario)
        raise KeyboardInterrupt

    def rehearse_agent(agent: str, scenario: str, *, timeout: float | None) -> NoReturn:
        raise KeyboardInterrupt

    time.sleep = nap
    daemon.run_here = daemon.start_detached = up  # type: ignore[assignment]
    rehearsal.rehearse = rehearse
    agent_rehearsal.rehearse_agent = rehearse_agent
    really_call, cached = git.call, lru_cache(maxsize=4096)(git.call)
    # The repository stays as it is: real answers, asked once. (What is asked with an environment cannot be looked up.)
    git.call = lambda *words, **how: (really_call if "env" in how else cached)(*words, **how)
    for name, (module, _help) in main.COMMANDS.items():
        if name not in CARRIED_OUT:
            setattr(import_module(f"holdfast.interfaces.cli.{module}"), f"run_{name}", lambda _arguments: 0)


class Player:
    def __init__(self, root: Path, seed: str) -> None:
        self.seed = seed
        self._root = root
        self._home = root / "home"
        self._given = os.open(root / "stdin", os.O_RDWR | os.O_CREAT)
        os.dup2(self._given, 0)
        self._environment = dict(os.environ)
        self._database = apsw.Connection(str(self._home / "holdfast.db"), flags=apsw.SQLITE_OPEN_READONLY)
        self._lines = inputs.Lines(self.ids(), root)
        self.codes: Counter[str] = Counter()

    def ids(self) -> list[str]:
        return [str(row[0]) for row in self._database.execute("SELECT id FROM tasks ORDER BY seq")]

    def play(self, number: int) -> None:
        draw = random.Random(f"{self.seed}:{number}")
        dice = draw.random()
        kind: Callable[[random.Random], None] = (
            self._line if dice < 0.6 else self._settings if dice < 0.8 else self._list if dice < 0.9 else self._scenario
        )
        with self._surroundings(draw if kind is not self._scenario else None):
            kind(draw)

    @contextmanager
    def _surroundings(self, draw: random.Random | None) -> Iterator[None]:
        changed = inputs.variables(draw) if draw is not None else {}
        os.environ.update(changed)
        signal.setitimer(signal.ITIMER_REAL, PATIENCE)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            for name in changed:
                os.environ.pop(name, None)
                if name in self._environment:
                    os.environ[name] = self._environment[name]

    # -- the three kinds -----------------------------------------------------------------------------------------

    def _line(self, draw: random.Random) -> None:
        argv = self._lines.line(draw)
        os.ftruncate(self._given, 0)
        os.pwrite(self._given, inputs.noise(draw).encode(errors="surrogateescape"), 0)
        os.lseek(0, 0, os.SEEK_SET)
        self._run(argv)

    def _run(self, argv: list[str]) -> None:
        before = self._count()
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace") for _ in range(2))
        sys.stdout, sys.stderr = out, err
        try:
            code = main.run(argv)
        except BaseException as error:  # noqa: BLE001 - that is what we look for
            raise Broken(f"{argv!r} raised\n{''.join(traceback.format_exception(error))[-3000:]}") from None
        finally:
            sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
        self.codes[str(code)] += 1
        for stream in (out, err):
            stream.flush()
        said, complained = (stream.buffer.getvalue().decode() for stream in (out, err))
        self._judge(argv, code, said, complained, self._count() - before)

    def _judge(self, argv: list[str], code: int, said: str, complained: str, added: int) -> None:
        name = argv[0] if argv and argv[0] in main.COMMANDS else ""
        trouble = None
        if code not in DOCUMENTED:
            trouble = f"exit code {code} is not documented"
        elif "Traceback" in complained:
            trouble = "a traceback"
        elif name == "add" and complained.endswith(" mistake(s).\n"):
            trouble = None if code == 2 and added == 0 else "a list with mistakes was not refused"
        elif code in REFUSALS and name != "run" and not _is_one_line(complained):
            trouble = "not exactly one line of complaint"
        elif code in (2, 3, 4) and said:
            trouble = "a refusal with output"
        elif any(letter in complained for letter in "\x1b\x07\x9b"):
            trouble = "an escape sequence in a complaint"
        elif os.environ["HOLDFAST_HOME"] == str(self._home) and added != self._expected(name, argv, code, said):
            trouble = f"{added} task(s) were added"
        if trouble:
            raise Broken(f"{trouble}: {argv!r} → {code}\nstdout: {said[:500]!r}\nstderr: {complained[:500]!r}")

    def _expected(self, name: str, argv: list[str], code: int, said: str) -> int:
        """How many tasks such an answer adds to the store: what is refused adds none; a list, as many as it says."""
        helped = any(word in ("-h", "--help") for word in argv)
        if name == "add" and code == 0 and not helped and any(word.startswith("--f") for word in argv):
            if said.startswith('{"source"'):
                return sum(row["id"] is not None for row in json.loads(said)["queued"])
            return 0 if "--dry-run" in argv else len(said.split())
        return int(not helped and ((name == "add" and code == 0) or (name == "run" and code not in REFUSALS)))

    def _list(self, draw: random.Random) -> None:
        """A list of tasks, nearly right: what is wrong with it is told, or it is taken in."""
        path = self._root / "list"
        path.write_bytes(inputs.list_file(draw))
        how = draw.choice(("checklist", "jsonl", "prompt"))
        flags = [flag for flag in ("--json", "--dry-run") if how != "prompt" and draw.random() < 0.3]
        self._run(["add", "--from", str(path), "--as", how, *flags, "--", "true"])

    def _settings(self, draw: random.Random) -> None:
        mine, theirs = self._root / "user.toml", self._root / "repo" / "holdfast.toml"
        mine.write_bytes(inputs.settings_file(draw) if draw.random() < 0.7 else b"")
        theirs.write_bytes(inputs.settings_file(draw) if draw.random() < 0.4 else b"")
        os.environ["HOLDFAST_CONFIG"] = str(mine)
        flags: dict[str, object] = {}
        if draw.random() < 0.2:
            flags[draw.choice(list(config.SETTINGS))] = draw.choice([None, 1, "x", "5m", True, inputs.noise(draw)])
        try:
            self._load(flags)
            if draw.random() < 0.3:
                self._run(["add", "x", *(["--", "true"] if draw.random() < 0.5 else [])])
        except Broken as broken:
            raise Broken(
                f"{broken}\nuser's file: {mine.read_bytes()[:500]!r}\nrepository's: {theirs.read_bytes()[:500]!r}"
            ) from None
        finally:
            del os.environ["HOLDFAST_CONFIG"]
            theirs.unlink()

    def _load(self, flags: dict[str, object]) -> None:
        try:
            loaded = config.load(repo=str(self._root / "repo"), flags=flags)
            for key in config.SETTINGS:
                _ = loaded[key]
            self.codes["settings accepted"] += 1
        except HoldfastError as error:
            self.codes["settings refused"] += 1
            if not str(error).strip():
                raise Broken(f"a refusal without a word, flags {flags}") from None
        except Exception as error:  # noqa: BLE001 - that is what we look for
            trace = "".join(traceback.format_exception(error))[-3000:]
            raise Broken(f"config.load with flags {flags} raised\n{trace}") from None

    def _scenario(self, draw: random.Random) -> None:
        ending, content = inputs.scenario_file(draw)
        path = self._root / f"scenario{ending}"
        path.write_bytes(content)
        try:
            if draw.random() < 0.3:
                self._run(["add", "--scenario", str(path)])
            else:
                scenarios.load_scenario(str(path))
                self.codes["scenario accepted"] += 1
        except HoldfastError:
            self.codes["scenario refused"] += 1
        except Broken as broken:
            raise Broken(f"{broken}\nthe scenario: {content[:500]!r}") from None
        except Exception as error:  # noqa: BLE001 - that is what we look for
            trace = "".join(traceback.format_exception(error))[-3000:]
            raise Broken(f"the scenario {content[:500]!r} raised\n{trace}") from None

    # -- witnesses -----------------------------------------------------------------------------------------------

    def _count(self) -> int:
        return int(self._database.execute("SELECT count(*) FROM tasks").get)

    def integrity(self) -> str:
        return str(self._database.execute("PRAGMA integrity_check").get)


def _is_one_line(text: str) -> bool:
    return (
        text.startswith("holdfast: ")
        and text.endswith("\n")
        and text.count("\n") == 1
        and len(text) > len("holdfast: .")
    )


def too_long(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise Broken(f"it took longer than {PATIENCE:.0f} s")


def play_all(root: Path, seed: str, first: int, count: int) -> None:
    signal.signal(signal.SIGALRM, too_long)
    os.chdir(root / "repo")
    bounded()
    player = Player(root, seed)
    acknowledged = player.ids()
    for number in range(first, first + count):
        try:
            player.play(number)
        except Exception as error:  # noqa: BLE001 - one case must not end the others
            words = str(error) if isinstance(error, Broken) else "".join(traceback.format_exception(error))
            print(json.dumps({"case": number, "broken": words}), flush=True)
    lost = sorted(set(acknowledged) - set(player.ids()))
    print(
        json.dumps({"played": count, "codes": player.codes, "integrity": player.integrity(), "lost": lost}), flush=True
    )


if __name__ == "__main__":
    play_all(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
