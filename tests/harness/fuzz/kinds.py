"""The kinds of inputs: how one is drawn, given and judged, some hundred of them in a process of its own."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tests.harness.fuzz import homes, outside, streams, tables, texts
from tests.harness.fuzz.commands import Typist, bound, confined
from tests.harness.fuzz.lines import Lines
from tests.harness.fuzz.words import noise

from holdfast import config
from holdfast.api import rehearse
from holdfast.base.errors import HoldfastError


class Kind(Protocol):
    """Made in the process that plays its inputs. `place`: a copy of a home, its own."""

    def play(self, draw: random.Random) -> str:
        """What is wrong, in words that begin with a promise; empty: nothing. What it raises is wrong too."""

    def end(self) -> list[str]:
        """What is wrong when all is done."""


class CommandLines:
    """Commands as the parsers declare them, in a repository that stays as it is."""

    CHANGING = (
        "merge",
        "pr",
        "branches",
        "sweep",
        "backup",
        "restore",
        "purge",
        "shell",
        "rehearse",
        "trust",
        "init",
        "doctor",
    )

    def __init__(self, place: Path) -> None:
        bound(cached=True)
        self._place, self._typist = place, Typist(place)
        self._lines = Lines(self._typist.acknowledged, place, without=self.CHANGING)

    def play(self, draw: random.Random) -> str:
        argv = confined(self._lines.line(draw), self._place, draw)
        return self._typist.type(argv, noise(draw).encode(errors="surrogateescape"), texts.variables(draw))

    def end(self) -> list[str]:
        return self._typist.lost()


class Deeds(CommandLines):
    """Every command, with git as it is: merges, purges, restores, whatever."""

    def __init__(self, place: Path) -> None:
        bound(cached=False)
        self._place, self._typist = place, Typist(place)
        self._lines = Lines(self._typist.acknowledged, place, only=self.CHANGING)


class SettingsFiles:
    """The user's file and a repository's, read; now and then a command that has to live with them."""

    def __init__(self, place: Path) -> None:
        bound(cached=True)
        self._typist = Typist(place)
        self._mine, self._theirs = place / "user.toml", place / "repo" / "holdfast.toml"
        os.environ["HOLDFAST_CONFIG"] = str(self._mine)

    def play(self, draw: random.Random) -> str:
        self._mine.write_bytes(texts.settings_file(draw) if draw.random() < 0.7 else b"")
        self._theirs.write_bytes(texts.settings_file(draw) if draw.random() < 0.4 else b"")
        os.environ["HOLDFAST_CONFIG"] = str(self._mine)
        flags: dict[str, object] = {}
        if draw.random() < 0.2:
            flags[draw.choice(list(config.SETTINGS))] = draw.choice([None, 1, "x", "5m", True, noise(draw)])
        wrong = ""
        try:
            loaded = config.load(repo=os.getcwd(), flags=flags)
            for key in config.SETTINGS:
                _ = loaded[key]
        except HoldfastError as error:
            wrong = "" if str(error).strip() else f"silent: a refusal without a word, flags {flags}"
        if not wrong and draw.random() < 0.04:
            wrong = self._typist.type(draw.choice(self.COMMANDS), variables={"HOLDFAST_CONFIG": str(self._mine)})
        if not wrong:
            return ""
        return f"{wrong}\n  user's file: {self._mine.read_bytes()[:500]!r}\n  its: {self._theirs.read_bytes()[:500]!r}"

    COMMANDS = (
        ["add", "x", "--", "true"], ["add", "x"], ["ps"], ["config"], ["config", "check"], ["workflows"], ["schedule"],
        ["accounts"], ["worker"], ["tracker"], ["doctor"], ["alerts"], ["stats"], ["top", "--once"],
    )  # fmt: skip

    def end(self) -> list[str]:
        return self._typist.lost()


class WrittenFiles:
    """Scenarios and lists of tasks."""

    def __init__(self, place: Path) -> None:
        bound(cached=True)
        self._place, self._typist = place, Typist(place)

    def play(self, draw: random.Random) -> str:
        return self._list(draw) if draw.random() < 0.05 else self._scenario(draw)

    def _list(self, draw: random.Random) -> str:
        """Nearly right: what is wrong with it is told, or it is taken in."""
        path = self._place / "list"
        path.write_bytes(content := texts.list_file(draw))
        how = draw.choice(("checklist", "jsonl", "prompt"))
        flags = [flag for flag in ("--json", "--dry-run") if how != "prompt" and draw.random() < 0.3]
        wrong = self._typist.type(["add", "--from", str(path), "--as", how, *flags, "--", "true"])
        return f"{wrong}\n  the list: {content[:500]!r}" if wrong else ""

    def _scenario(self, draw: random.Random) -> str:
        ending, content = texts.scenario_file(draw)
        path = self._place / f"scenario{ending}"
        path.write_bytes(content)
        wrong = ""
        if draw.random() < 0.05:
            wrong = self._typist.type(["add", "--scenario", str(path)])
        else:
            try:
                rehearse.load_scenario(str(path))
            except HoldfastError as error:
                wrong = "" if str(error).strip() else "silent: a refusal without a word"
        return f"{wrong}\n  the scenario: {content[:500]!r}" if wrong else ""

    def end(self) -> list[str]:
        return self._typist.lost()


class AgentStreams:
    """Whole outputs of agents."""

    def __init__(self, place: Path) -> None:
        pass

    def play(self, draw: random.Random) -> str:
        wrong = streams.broken(streams.drawn(draw))
        return f"silent: {wrong}" if wrong else ""

    def end(self) -> list[str]:
        return []


# Name → how it is made, how many inputs of it a campaign plays, how many of them in one process.
KINDS: dict[str, tuple[Callable[[Path], Kind], int, int]] = {
    "commands": (CommandLines, 7_000, 250),
    "deeds": (Deeds, 300, 20),
    "settings": (SettingsFiles, 8_000, 400),
    "files": (WrittenFiles, 5_000, 400),
    "workflows": (tables.Workflows, 1_500, 250),
    "schedules": (tables.Schedules, 3_000, 500),
    "templates": (tables.Templates, 8_000, 4_000),
    "streams": (AgentStreams, 3_000, 150),
    "lines": (outside.AgentLines, 40_000, 2_000),
    "reports": (outside.Reports, 8_000, 4_000),
    "records": (outside.RunRecords, 6_000, 1_000),
    "answers": (outside.TrackerAnswers, 8_000, 2_000),
    "memories": (outside.Memories, 5_000, 2_500),
    "columns": (homes.Columns, 200, 25),
    "homes": (homes.Files, 200, 25),
    "backups": (homes.Backups, 200, 50),
}
