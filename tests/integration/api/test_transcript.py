"""A run's output as events and as text for people, without a supervisor: the files are all there is."""

from __future__ import annotations

import io
import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from holdfast.api.tasks.models import OpenRun
from holdfast.api.tasks.transcript import LONGEST_LINE, NAMES, GrowingLines, Transcript
from holdfast.cli.output.agent_events import Teller
from holdfast.core.agents.events import AgentEvent


@pytest.fixture(autouse=True)
def _in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


RUN: OpenRun = {"id": "r1", "number": 1, "ended_at": 1_800_000_000.0}


def scripted(event: str, **more: Any) -> str:
    return json.dumps({"holdfast": event, **more})


def told(lines: list[str], directory: Path, *, at: float | None = None) -> list[str]:
    """What the scripted agent's lines look like on a pipe."""
    (directory / "out.log").write_text("".join(f"{line}\n" for line in lines))
    out = io.StringIO()
    teller = Teller(out.write, io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    for event in Transcript(str(directory), "scripted", RUN).go_on(final=True):
        teller.tell(event, at)
    teller.end()
    return out.getvalue().splitlines()


def test_words_tools_and_ends_are_lines_for_people(tmp_path: Path) -> None:
    lines = [
        scripted("session", id="s-1"),
        scripted("session", id="s-1"),
        "I begin \x1b[31mred\x1b[0m\x07",
        scripted("tool", id="1", name="Bash", input="make\ntest"),
        scripted("tool", id="1", name="Bash", closed=True),
        scripted("tool", id="2", name="Read", input="a.txt"),
        "in between",
        scripted("tool", id="2", name="Read", closed=True),
        scripted("event", name="nothing new"),
        scripted("limit", kind="usage", until=1_800_000_100.0),
        scripted("result", status="success"),
        "x" * 30_000,
    ]
    assert told(lines, tmp_path) == [
        "session s-1",
        "I begin red",
        "· Bash  make test",
        "▸ Read  a.txt",
        "in between",
        "· Read  a.txt",
        "✗ error (usage limit): a usage limit, as the scenario wants it; it resets 2027-01-15 08:01:40 UTC",
        "✓ done",
        f"{'x' * 20_000}… [10000 more characters: add --raw]",
    ]


EVENTS: list[tuple[dict[str, Any], str]] = [
    ({"event": "tool_finished", "id": "9", "ok": True, "name": "Write", "output": ""}, "✓ Write"),
    (
        {"event": "tool_finished", "id": "9", "ok": False, "name": "Bash", "output": "1\n\n2\n3\n4"},
        "✗ Bash\n    2\n    3\n    4",
    ),
    (
        {
            "event": "retry",
            "trouble": "rate_limit",
            "attempt": 3,
            "most": 10,
            "delay": 2.3,
            "status": 429,
            "message": "slow \x1b[1mdown",
            "resets_at": None,
        },
        "… tries again, 3 of 10 in 2.3s: rate limit, HTTP 429: slow down",
    ),
    (
        {
            "event": "retry",
            "trouble": "network",
            "attempt": None,
            "most": None,
            "delay": None,
            "status": None,
            "message": "",
            "resets_at": None,
        },
        "… tries again: network",
    ),
    (
        {"event": "limit", "rejected": False, "scope": "five_hour", "utilization": 0.85, "resets_at": 1_800_000_000.0},
        "! usage limit near (five hour): 85% used; it resets 2027-01-15 08:00:00 UTC",
    ),
    (
        {"event": "limit", "rejected": True, "scope": "", "utilization": None, "resets_at": None},
        "✗ usage limit reached",
    ),
    (
        {"event": "error", "trouble": "other", "message": "hm", "status": None, "is_fatal": False, "resets_at": None},
        "! error: hm",
    ),
    (
        {"event": "result", "ok": False, "text": "it\nbroke", "turns": 2},
        "it\nbroke\n✗ ended with an error",
    ),
    (
        {
            "event": "total",
            "model": "m-1",
            "input": 12300,
            "output": 84,
            "cached": 60,
            "cost_usd": 0.002692,
            "turns": 2,
        },
        "it took 12 300 tokens in (60 cached), 84 out, $0.0027, 2 turns, m-1",
    ),
    ({"event": "gap", "bytes": 7}, "[7 bytes are not kept]"),
    ({"event": "raw", "text": "not JSON", "stream": "out"}, "not JSON"),
    ({"event": "raw", "text": "node: a warning", "stream": "err"}, "[1 line on its standard error: add --err]"),
]


@pytest.mark.parametrize(("event", "line"), EVENTS, ids=lambda value: value["event"] if isinstance(value, dict) else "")
def test_every_event_has_its_line(event: dict[str, Any], line: str) -> None:
    out = io.StringIO()
    teller = Teller(out.write, io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    teller.tell(event)
    teller.end()
    assert out.getvalue() == f"{line}\n"


def test_no_event_is_without_a_name() -> None:
    assert set(NAMES) == set(get_args(AgentEvent))


def test_pieces_of_a_text_are_joined_and_a_tool_that_was_watched_has_its_time() -> None:
    out = io.StringIO()
    teller = Teller(out.write, io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    for piece in ("Hel", "lo\nwor", "ld"):
        teller.tell({"event": "text", "text": piece, "is_delta": True, "is_thought": False})
    teller.tell({"event": "tool_started", "id": "1", "name": "Bash", "input": "make"}, 10.0)
    teller.catch_up()
    teller.tell({"event": "tool_finished", "id": "1", "name": "", "ok": True, "output": ""}, 12.5)
    assert out.getvalue() == "Hello\nworld\n> Bash  make\n+ Bash  make  (2.5s)\n"


def test_lines_survive_blocks_holes_and_sizes(tmp_path: Path) -> None:
    """R-TERM-10: each whole line once; what is not there is said; memory is not the agent's to fill."""
    path = tmp_path / "out.log"
    lines = GrowingLines(str(path))
    assert list(lines.go_on(final=False)) == []
    path.write_bytes(b"one\n\ntw")
    assert list(lines.go_on(final=False)) == ["one", ""]
    with path.open("ab") as file:
        file.write("o é\n".encode() + b"\xff" + b"a" * 200_000 + b"\nlast")
    assert list(lines.go_on(final=False)) == ["two é", "�" + "a" * 200_000]
    with path.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        file.truncate((file.tell() // 4096 + 64) * 4096)
        file.seek(0, os.SEEK_END)
        end = file.tell()
        file.write(b"after\n" + b"b" * (LONGEST_LINE + 1) + b"\nend")
    found = list(lines.go_on(final=True))
    gap = found[1]
    assert found[0] == "last" or re.fullmatch(r"last\0*", str(found[0]))  # a block of the file system is kept whole
    assert isinstance(gap, int)
    assert 0 < gap < end
    assert found[2:] == ["after", LONGEST_LINE + 1, "end"]


def test_a_pipe_in_place_of_the_output_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "out.log")
    assert list(GrowingLines(str(tmp_path / "out.log")).go_on(final=True)) == []


def test_a_follower_leaves_no_run_out() -> None:
    """R-TERM-10: two runs may come and go between two looks."""
    from holdfast.cli.commands.logs import BytePrinter, _pick_run

    task: Any = {"id": "t", "runs": [{"id": f"r{number}", "number": number} for number in (1, 2, 3)]}
    for shown, following in (("r1", "r2"), ("r2", "r3"), ("r3", "r3")):
        run = _pick_run(task, None, BytePrinter(shown, "", raw=True))
        assert run is not None
        assert run["id"] == following
    assert _pick_run(task, None, None) == {"id": "r3", "number": 3}
    assert _pick_run(task | {"runs": []}, None, None) is None
