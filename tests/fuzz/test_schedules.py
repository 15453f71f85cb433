"""Fuzzed tables of schedules: a good one that can be computed with and read back, or mistakes with lines; no traceback.

HOLDFAST_FUZZ_COUNT=10000 plays many; HOLDFAST_FUZZ_SEED plays the same cases again.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
from tests.sampling import amount

from holdfast.api.format import describe_moment
from holdfast.config.read_file import read_settings_file
from holdfast.config.tables.schedule_keys import KEYS
from holdfast.config.tables.schedules import read_schedules, schedules_to_show, to_table, trust_lines
from holdfast.config.values import format_toml
from holdfast.core.schedules.due import due_at, upcoming_occurrences

SEED = os.environ.get("HOLDFAST_FUZZ_SEED", "7")
COUNT = int(os.environ.get("HOLDFAST_FUZZ_COUNT", amount(400, in_all=10_000)))
HOSTILE = "$(touch PWNED) `x`; é 日本 %s {0} \x1b[2J"
PARTS = (
    "*",
    "0",
    "59",
    "*/5",
    "1-5",
    "1,2",
    "L",
    "LW",
    "5L",
    "1#2",
    "7",
    "JAN",
    "MON-FRI",
    "0/0",
    "5-1",
    "²",
    "",
    "-",
    "99",
)
SAFE = ("*", "*/2", "1-5", "1,2", "5/2")  # good in every field
ZONES = (
    "UTC",
    "Europe/Berlin",
    "Australia/Lord_Howe",
    "Europe",
    "../../etc/passwd",
    "new york",
    "",
    "Asia/Kolkata",
    "x" * 99,
)
WORDS = {
    "name": ("nightly", "a", "a b", "", "x" * 65, HOSTILE),
    "repo": ("/r", "~/r", "r", "", "/" + "x" * 5000, "/r\0"),
    "timezone": ZONES,
    "prompt": ("do it", "", " ", HOSTILE, "x" * 70_000),
    "workflow": ("work", "", HOSTILE),
    "agent": ("claude", "cluade", ""),
    "overlap": ("skip", "queue", "replace", "never", ""),
    "misfire": ("last", "skip", "all", "none"),
    "jitter": ("5m", "0s", "3d", "-1s", "5", "999999999999d"),
    "gate": ("make test", "", False, True, HOSTILE),
    "command": (["sh", "-c", HOSTILE], [""], [], "sh"),
    "permission": ("read", "edit", "full", "sudo"),
    "budget_usd": (2.5, 0, -1, float("nan"), float("inf"), "five"),
    "budget_tokens": (1000, 0, -1, True),
    "stuck_after": ("5m", "0s", "off"),
    "timeout": ("1h", "0s", "soon", "9" * 80 + "s"),
    "labels": ({}, {"a": "b"}, {"schedule": "x"}, {"": "x"}, {"a=b": "c"}),
}
ODD: tuple[Any, ...] = (True, False, 0, -1, 10**12, 1.5, "text", [], ["a"], {}, {"a": "b"}, [[1]])


def some_table(chance: random.Random) -> dict[str, Any]:
    fields = chance.choice((5, 5, 5, 6, 6, 4, 7))
    table: dict[str, Any] = {"name": "n", "repo": "/r", "prompt": "p"}
    parts = SAFE if chance.random() < 0.7 else PARTS
    table["cron"] = " ".join(chance.choice(parts) for _ in range(fields))
    for _ in range(chance.randrange(5)):
        key = chance.choice((*KEYS, "nmae", "crno", "é"))
        table[key] = chance.choice(WORDS.get(key, ODD)) if chance.random() < 0.8 else chance.choice(ODD)
    for key in list(table):
        if chance.random() < 0.04:
            del table[key]
    return table


def test_a_table_is_good_or_its_mistakes_are_told() -> None:
    """R-CRON-01: whatever is written; what is taken can be computed with, shown, and means the same again."""
    good = 0
    for case in range(COUNT):
        chance = random.Random(f"{SEED}:{case}")
        tables = [some_table(chance) for _ in range(chance.choice((1, 1, 2)))]
        told: list[tuple[str, str]] = []
        found = read_schedules(tables, "f", {}, lambda key, text, told=told: told.append((key, text)))  # type: ignore[misc]
        assert len(found) + bool(told) > 0, (SEED, case)
        for key, text in told:
            assert key.startswith("schedule"), (SEED, case)
            assert len(text) < 600, (SEED, case, text)
            assert "\x1b" not in text.replace(HOSTILE, ""), (SEED, case)
        for schedule in found:
            good += 1
            moments = upcoming_occurrences(schedule, chance.choice((0.0, 1.79e9, 4e9)), 3)
            assert moments == sorted(set(moments)), (SEED, case)
            for moment in moments:
                assert due_at(schedule, moment) >= moment
                assert describe_moment(moment, schedule.zone)
            assert schedules_to_show((schedule,))
            assert trust_lines((schedule,))
            (again,) = read_schedules([to_table(schedule)], "f", {}, lambda key, text: pytest.fail(f"{key}: {text}"))
            assert again == schedule, (SEED, case)
    assert good > COUNT / 20, "the fuzzer finds good ones too"


def test_a_file_of_noise_is_told_with_lines(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    for case in range(COUNT // 10):
        chance = random.Random(f"{SEED}:file:{case}")
        text = "".join(
            "[[schedule]]\n" + "".join(f'"{key}" = {_written(value)}\n' for key, value in some_table(chance).items())
            for _ in range(chance.randrange(1, 4))
        )
        cut = chance.randrange(len(text)) if chance.random() < 0.3 else len(text)
        path.write_text(text[:cut], errors="surrogateescape")
        layer = read_settings_file(str(path), of_repository=chance.random() < 0.5)
        assert layer.schedules or layer.problems or cut < len(text), (SEED, case)
        whole = [problem for problem in layer.problems if "larger than" not in problem.text]  # no line is to blame
        assert all(problem.line is not None for problem in whole), (SEED, case, whole)


def _written(value: Any) -> str:
    if isinstance(value, dict):
        return format_toml({str(key): str(word) for key, word in value.items()})
    return str(value) if isinstance(value, list) and value and not isinstance(value[0], str) else format_toml(value)
