"""Logs in pieces: read from the end, from the beginning, back and forth, they say what the whole says. R-CRASH-10."""

from __future__ import annotations

import ctypes
import json
import random
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from holdfast.api.queries import Queries
from holdfast.api.tasks import log_window
from holdfast.api.tasks.log_window import LogWindow
from holdfast.api.tasks.models import OpenRun
from holdfast.api.tasks.transcript import Transcript
from holdfast.tui.feed import NOTHING_NEW
from holdfast.tui.screens.task import output as reading
from holdfast.tui.screens.task.output import Batch, Choice, LineCollector, Reader
from holdfast.tui.widgets.text_view import LONGEST, TextLine, fold, make_printable

RUN: OpenRun = {"id": "r1", "number": 1}
BLOCK = 4096


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a small file has many."""
    monkeypatch.setattr(log_window, "PIECE", 512)
    monkeypatch.setattr(log_window, "LONGEST", 16 * 1024)
    monkeypatch.setattr(log_window, "TOO_FAR", 8 * 1024)
    monkeypatch.setattr(reading, "MOST_LINES", 60)
    monkeypatch.setattr(reading, "MEASURE_EVERY", 0.0)


def punch(path: Path, start: int, length: int) -> None:
    """As the keeper does with an endless log."""
    fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    with path.open("r+b") as file:
        if fallocate(file.fileno(), 0x03, start, length) != 0:
            pytest.skip("this file system has no holes")


def texts(piece: log_window.LogPiece | None) -> list[str]:
    return [row.get("text", f"[{row.get('bytes')}]") for row in piece.rows] if piece is not None else []


def backwards(window: LogWindow) -> list[str]:
    """Everything, from the end to the beginning."""
    found, steps = texts(window.newest(final=True)), 0
    while (piece := window.earlier()) is not None:
        found, steps = texts(piece) + found, steps + 1
        assert steps < 2000
    return found


def forwards(window: LogWindow) -> list[str]:
    found = texts(window.oldest(final=True))
    while (piece := window.later(final=True)) is not None:
        assert not piece.is_new
        found += texts(piece)
    return found


def test_a_log_is_the_same_from_either_end(tmp_path: Path) -> None:
    """R-CRASH-10: lines of any length, empty ones, wide characters, bytes that are no text, no newline at the end."""
    chance = random.Random(7)
    lines = [
        b"x" * chance.choice((0, 1, 30, 200, 700, 3000)) + chance.choice((b"", "→漢字".encode(), b"\xff\xfe", b"\r"))
        for _ in range(300)
    ]
    (tmp_path / "out.log").write_bytes(b"\n".join(lines))
    (tmp_path / "err.log").write_bytes(b"trouble\n")
    whole = [line.decode(errors="replace").rstrip("\r") for line in lines]
    window = LogWindow(str(tmp_path), "command", RUN)
    assert window.is_plain
    assert backwards(window) == whole
    assert forwards(LogWindow(str(tmp_path), "command", RUN)) == whole
    assert backwards(LogWindow(str(tmp_path), "command", RUN, errors=True)) == ["trouble"]


def test_holes_are_told_and_an_endless_line_ends_somewhere(tmp_path: Path) -> None:
    """R-CRASH-10: the keeper punches the middle out of endless output; what is left is shown, the rest is counted."""
    log = tmp_path / "out.log"
    log.write_bytes(b"".join(b"line %06d\n" % number for number in range(8000)))  # 12 bytes each
    punch(log, 2 * BLOCK, 15 * BLOCK)
    found = backwards(LogWindow(str(tmp_path), "command", RUN))
    assert found[0] == "line 000000"
    assert found[-1] == "line 007999"
    assert f"[{15 * BLOCK}]" in found
    assert len(found) < 8000 - 15 * BLOCK // 12 + 5
    log.write_bytes(b"a\n" + b"y" * 200_000)
    found = backwards(LogWindow(str(tmp_path), "command", RUN))
    assert found[0] == "a"
    assert sum(text.count("y") for text in found) == 200_000


def test_a_line_that_goes_on_and_a_log_in_anothers_place(tmp_path: Path) -> None:
    """R-CRASH-10: of a progress bar its current state is shown; another file, though longer, is read again."""
    log = tmp_path / "out.log"
    log.write_bytes(b"begins\n 10 %\r" + b" 20 %\r" * 20_000 + b" 30 %\r")
    window = LogWindow(str(tmp_path), "command", RUN)
    assert window.newest(final=False).begun == " 30 %"
    (tmp_path / "another").write_bytes(log.read_bytes() + b"\nof another\n")
    (tmp_path / "another").rename(log)
    piece = window.later(final=False)
    assert piece is not None
    assert piece.is_new
    assert texts(piece)[-1] == "of another"


def test_events_out_of_the_middle_say_what_they_say_in_the_whole(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"holdfast": "text", "text": f"word {number}"} for number in range(200)]
    (tmp_path / "out.log").write_text("".join(json.dumps(row) + "\n" for row in rows))
    whole = [row for row in Transcript(str(tmp_path), "scripted", RUN).go_on(final=True) if row["event"] == "text"]
    window = LogWindow(str(tmp_path), "scripted", RUN)
    found = list(window.newest(final=True).rows)
    while (piece := window.earlier()) is not None:
        found = piece.rows + found
    assert whole
    assert [row for row in found if row["event"] == "text"] == whole


class Model:
    """What the paper has, as the page makes it of batches."""

    def __init__(self) -> None:
        self.lines: list[TextLine] = []
        self.begun: TextLine | None = None

    def take(self, batch: Batch) -> None:
        if batch.how == "write":
            self.lines = []
        del self.lines[: batch.drop_first]
        if batch.drop_last:
            del self.lines[-batch.drop_last :]
        self.lines = [*batch.lines, *self.lines] if batch.how == "prepend" else [*self.lines, *batch.lines]
        self.begun = batch.begun


@pytest.mark.parametrize("seed", range(6))
def test_reader_and_paper_agree_whatever_is_wished(tmp_path: Path, seed: int) -> None:
    """R-CRASH-10: while a log grows, is cut or replaced, and somebody goes up and down, what is shown is a piece of it
    without a gap, and no longer than a screen can use."""
    chance, home = random.Random(seed), tmp_path / "home"
    (home / "runs" / "r1").mkdir(parents=True)
    log, written = home / "runs" / "r1" / "out.log", 0
    reader, model = Reader(), Model()
    reader.choice = Choice("r1", "command", 1, False, False, None)
    queries: Any = type("Home", (), {"run_directory": lambda _self, run: str(home / "runs" / run)})()
    for _ in range(300):
        do = chance.choice(("grow", "grow", "grow", "earlier", "later", "newest", "oldest", "follow", "stay", "half"))
        if do in ("grow", "half"):
            with log.open("ab") as file:
                for _line in range(chance.randrange(40)):
                    file.write(b"line %06d\n" % written if do == "grow" else b"")
                    written += do == "grow"
                if do == "half":
                    file.write(b"line %06d" % written)
                    file.flush()
                    _read(reader, queries, model)
                    file.write(b"\n")
                    written += 1
        elif do in ("follow", "stay"):
            reader.follows = do == "follow"
        else:
            reader.wish = do
            if do == "newest":
                reader.follows = True
        _read(reader, queries, model)
        numbers = [int(line.text.removeprefix("line ")) for line in model.lines]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True
        assert len(numbers) < 60 + 2 * 512 // 12
    reader.follows, reader.wish = True, "newest"
    _read(reader, queries, model)
    assert model.lines[-1].text == f"line {written - 1:06}"
    log.write_bytes(b"line 000000\n")  # somebody cut it
    _read(reader, queries, model)
    assert [line.text for line in model.lines] == ["line 000000"]
    log.unlink()
    batch = reader.read(queries)
    assert isinstance(batch, Batch)
    assert batch.is_gone
    assert reader.read(queries) is NOTHING_NEW


def _read(reader: Reader, queries: Queries, model: Model) -> None:
    batch = reader.read(queries)
    if isinstance(batch, Batch):
        model.take(batch)


def test_an_agents_words_neither_move_nor_colour_anything() -> None:
    nasty = "a\x1b[31mb\x1b]0;title\x07c\u202ed\te\u200bf\x00g\ud800h\u2028i\x9b2Jj"
    assert make_printable(nasty) == "abcd    efg�hi2Jj"
    assert len(make_printable("x" * 1_000_000)) < LONGEST + 60
    scribe = LineCollector()
    [line] = scribe.transcribe([{"event": "line", "text": "10 %\r50 %\r100 %"}], None)
    assert line.text == "100 %"
    assert fold("漢字漢字漢", 4) == ["漢字", "漢字", "漢"]
    assert fold("  one two three", 9) == ["  one two", "  three"]
    assert fold("    " + "x" * 9, 8) == ["    xxxx", "  xxxxx"]
    assert fold("a" * 9, 4, exact=True) == ["aaaa", "aaaa", "a"]
    assert fold("漢", 1) == ["漢"]
    chance = random.Random(3)
    pools = (
        "ab \t",
        "\x1b[31m\x1b]0;\x07\x9b\r",
        "漢字",
        "👨‍👩‍👧👍🏽🇩🇪❤️",
        "a\u0301\u00ad\u0600\u180e\u3164",
        "\u202eעברית",
    )
    for _ in range(1500):
        text = make_printable("".join(chance.choice(chance.choice(pools)) for _ in range(chance.randrange(60))))
        width = chance.choice((1, 2, 5, 40))
        for piece in (*fold(text, width), *fold(text, width, exact=True)):
            assert cell_len(piece) <= width or len(piece) == 1
        assert "".join(fold(text, width, exact=True)) == text
