"""The reader of agents' reports, on whatever an agent may put there: bounded, never stuck, never wrong (R-TERM-12)."""

from __future__ import annotations

import json
import os
import random
import socket
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.api.agent_reports import ReportWriter
from holdfast.core.model import Report, ReportKind
from holdfast.processes.agent_channel import (
    BLOCK,
    MOST_LINE,
    MOST_MESSAGE,
    MOST_READ,
    MOST_REFUSALS,
    ReportFile,
    parse_report,
)
from holdfast.processes.port import ReportBatch
from holdfast.processes.run_dir import RunDirectory

TOKEN = "the-token"
QUICK = 2.0  # seconds that no single read may take, on a loaded machine


def line(kind: str = "progress", message: object = "m", token: object = TOKEN, **more: object) -> bytes:
    return json.dumps({"token": token, "report": kind, "message": message, **more}).encode() + b"\n"


def all_of(reader: ReportFile) -> tuple[list[Report], int]:
    """To the end, as after an agent's death."""
    found: list[Report] = []
    refused = 0
    for _ in range(10_000):
        batch = quick(reader)
        found += batch.reports
        refused += batch.refused
        if not batch.more:
            return found, refused
    pytest.fail("it never came to an end")


def quick(reader: ReportFile, *, last: bool = True) -> ReportBatch:
    began = time.thread_time()  # CPU: on a busy machine the clock continues without us
    batch = reader.read(last=last)
    assert time.thread_time() - began < QUICK
    return batch


class TestReading:
    def test_it_goes_on_from_where_it_was(self, tmp_path: Path) -> None:
        reader = ReportFile(str(tmp_path), TOKEN)
        assert not reader.changed()
        assert quick(reader).reports == ()
        file = tmp_path / "reports"
        file.write_bytes(line(message="one", percent=12.5))
        assert reader.changed()
        first = reader.read()
        assert first.reports == [Report(kind=ReportKind.PROGRESS, message="one", percent=12.5)]
        assert not reader.changed()
        with file.open("ab") as more:
            more.write(line("complete", "two"))
        assert reader.changed()
        assert [report.kind for report in reader.read().reports] == ["complete"]
        later = ReportFile(str(tmp_path), TOKEN, first.offset)
        assert [report.message for report in later.read().reports] == ["two"]

    def test_a_torn_line_waits_for_its_rest(self, tmp_path: Path) -> None:
        reader, whole = ReportFile(str(tmp_path), TOKEN), line("complete")
        for cut in range(1, len(whole)):
            (tmp_path / "reports").write_bytes(whole[:cut])
            assert reader.read() == ReportBatch(offset=0, reports=[])
        (tmp_path / "reports").write_bytes(whole)
        assert len(reader.read().reports) == 1

    def test_at_the_end_a_whole_report_without_its_newline_counts_and_a_torn_one_does_not(self, tmp_path: Path) -> None:
        (tmp_path / "reports").write_bytes(line("complete")[:-1])
        assert len(quick(ReportFile(str(tmp_path), TOKEN)).reports) == 1
        (tmp_path / "reports").write_bytes(line("complete")[:-3])
        assert quick(ReportFile(str(tmp_path), TOKEN)).refused == 1

    def test_a_file_that_is_written_anew_is_read_anew(self, tmp_path: Path) -> None:
        """`>` in the place of `>>`."""
        reader = ReportFile(str(tmp_path), TOKEN)
        (tmp_path / "reports").write_bytes(line() * 3)
        assert len(reader.read().reports) == 3
        (tmp_path / "reports").write_bytes(line("complete"))
        assert [report.kind for report in reader.read().reports] == ["complete"]
        (tmp_path / "new").write_bytes(line("fail") * 9)
        (tmp_path / "new").rename(tmp_path / "reports")
        assert len(reader.read().reports) == 9

    def test_a_line_that_is_too_long_is_skipped_and_the_next_one_counts(self, tmp_path: Path) -> None:
        for length in (MOST_LINE + 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK):
            (tmp_path / "reports").write_bytes(b"x" * length + b"\n" + line("complete"))
            found, refused = all_of(ReportFile(str(tmp_path), TOKEN))
            assert ([report.kind for report in found], refused) == (["complete"], 1), length

    def test_the_largest_report_of_the_command_fits(self, tmp_path: Path) -> None:
        reporter = ReportWriter({"HOLDFAST_CHANNEL": str(tmp_path), "HOLDFAST_RUN_TOKEN": "t" * 32})
        for message in ("🦀" * 5000, '"\\' * 5000, "\udcff" * 5000, "\x00\x1b[31m" * 3000 + "end", "a\nb"):
            reporter.report("progress", message, 33.3)
        found, refused = all_of(ReportFile(str(tmp_path), "t" * 32))
        assert (len(found), refused) == (5, 0)
        assert max(len(report.message) for report in found) == MOST_MESSAGE
        assert [report.message for report in found[-2:]] == ["end", "a b"]


