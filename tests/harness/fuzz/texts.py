"""Texts that people and repositories write: settings, scenarios, lists of tasks; nearly right, or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.harness.fuzz.words import DEEP, DURATIONS, NUMBERS, Draw, either, mutated, noise

from holdfast import config


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
