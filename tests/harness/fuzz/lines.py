"""Command lines after the grammar that the real parsers declare: new ones are fuzzed without a change."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from tests.harness.fuzz.words import DURATIONS, ESCAPES, LABELS, NUMBERS, REFS, Draw, either, mutated, noise

from holdfast.cli.main import COMMANDS, build_parser


class Lines:
    """`only`, `without`: commands that are drawn, or not."""

    def __init__(
        self, ids: Sequence[str], folder: Path, *, only: Sequence[str] = (), without: Sequence[str] = ()
    ) -> None:
        self._ids = ids
        self._folder = folder
        self._tame = False  # whether the present line is meant to be accepted
        self._names = [name for name in only or COMMANDS if name not in without]
        self._actions = {name: list(build_parser(name)._actions) for name in self._names}

    def line(self, draw: Draw) -> list[str]:
        dice = draw.random()
        if dice < 0.04:
            return [noise(draw) for _ in range(draw.randrange(5))]
        self._tame = dice > 0.5
        name = draw.choice(self._names)
        if dice < 0.08:
            return [mutated(draw, name), *(noise(draw) for _ in range(draw.randrange(3)))]
        words = [word for action in self._actions[name] for word in self._use(draw, action)]
        if draw.random() < 0.2:
            draw.shuffle(words)
        for _ in range(0 if self._tame else draw.choice((0, 0, 0, 0, 1, 2))):
            words.insert(draw.randrange(len(words) + 1), noise(draw))
        if name in ("add", "run") and draw.random() < 0.8:
            words += ["--", *(draw.choice(("true", "sh", "-c", noise(draw))) for _ in range(draw.randrange(3)))]
        return [name, *words]

    def _use(self, draw: Draw, action: argparse.Action) -> list[str]:
        if not action.option_strings:
            return [self._value(draw, action)] if draw.random() < 0.85 else []
        if isinstance(action, argparse._HelpAction):
            return ["--help"] if draw.random() < 0.01 else []
        if draw.random() > 0.15:
            return []
        flag = draw.choice(action.option_strings)
        if action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction):
            return [flag] if draw.random() < 0.97 else [f"{flag}={noise(draw)}"]
        value = self._value(draw, action)
        return [f"{flag}={value}"] if draw.random() < 0.5 else [flag, value]

    def _value(self, draw: Draw, action: argparse.Action) -> str:
        if action.choices:
            likely: Sequence[str] = [str(choice) for choice in action.choices]
        else:
            likely = self._likely(draw, action.dest, action.metavar, action.type)
        return likely[0] if self._tame and draw.random() < 0.9 else either(draw, likely)

    def _likely(self, draw: Draw, dest: str, metavar: object, kind: object) -> Sequence[str]:
        """Values that make sense for such an argument, and those that nearly do."""
        if dest in ("id", "parent", "after"):
            whole = draw.choice(self._ids)
            return [
                whole,
                whole,
                whole[: draw.randrange(len(whole))],
                whole + "x",
                whole.upper(),
                "",
                "*",
                "%",
                "../x",
                "é",
            ]
        if metavar == "N" or kind is not None:
            return NUMBERS
        if metavar == "T":
            return DURATIONS
        tables: dict[str, Sequence[str]] = {
            "label": LABELS,
            "base": REFS,
            "branch": [*REFS, f"fuzz-{draw.randrange(10**9)}", "a b", "a..b", ".lock"],
            "agent": ["command", "scripted", "comand", "claude", ""],
            "workspace": ["worktree", "none", "directory", "directory:copy", "cloud", "directory:", ":copy"],
            "prompt": ["do it", "-", *ESCAPES, "  ", "", "a\nb", "-x", "--fix"],
            "why": ["because", *ESCAPES, ""],
        }
        if dest in tables:
            return tables[dest]
        there = [
            str(path)
            for path in (self._folder, self._folder / "good.toml", self._folder / "odd.json", Path("/dev/null"))
        ]
        return [*there, ".", "..", "/", "", "missing", "README.md", "/proc/self/mem", "a" * 300, "~nobody-at-all/x"]