class TestHostility:
    @pytest.mark.parametrize("what", ["fifo", "directory", "symlink", "dangling", "device", "socket", "folder-symlink"])
    def test_what_is_no_plain_file_is_not_read(self, tmp_path: Path, what: str) -> None:
        folder, secret = tmp_path / "channel", tmp_path / "secret"
        folder.mkdir()
        secret.mkdir()
        (secret / "reports").write_bytes(line("complete"))
        target = folder / "reports"
        if what == "fifo":
            os.mkfifo(target)
        elif what == "directory":
            target.mkdir()
        elif what == "socket":
            with socket.socket(socket.AF_UNIX) as bound:
                bound.bind(str(target))
        elif what == "folder-symlink":
            folder.rmdir()
            folder.symlink_to(secret)
        else:
            places = {"symlink": str(secret / "reports"), "dangling": "nowhere", "device": "/dev/zero"}
            target.symlink_to(places[what])
        reader = ReportFile(str(folder), TOKEN)
        batch = quick(reader)
        assert (list(batch.reports), batch.refused) == ([], 1)
        assert "plain file" in batch.refused_why
        assert not reader.changed(), "told once, not at every look"

    def test_a_hundred_megabytes_are_read_in_pieces_and_not_to_their_end(self, tmp_path: Path) -> None:
        with (tmp_path / "reports").open("wb") as file:
            file.write(line("progress", "first"))
            file.truncate(100 * 1024 * 1024)  # sparse: a single line of NULs
        reader = ReportFile(str(tmp_path), TOKEN)
        found, refused = all_of(reader)
        assert ([report.message for report in found], refused) == (["first"], 2)
        assert reader.read().offset <= MOST_READ

    def test_a_flood_of_lines_does_not_hold_the_loop_up(self, tmp_path: Path) -> None:
        with (tmp_path / "reports").open("wb") as file:
            file.write(b"\n" * BLOCK + b"[]\n" * BLOCK + line() * 1000)
        found, refused = all_of(ReportFile(str(tmp_path), TOKEN))
        assert (len(found), refused) == (1000, BLOCK)

    def test_a_block_of_nonsense_is_not_parsed_to_its_end(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """All is counted, and a report among it is still found."""
        parsed: list[bytes] = []

        def counting(line: bytes, token: str) -> Report | str:
            parsed.append(line)
            return parse_report(line, token)

        monkeypatch.setattr("holdfast.processes.agent_channel.parse_report", counting)
        (tmp_path / "reports").write_bytes(b"x\n" * 60_000 + line("complete") + b"x\n" * 100)
        batch = quick(ReportFile(str(tmp_path), TOKEN))
        assert ([report.kind for report in batch.reports], batch.refused) == (["complete"], 60_100)
        assert len(parsed) <= MOST_REFUSALS + 1

    def test_writing_anew_does_not_begin_the_measure_anew(self, tmp_path: Path) -> None:
        reader, whole = ReportFile(str(tmp_path), TOKEN), b"\n" * BLOCK
        read = 0
        for number in range(2 * MOST_READ // BLOCK):
            (tmp_path / "new").write_bytes(whole + b"\n" * (number % 2))
            (tmp_path / "new").rename(tmp_path / "reports")
            before = reader._total
            batch = reader.read()
            read += reader._total - before
        assert read <= MOST_READ
        assert batch == ReportBatch(offset=batch.offset), "told once, not at every look"

    @settings(max_examples=150, deadline=None)
    @given(pieces=st.lists(st.one_of(st.binary(max_size=300), st.sampled_from([b"\n", line()[:20], line()]))))
    def test_random_bytes_never_break_it(self, tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]) -> None:
        """Whatever is written and however it is torn: no exception, no report that nobody made, an end in sight."""
        folder = tmp_path_factory.mktemp("channel")
        content = b"".join(pieces)
        reader = ReportFile(str(folder), TOKEN)
        found: list[Report] = []
        for cut in sorted(random.Random(len(content)).choices(range(len(content) + 1), k=4)):
            with (folder / "reports").open("ab") as file:
                file.write(content[file.tell() : cut])
            found += reader.read().reports
        with (folder / "reports").open("ab") as file:
            file.write(content[file.tell() :])
        found += all_of(reader)[0]
        at_once = all_of(ReportFile(str(folder), TOKEN))[0]
        assert found == at_once
        assert len(found) <= content.count(TOKEN.encode())

    @pytest.mark.parametrize(
        "bad",
        [
            b"", b"{", b"null", b"[1]", b'"x"', b"\xff\xfe{", b"[" * 4000, b"{" * 4000, b"1" * 4000,
            line(token="other"), line(token=None), line(token=""), line(token=[TOKEN]), line("chequepoint"),
            line("COMPLETE"), line(message=" \x07"),
            line(message=7), line(message=None), line(percent=101), line(percent=-1), line(percent="5"),
            line(percent=True),
            line(percent=float("nan")), line(percent=10**300), json.dumps({"report": "complete"}).encode(),
            json.dumps({"token": TOKEN, "report": ["complete"]}).encode(), line(message="x" * MOST_LINE),
        ],
        ids=lambda bad: repr(bad[:30]),
    )  # fmt: skip
    def test_what_is_no_report(self, bad: bytes) -> None:
        assert isinstance(parse_report(bad.rstrip(b"\n"), TOKEN), str)

    def test_without_a_token_of_ours_nothing_is_believed(self) -> None:
        """A run of an earlier version, or a spoilt intent: an empty token is nobody's."""
        assert parse_report(line(token=""), "") == "a wrong token"

    def test_messages_are_cleaned(self) -> None:
        report = parse_report(line("fail", "a\x1b[2J\x07\nb\ud800c\u0000" + "x" * 3000), TOKEN)
        assert isinstance(report, Report)
        assert report.message.startswith("a b?cxxx")
        assert len(report.message) == MOST_MESSAGE
        report.message.encode()


class TestToken:
    def test_it_is_found_again(self, tmp_path: Path) -> None:
        directory = RunDirectory(str(tmp_path / "run"))
        assert directory.token() == ""
        directory.prepare({"token": TOKEN, "argv": ["x" * 100_000] * 10}, "")
        assert directory.token() == TOKEN
        assert (tmp_path / "run" / "intent.json").stat().st_mode & 0o777 == 0o600

    @pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"token": 7}', b"\xff"])
    def test_a_spoilt_record_names_none(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "intent.json").write_bytes(content)
        assert RunDirectory(str(tmp_path)).token() == ""

    def test_a_fifo_in_its_place_is_not_waited_for(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "intent.json")
        assert RunDirectory(str(tmp_path)).token() == ""


def test_trouble_of_the_machine_is_not_taken_for_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Out of descriptors is "cannot tell": it is tried again."""
    (tmp_path / "reports").write_bytes(line())

    def no_descriptors(*_: object, **__: object) -> int:
        raise OSError(24, "Too many open files")

    reader = ReportFile(str(tmp_path), TOKEN)
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", no_descriptors)
        with pytest.raises(OSError, match="Too many"):
            reader.read()
    assert len(reader.read().reports) == 1
