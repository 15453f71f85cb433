"""What the fuzzer feeds in: command lines after the real parsers' own grammar, settings, scenarios, and plain noise.

Everything is drawn from one `random.Random`, so that seed and number of a case bring it back exactly.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

from holdfast import config
from holdfast.interfaces.cli.main import COMMANDS, Parser

LETTERS = "abcxyz0189 -_=./:%*?~'\"\\$`{}[]()<>|&;!#@^,+\t\n"
ODD_LETTERS = "é日本😀\u202e\u200b\x1b\x07\x7f\x9b\u2028²٣\udce9\udcff￾"  # controls, surrogates, digits that are none
ESCAPES = ("\x1b[31mred\x1b[0m", "\x1b]0;owned\x07", "a\rb", "\x1b[2J", "\u009b31m")
NUMBERS = (
    "1",
    "0",
    "-1",
    "+5",
    " 5",
    "007",
    "1e3",
    "0x10",
    "1_000",
    "٣",
    "²",
    "",
    "nan",
    "inf",
    "4.5",
    "9" * 25,
    "9" * 5000,
)
DURATIONS = (
    "1s",
    "5m",
    "1h30m",
    "250ms",
    "0s",
    "5",
    "soon",
    "-5m",
    "1h30",
    "1.5.2s",
    "٣s",
    "99999999999d",
    "1e9s",
    "1s ",
    "s",
)
REFS = (
    "main",
    "HEAD",
    "HEAD~1",
    "@{-1}",
    "main@{0}",
    "..",
    "^",
    ":/x",
    "--all",
    "main:README.md",
    "refs/heads/main",
    "-x",
    "",
)
LABELS = ("a=b", "a=", "=b", "=", "a", "a=b=c", "é=ü", "a=\x1b[31m")
DEEP = ("[" * 3000, "a." * 3000 + "b = 1", "x = " + "[" * 3000 + "]" * 3000, "x = " + "{a=" * 2000 + "1" + "}" * 2000)

Draw = random.Random


def noise(draw: Draw, most: int = 40) -> str:
    """Text of no kind; now and then very long. No NUL: a command line cannot hold one."""
    if draw.random() < 0.01:
        return draw.choice(["x", "é", "\x1b[", "-", "a b "]) * draw.randrange(1_000, 100_000)
    if draw.random() < 0.1:
        return draw.randbytes(draw.randrange(most)).replace(b"\0", b"").decode(errors="surrogateescape")
    letters = LETTERS + ODD_LETTERS if draw.random() < 0.4 else LETTERS
    return "".join(draw.choice(letters) for _ in range(draw.randrange(most)))


def mutated(draw: Draw, text: str) -> str:
    """The same with a few characters lost, doubled, moved or replaced."""
    letters = list(text)
    for _ in range(draw.randrange(1, 4)):
        place = draw.randrange(len(letters) + 1)
        how = draw.randrange(4)
        if how == 0:
            letters[place:place] = [draw.choice(LETTERS + ODD_LETTERS)]
        elif how == 1:
            del letters[place : place + draw.randrange(1, 4)]
        elif how == 2:
            letters[place : place + 1] = [draw.choice(LETTERS + ODD_LETTERS)]
        else:
            letters[place:place] = letters[: draw.randrange(len(letters) + 1)]
    return "".join(letters)


def either(draw: Draw, good: Sequence[str]) -> str:
    """One of the likely values, a mutation of one, or noise."""
    dice = draw.random()
    if good and dice < 0.6:
        return draw.choice(good)
    if good and dice < 0.85:
        return mutated(draw, draw.choice(good))
    return noise(draw)


# -- command lines -----------------------------------------------------------------------------------------------------


class Lines:
    """Command lines from what the parsers themselves declare: new commands and options are fuzzed without a change."""

    def __init__(self, ids: Sequence[str], folder: Path) -> None:
        self._ids = ids
        self._folder = folder
        self._tame = False  # whether the present line is meant to be accepted
        self._actions = {name: _actions_of(name) for name in COMMANDS}

    def line(self, draw: Draw) -> list[str]:
        dice = draw.random()
        if dice < 0.04:
            return [noise(draw) for _ in range(draw.randrange(5))]
        self._tame = dice > 0.5
        name = draw.choice(list(COMMANDS))
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


def _actions_of(name: str) -> list[argparse.Action]:
    module = import_module(f"holdfast.interfaces.cli.{COMMANDS[name][0]}")
    parser = Parser(prog=f"holdfast {name}")
    getattr(module, f"configure_{name}")(parser)
    return list(parser._actions)


# -- settings ----------------------------------------------------------------------------------------------------------


def setting(draw: Draw) -> tuple[str, str]:
    """A key and its value as TOML."""
    key = either(draw, list(config.SETTINGS)).replace("\n", "")
    values: list[Callable[[], str]] = [
        lambda: draw.choice(NUMBERS),
        lambda: json.dumps(draw.choice(DURATIONS)),
        lambda: json.dumps(noise(draw), ensure_ascii=draw.random() < 0.5),
        lambda: draw.choice(("true", "false", "True", "1979-05-27", "07:32:00", "1979-05-27T07:32:00Z", "inf")),
        lambda: json.dumps([noise(draw, 8) for _ in range(draw.randrange(4))]),
        lambda: "{" + ", ".join(f"{json.dumps(noise(draw, 6))} = {json.dumps(noise(draw, 6))}" for _ in "ab") + "}",
        lambda: json.dumps(draw.choice(("worktree", "none", "all", "tracked", "command", "scripted"))),
        lambda: noise(draw),
        lambda: f"[{', '.join(draw.choice(NUMBERS) or '1' for _ in range(3))}]",
        lambda: "'''\n\\u0000\x01'''",
        lambda: '"\\u0000"',
    ]  # fmt: skip
    return key, draw.choice(values)()


def settings_file(draw: Draw) -> bytes:
    dice = draw.random()
    if dice < 0.08:
        return draw.randbytes(draw.randrange(200))
    if dice < 0.10:
        return draw.choice(DEEP).encode()
    lines = []
    for _ in range(draw.randrange(5)):
        key, value = setting(draw)
        table, _, name = key.rpartition(".")
        if table and draw.random() < 0.5:
            lines += [f"[{table}]", f"{name} = {value}"]
        else:
            lines.append(f"{key} = {value}")
    text = "\n".join(lines)
    if dice < 0.3:
        text = mutated(draw, text)
    return text.encode(errors="surrogateescape") if dice < 0.98 else text.encode("utf-16", errors="replace")


def variables(draw: Draw) -> dict[str, str]:
    """Settings as environment variables, and the variables that everything else reads."""
    chosen = {}
    for _ in range(draw.randrange(3)):
        key = draw.choice(list(config.SETTINGS))
        chosen[f"HOLDFAST_{key.replace('.', '_').upper()}"] = either(draw, [*NUMBERS, *DURATIONS, "true", "none"])
    for name, values in (
        ("HOLDFAST_CLOCK_OFFSET", ["0", "-1790000000", "3000000000", "nan", "x", "1e308", ""]),
        ("USER", ["tess", "", "caf\udce9", "\x1b[31m", "x" * 500]),
        ("COLUMNS", ["1", "0", "-5", "x", "99999999"]),
        ("TERM", ["dumb", "", "xterm-256color"]),
        ("NO_COLOR", ["1", ""]),
        ("TZ", ["UTC", "Nowhere/City", ":x", ""]),
        (
            "HOLDFAST_HOME",
            ["", "relative", "~", "~nobody-at-all/x", "/dev/null/x", "/proc/none", "/dev/null/" + "x" * 5000],
        ),
    ):
        if draw.random() < 0.03:
            chosen[name] = draw.choice(values)
    return chosen


# -- scenarios ---------------------------------------------------------------------------------------------------------

_STEPS = (
    {"print": "x"}, {"sleep": "1s"}, {"write": {"path": "a", "text": "b"}}, {"remove": "a"}, {"commit": "c"},
    {"spawn": {"kind": "plain", "lives": "1s"}}, {"hang": True}, {"exit": 3}, {"limit": {"kind": "rate", "for": "1s"}},
    {"crash": "SIGKILL"}, {"wait_for": "$HOME/x"}, {"run": 2, "print": "y"},
)  # fmt: skip


def scenario_file(draw: Draw) -> tuple[str, bytes]:
    """The ending of its name, and its content."""
    if draw.random() < 0.05:
        return draw.choice((".json", ".toml")), draw.choice(DEEP).encode()
    steps = [_spoilt(draw, draw.choice(_STEPS)) for _ in range(draw.randrange(4))]
    document: object = (
        {"step": steps} if draw.random() < 0.9 else draw.choice((steps, {}, {"step": {}}, 1, None, {"step": [1]}))
    )
    text = json.dumps(document, ensure_ascii=draw.random() < 0.5)
    if draw.random() < 0.3:
        text = mutated(draw, text)
    return (".json" if draw.random() < 0.8 else ".toml"), text.encode(errors="surrogateescape")


def _spoilt(draw: Draw, step: object) -> object:
    if draw.random() < 0.5:
        return step
    if isinstance(step, dict):
        changed = dict(step)
        name = draw.choice(list(changed))
        values = [
            _spoilt(draw, changed[name]),
            None,
            -1,
            10**30,
            1.5,
            True,
            [],
            {},
            "",
            noise(draw),
            "\0",
            "../x",
            "/etc",
        ]
        changed[name if draw.random() < 0.8 else mutated(draw, name)] = draw.choice(values)
        return changed
    return noise(draw)


# -- lists of tasks ----------------------------------------------------------------------------------------------------

LISTED = (
    "- [ ] Fix it <!-- holdfast: key=a priority=5 label.x=y -->",
    "- [x] Done",
    "  - [ ] below",
    "* [ ] After <!-- holdfast: after=a timeout=5m -->",
    '{"prompt": "Fix it", "key": "a", "labels": {"x": "y"}}',
    '{"prompt": "After", "after": ["a"], "priority": 5, "timeout": "5m"}',
    "```",
    "# A heading",
    "",
)


def list_file(draw: Draw) -> bytes:
    lines = [either(draw, LISTED) for _ in range(draw.randrange(8))]
    return "\n".join(lines).encode(errors="surrogateescape")
