"""Watching runs from outside: reading output as it grows, hearing of changes, and one snapshot of all processes."""

from __future__ import annotations

import asyncio
import ctypes
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fleet import wait_until

from holdfast.agents.command import CommandAgent
from holdfast.agents.port import Stream
from holdfast.agents.scripted import ScriptedAgent
from holdfast.base import clock
from holdfast.base.files import data_lines
from holdfast.core.agents.events import AgentEvent, AgentText, AgentTrouble, Retry, ToolFinished, ToolStarted
from holdfast.core.health.signs import Sign, SignKind, SignReader, signs_from_events
from holdfast.core.runs.liveness import ProcessIdentity
from holdfast.processes.identity import identify
from holdfast.processes.observe import observer
from holdfast.processes.observe.observer import Inotify, RunChanges
from holdfast.processes.observe.output_reader import BLOCK, LONGEST_LINE, MOST_LINES, OutputReader
from holdfast.processes.observe.process_tree import read_trees
from holdfast.processes.observe.run_view import STATE, RunView, start_time_of
from holdfast.processes.run_dir import RunDirectory

FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE = 1, 2


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "channel").mkdir()
    for name in ("out.log", "err.log"):
        (tmp_path / name).touch()
    return tmp_path


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def punch(path: Path, start: int, length: int) -> None:
    """What the keeper does beyond the output cap."""
    fd = os.open(path, os.O_RDWR)
    try:
        mode = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
        done = ctypes.CDLL(None).fallocate(fd, mode, ctypes.c_long(start), ctypes.c_long(length))
    finally:
        os.close(fd)
    if done != 0:
        pytest.skip("this file system has no holes")


def all_lines(reader: OutputReader) -> list[str]:
    lines: list[str] = []
    while reader.read_on(lines.append):
        pass
    return lines


# -- output


def test_each_whole_line_is_read_once(run: Path) -> None:
    log = run / "out.log"
    reader = OutputReader(str(log))
    append(log, "one\ntwo\nthr")
    assert all_lines(reader) == ["one", "two"]
    assert reader.offset == len("one\ntwo\n")
    append(log, "ee\n|\r/\r-\r")
    assert all_lines(reader) == ["three", "|", "/", "-"]
    assert all_lines(reader) == []
    assert all_lines(OutputReader(str(log), 4)) == ["two", "three", "|", "/", "-"]


def test_a_flood_is_read_in_blocks(run: Path) -> None:
    log = run / "out.log"
    wanted = [f"line {number}" for number in range(100_000)]
    append(log, "\n".join(wanted) + "\n")
    reader, lines = OutputReader(str(log)), list[str]()
    assert reader.read_on(lines.append)  # there is more
    assert reader.offset <= BLOCK
    assert lines + all_lines(reader) == wanted


def test_one_look_reads_so_many_lines_and_takes_so_long(run: Path) -> None:
    log = run / "out.log"
    append(log, "\n" * BLOCK + "x")
    reader, lines = OutputReader(str(log)), list[str]()
    assert reader.read_on(lines.append)
    assert len(lines) < MOST_LINES + 100
    assert reader.offset == len(lines)
    reads = 1
    while reader.read_on(lines.append):
        reads += 1
    assert (len(lines), reader.offset) == (BLOCK, BLOCK)
    slow = OutputReader(str(log))

    def hear(line: str) -> None:
        lines.append(line)
        until = time.thread_time() + 0.001
        while time.thread_time() < until:
            pass

    lines.clear()
    assert slow.read_on(hear)
    assert len(lines) < 100


def test_a_line_without_an_end_is_not_kept_for_ever(run: Path) -> None:
    log = run / "out.log"
    append(log, "x" * (LONGEST_LINE + 2 * BLOCK))
    reader = OutputReader(str(log))
    assert all_lines(reader) == []
    append(log, "y\nnext\n")
    assert all_lines(reader) == ["next"]


def test_a_line_of_megabytes_is_one_line(run: Path) -> None:
    """A tool's answer with an image in it; both for the watch and for the judgement at the end."""
    log = run / "out.log"
    lines = ["first", "é" * (LONGEST_LINE // 3), "", "x" * (2 * BLOCK), "no end"]
    append(log, "\n".join(lines))
    assert all_lines(OutputReader(str(log))) == lines[:-1]
    assert list(data_lines(str(log))) == lines
    append(log, "x" * (2 * LONGEST_LINE) + "\nlast")
    read = list(data_lines(str(log)))
    assert read[:4] == lines[:4]
    assert read[-1] == "last"
    assert max(map(len, read)) < LONGEST_LINE + BLOCK, "longer than anything sensible: in pieces"


def test_holes_are_skipped(run: Path) -> None:
    """Beyond the output cap the keeper frees the middle of the log: it is neither read nor taken for output."""
    log = run / "out.log"
    append(log, "".join(f"{number:07}\n" for number in range(1 << 18)))  # 2 MiB
    punch(log, 1 << 19, 1 << 20)
    lines = all_lines(OutputReader(str(log)))
    assert lines[0] == "0000000"
    assert lines[-1] == f"{(1 << 18) - 1:07}"
    assert not any("\0" in line for line in lines)
    assert len(lines) == (1 << 17) - 1  # half of them; the line that the hole ends in may be cut
    assert all_lines(OutputReader(str(log), 1 << 19)) == lines[1 << 16 :]


def test_a_log_that_was_cut_off_or_removed(run: Path) -> None:
    log = run / "out.log"
    reader = OutputReader(str(log))
    append(log, "one\ntwo\n")
    assert len(all_lines(reader)) == 2
    os.truncate(log, 0)
    assert all_lines(reader) == []
    append(log, "new\n")
    assert all_lines(reader) == ["new"]
    log.unlink()
    assert all_lines(reader) == []


# -- one run


def test_a_view_sees_output_heartbeats_and_reports(run: Path) -> None:
    view = RunView(str(run), None, clock.monotonic())
    seen = view.look(clock.monotonic())
    assert (seen.output, seen.channel, view.output_at, view.channel_at) == (False, False, None, None)
    append(run / "err.log", "x")
    seen = view.look(clock.monotonic())
    assert (seen.output, seen.channel) == (True, False)
    (run / "channel" / "heartbeat").touch()
    assert view.look(clock.monotonic()).channel
    append(run / "channel" / "reports", "{}\n")
    assert view.look(clock.monotonic()).channel
    seen = view.look(clock.monotonic())
    assert (seen.output, seen.channel) == (False, False)


def test_the_time_of_an_output_is_that_of_the_file_within_reason(run: Path) -> None:
    """A wall clock that jumps moves nothing beyond the last look."""
    started = clock.monotonic() - 100
    view = RunView(str(run), None, started)
    append(run / "out.log", "x")
    os.utime(run / "out.log", (time.time() - 40, time.time() - 40))
    now = clock.monotonic()
    view.look(now)
    assert view.output_at == pytest.approx(now - 40, abs=1)
    append(run / "out.log", "y")
    os.utime(run / "out.log", (1, 1))  # 1970
    view.look(now + 1)
    assert view.output_at == now
    append(run / "out.log", "z")
    os.utime(run / "out.log", (time.time() + 9999, time.time() + 9999))
    view.look(now + 2)
    assert view.output_at == now + 2


SECRET = "ghp_" + "a1B2c3D4e5F6" * 3


@pytest.mark.parametrize(
    ("output", "does"),
    [
        ("", None),
        ("one\ntwo\n\n", "two"),
        (f"one\ntoken {SECRET} read\n", "token [redacted: a GitHub token] read"),
        ("Continue? [y/N] ", "Continue? [y/N]"),
        (f"token {SECRET[:9]}", "token"),  # half of a secret is not recognized
        ("10%\r20%\r30%\r", "30%"),
        (f"{SECRET[4:]} and so on {'x' * 8192}\n", None),
        (f"{'x' * 9000}\nthe end\n", "the end"),
        ("a\x1b[31mb\u202ec\n", "abc"),
    ],
)
def test_the_last_line_of_plain_output_is_saved_for_lists(run: Path, output: str, does: str | None) -> None:
    append(run / "out.log", output)
    view = RunView(str(run), None, clock.monotonic() - 5)
    view.look(clock.monotonic())
    view.save()
    saved = json.loads((run / STATE).read_text())["does"]
    assert (saved and saved[0]) == does
    assert SECRET[4:] not in (run / STATE).read_text()


def test_the_last_tool_or_text_is_saved_for_lists_and_taken_over(run: Path) -> None:
    """A tool, its end, a text, a piece of a text (which may be half a secret), a retry; the next supervisor goes on."""
    view = RunView(str(run), SignReader(lambda line, _stream: signs_from_events([EVENTS[line]])), clock.monotonic() - 5)

    def saved(line: str) -> str:
        append(run / "out.log", f"{line}\n")
        view.look(clock.monotonic())
        view.save()
        return str(json.loads((run / STATE).read_text())["does"][0])

    assert saved("tool") == "Bash make test [redacted: a GitHub token]"
    assert saved("other tool") == "Read a.txt"
    assert saved("other end") == "Read a.txt", "one of them is still open"
    assert saved("end") == "after Read a.txt"
    assert saved("text") == "and then the tests"
    assert saved("piece") == "and then the tests"
    assert saved("retry") == "retries: overloaded"
    later = RunView(str(run), SignReader(lambda _line, _stream: ()), 0.0)
    later.take_over(clock.monotonic())
    later.told = "stuck"  # something new to save
    later.save()
    assert json.loads((run / STATE).read_text())["does"][0] == "retries: overloaded"
    assert SECRET not in (run / STATE).read_text()


EVENTS: dict[str, AgentEvent] = {
    "tool": ToolStarted(id="1", name="Bash", input=f"make test {SECRET}"),
    "other tool": ToolStarted(id="2", name="Read", input="a.txt"),
    "other end": ToolFinished(id="2", ok=True),
    "end": ToolFinished(id="1", ok=True),
    "text": AgentText(text="I mend it first,\nand then the tests\n\n"),
    "piece": AgentText(text="half", is_delta=True),
    "retry": Retry(trouble=AgentTrouble.OVERLOADED, message="overloaded"),
}


def test_freeing_the_middle_of_a_log_is_no_output(run: Path) -> None:
    """The keeper's doing moves the file's time, but an agent said nothing."""
    append(run / "out.log", "x" * (1 << 16))
    view = RunView(str(run), None, clock.monotonic() - 100)
    assert view.look(clock.monotonic()).output
    before = view.output_at
    punch(run / "out.log", 0, 1 << 15)
    os.utime(run / "out.log", (time.time() + 5, time.time() + 5))
    assert not view.look(clock.monotonic() + 5).output
    assert view.output_at == before
    os.truncate(run / "out.log", 0)
    assert not view.look(clock.monotonic() + 6).output
    append(run / "out.log", "x")
    assert view.look(clock.monotonic() + 7).output


@pytest.mark.parametrize("spoilt", ["1e999", "1" + "0" * 400, "-1", "9223372036854775808"])
@pytest.mark.parametrize("field", ["pid", "start"])
def test_numbers_that_no_process_has_are_no_record(tmp_path: Path, field: str, spoilt: str) -> None:
    one = '{"pid": 7, "start": 8}'
    whole = f'{{"boot_id": "b", "keeper": {one}, "agent": {one}}}'
    (tmp_path / "pid.json").write_text(whole)
    assert RunDirectory(str(tmp_path)).identities() is not None
    (tmp_path / "pid.json").write_text(whole.replace("7" if field == "pid" else "8", spoilt))
    assert RunDirectory(str(tmp_path)).identities() is None


def test_a_file_that_the_agent_left_is_read_whatever_it_is(run: Path) -> None:
    """Whatever stands in its place: the agent can write there. It is neither waited for nor followed."""
    left = run / "channel" / "usage.json"
    assert RunDirectory(str(run)).left("usage.json") == ""
    left.write_bytes(b'{"a": 1}\xff')
    assert RunDirectory(str(run)).left("usage.json") == '{"a": 1}\ufffd'
    left.unlink()
    left.symlink_to("/etc/hostname")
    assert RunDirectory(str(run)).left("usage.json") == ""
    left.unlink()
    os.mkfifo(left)
    assert RunDirectory(str(run)).left("usage.json") == ""


def test_the_machines_sleep_is_no_silence_of_an_agent(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was kept of it (its agent writes no events), and the machine slept for an hour meanwhile."""
    append(run / "out.log", "x")
    os.utime(run / "out.log", (time.time() - 3640, time.time() - 3640))
    boottime = clock.monotonic() + 3600
    monkeypatch.setattr(clock, "boottime", lambda: boottime)
    now = clock.monotonic()
    started = int((boottime - 3700) * os.sysconf("SC_CLK_TCK"))
    view = RunView(str(run), None, start_time_of(ProcessIdentity(boot_id="b", pid=1, start_ticks=started), now))
    assert view.started_at == pytest.approx(now - 100, abs=1)
    view.take_over(now)
    view.look(now)
    assert view.output_at == pytest.approx(now - 40, abs=1)


def test_who_takes_over_reads_on(run: Path) -> None:
    agent = ScriptedAgent()
    view = RunView(str(run), SignReader(agent.signs), clock.monotonic() - 5)
    append(run / "out.log", json.dumps({"holdfast": "tool", "id": 1, "name": "make"}) + "\nhalf a li")
    view.look(clock.monotonic())
    view.told = "stuck"
    view.save()
    other = RunView(str(run), SignReader(agent.signs), 0.0)
    other.take_over(clock.monotonic())
    assert (other.output_at, other.started_at, other.told) == (view.output_at, view.started_at, "stuck")
    assert [tool.name for tool in other.talk.tools.values()] == ["make"]
    seen = other.look(clock.monotonic())
    assert not seen.output
    append(run / "out.log", "ne\n" + json.dumps({"holdfast": "tool", "id": 1, "name": "make", "closed": True}) + "\n")
    assert other.look(clock.monotonic()).output
    assert other.talk.tools == {}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda kept: {**kept, "boot_id": "another boot"},
        lambda kept: {**kept, "offset": 10**9},
        lambda kept: {**kept, "offset": -1},
        lambda kept: {**kept, "offset": math.inf},
        lambda kept: {**kept, "errors_offset": 10**9},
        lambda kept: {**kept, "output_at": 10**400},
        lambda kept: {**kept, "talk": {**kept["talk"], "steps": math.inf}},
        lambda kept: {**kept, "talk": {**kept["talk"], "plight": ["fatal", "no"]}},
        lambda kept: {**kept, "talk": {**kept["talk"], "plight": ["unheard of", "no", 1.0, None]}},
        lambda kept: {**kept, "output_at": 1e18},
        lambda kept: {**kept, "output_at": "now"},
        lambda kept: {**kept, "talk": {}},
        lambda kept: {**kept, "stamps": {"out.log": 1}},
        lambda kept: [kept],
        lambda kept: {},
    ],
)
def test_a_spoilt_record_is_none(run: Path, spoil: Callable[[dict[str, Any]], object]) -> None:
    """The agent can write there, and a power cut may tear it: then everything is read again."""
    agent = ScriptedAgent()
    append(run / "out.log", json.dumps({"holdfast": "tool", "id": 1, "name": "make"}) + "\n")
    view = RunView(str(run), SignReader(agent.signs), clock.monotonic() - 5)
    view.look(clock.monotonic())
    view.save()
    (run / STATE).write_text(json.dumps(spoil(json.loads((run / STATE).read_text()))))
    now = clock.monotonic()
    other = RunView(str(run), SignReader(agent.signs), now - 5)
    other.take_over(now)
    assert other.talk.tools == {}
    assert other.look(now).output
    assert [tool.name for tool in other.talk.tools.values()] == ["make"]
    assert other.output_at is not None
    assert now - 5 <= other.output_at <= now


def heard_in(name: str) -> SignReader:
    """An agent that tries again on standard error, and fails there."""

    def signs(line: str, stream: Stream) -> list[Sign]:
        if stream is Stream.ERR:
            if line.startswith("info"):
                return []
            return [Sign(kind=SignKind.DOOMED if line.startswith("fatal") else SignKind.STEP, content=line)]
        return [Sign(kind=SignKind.PROGRESS, content=line)]

    return SignReader(signs, reads_errors=name == "both")


def test_trouble_on_standard_error_is_heard_where_the_adapter_reads_it(run: Path) -> None:
    append(run / "err.log", "try 1\ntry 2\n")
    for name, steps in (("output", 0), ("both", 2)):
        view = RunView(str(run), heard_in(name), clock.monotonic())
        view.look(clock.monotonic())
        assert (view.talk.steps, view.talk.stall) == (steps, None)
    append(run / "out.log", "well\n")
    append(run / "err.log", "fatal: no\n")
    view.look(clock.monotonic())  # of one look nobody knows the order: the trouble stands, …
    assert view.talk.stall is not None
    assert (view.talk.steps, view.talk.stall.words) == (0, "fatal: no")
    append(run / "out.log", "on it goes\n")
    view.look(clock.monotonic())  # … until it continues
    assert view.talk.stall is None


def test_a_log_that_says_nothing_of_the_agent_is_no_sign_of_life(run: Path) -> None:
    """opencode writes that it cleaned up, while its model has not answered for a minute."""
    for name, is_sign in (("output", True), ("both", False)):
        view = RunView(str(run), heard_in(name), clock.monotonic() - 5)
        view.look(clock.monotonic())
        append(run / "err.log", "info: cleaned up\n")
        assert view.look(clock.monotonic()).output is is_sign
    assert view.output_at is None
    append(run / "err.log", "try 1\n")
    assert view.look(clock.monotonic()).output
    append(run / "out.log", "hello\n")
    append(run / "err.log", "info: cleaned up\n")
    assert view.look(clock.monotonic()).output


def test_who_takes_over_reads_errors_once(run: Path) -> None:
    """Also after a supervisor of an older version, which read none of them and kept no place in them."""
    view = RunView(str(run), heard_in("both"), clock.monotonic() - 5)
    append(run / "err.log", "try 1\ntr")
    view.look(clock.monotonic())
    view.save()
    append(run / "err.log", "y 2\n")
    kept = json.loads((run / STATE).read_text())
    assert (kept["offset"], kept["errors_offset"]) == (0, 6)
    before = {key: value for key, value in kept.items() if key != "errors_offset"}
    before["talk"] = {**before["talk"], "steps": 0}
    for state in (kept, before):
        (run / STATE).write_text(json.dumps(state))
        other = RunView(str(run), heard_in("both"), 0.0)
        other.take_over(clock.monotonic())
        other.look(clock.monotonic())
        assert other.talk.steps == 2


# -- changes


class NoInotify(Inotify):
    def __init__(self) -> None:
        raise OSError("no inotify here")


@pytest.mark.parametrize("how", ["inotify", "polling"])
def test_changes_are_heard_of(run: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """By the kernel's word, or, where it has none, by looking now and then."""
    if how == "polling":
        monkeypatch.setattr(observer, "Inotify", NoInotify)
        monkeypatch.setattr(observer, "POLL", 0.05)
    heard: list[tuple[str, bool]] = []

    async def until_heard(act: Callable[[], object]) -> tuple[str, bool]:
        act()
        async with asyncio.timeout(60):
            while not heard:  # noqa: ASYNC110 - a file rings no bell
                await asyncio.sleep(0.01)
        first = heard[0]
        await asyncio.sleep(0.2)
        heard.clear()
        return first

    async def listen() -> None:
        watching = RunChanges(lambda run_id, is_output: heard.append((run_id, is_output)))
        try:
            watching.watch("run", str(run))
            is_log = how == "inotify"
            assert await until_heard(lambda: append(run / "out.log", "x")) == ("run", is_log)
            assert await until_heard(lambda: append(run / "err.log", "x")) == ("run", is_log)
            assert await until_heard(lambda: (run / "channel" / "heartbeat").touch()) == ("run", False)
            assert await until_heard(lambda: os.utime(run / "channel" / "heartbeat")) == ("run", False)
            assert await until_heard(lambda: append(run / "channel" / "reports", "x")) == ("run", False)
            (run / "exit.json.room").touch()
            assert await until_heard(lambda: (run / "exit.json.room").rename(run / "exit.json")) == ("run", False)
            watching.unwatch("run")
            append(run / "out.log", "x")
            await asyncio.sleep(0.2)
            assert heard == []
        finally:
            watching.close()

    asyncio.run(listen())


def test_many_writes_are_one_change(run: Path) -> None:
    heard: list[str] = []

    async def listen() -> None:
        watching = RunChanges(lambda run_id, _is_output: heard.append(run_id))
        try:
            watching.watch("run", str(run))
            until = time.monotonic() + 0.4
            while time.monotonic() < until:
                append(run / "out.log", "x\n")
                await asyncio.sleep(0.001)
        finally:
            watching.close()

    asyncio.run(listen())
    assert 1 <= len(heard) <= 10


# -- processes

BUSY = """
import os, subprocess, sys, time
if os.fork() == 0:
    until = time.process_time() + 0.3
    while time.process_time() < until: pass
    os._exit(0)
os.wait()
child = subprocess.Popen(["sleep", "1000"])
print(child.pid, flush=True)
child.wait()
"""


@pytest.fixture
def keeper() -> Iterator[subprocess.Popen[str]]:
    """Stands for a keeper: its child burns CPU, is waited for, and starts another."""
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {BUSY!r}])"
    process = subprocess.Popen([sys.executable, "-S", "-c", script], stdout=subprocess.PIPE, text=True, process_group=0)
    yield process
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def test_a_snapshot_counts_the_living_and_the_dead(keeper: subprocess.Popen[str]) -> None:
    """CPU of children that ended counts on; the keeper's own does not; another process under its pid is not it."""
    assert keeper.stdout is not None
    sleeper = int(keeper.stdout.readline())
    root = identify(keeper.pid)
    assert root is not None
    stranger = type(root)(boot_id=root.boot_id, pid=root.pid, start_ticks=root.start_ticks + 1)
    found = read_trees({"run": root, "stranger": stranger})
    assert set(found) == {"run"}
    tree = found["run"]
    assert sleeper in tree.pids
    assert keeper.pid not in tree.pids
    assert 0.25 < tree.cpu < 3
    assert clock.boottime() - 60 < tree.newest_start <= clock.boottime()
    assert tree.resident > 0
    os.kill(sleeper, signal.SIGKILL)
    wait_until(lambda: not read_trees({"run": root})["run"].pids, "the tree is empty")
    assert read_trees({"run": root})["run"].cpu >= tree.cpu


# -- signs of the agents that there are


@pytest.mark.parametrize(
    ("line", "sign"),
    [
        ("", None),
        ("   ", None),
        ("Looking around", Sign(kind=SignKind.PROGRESS, content="Looking around")),
        ('{"holdfast": "event", "name": "tick"}', Sign(kind=SignKind.STEP, content="tick")),
        (
            '{"holdfast": "text", "text": "x"}',
            Sign(kind=SignKind.PROGRESS, content='{"holdfast": "text", "text": "x"}'),
        ),
        (
            '{"holdfast": "tool", "id": 1, "name": "make", "input": "all", "deadline": 5.0}',
            Sign(kind=SignKind.TOOL_OPENED, tool="1", name="make", content="make all", deadline=5.0),
        ),
        (
            '{"holdfast": "tool", "id": 1, "name": "make", "closed": true}',
            Sign(kind=SignKind.TOOL_CLOSED, tool="1", name="make", content="make None"),
        ),
        (
            '{"holdfast": "tool", "id": 1, "na',
            Sign(kind=SignKind.PROGRESS, content='{"holdfast": "tool", "id": 1, "na'),
        ),
    ],
)
def test_signs_of_the_scripted_agent(line: str, sign: Sign | None) -> None:
    assert list(ScriptedAgent().signs(line, Stream.OUT)) == ([] if sign is None else [sign])
    assert not CommandAgent().signs(line, Stream.OUT)
