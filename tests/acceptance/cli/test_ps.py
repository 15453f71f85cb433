"""`ps`: one line per task at any width, with the columns and the order that a person asks for."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from tests.acceptance.cli.test_cli_contract import shown_on_terminal
from tests.fleet import Fleet, state_of, wait_until

from holdfast.cli.output.task_table import cell_width, cut

NONE = ("--workspace", "none")
PROMPTS = (
    "fix the parser so that it reads the whole file at once and never again",
    "修复解析器并解释原因，然后为每个模块编写测试，不要忘记文档和示例",
    "one\nline\n\tof four\nhere",
    "né 🚀🚀🚀 ｆｕｌｌ width 한국어 프롬프트 e\u0301e\u0301e\u0301 " * 3,
    "\x1b[31mred\x1b[2J and \u202e reversed",
)


def lines_at(fleet: Fleet, width: int, *arguments: object) -> list[str]:
    """The lines of `ps` where the terminal is so wide."""
    return fleet.cli("ps", *arguments, env={"COLUMNS": str(width)}).stdout.splitlines()


def heads(line: str) -> list[str]:
    return line.split()


def test_each_task_has_one_line_at_any_width(fleet: Fleet) -> None:
    """F9: from 42 to 220 cells a task takes exactly one line; what does not fit is cut with …, never wrapped."""
    tasks = [fleet.add(prompt, command=("true",)) for prompt in PROMPTS]
    for width in (1, 20, 42, 60, 80, 100, 119, 120, 160, 220):
        listed = lines_at(fleet, width)
        assert len(listed) == 1 + len(tasks), width
        assert all(cell_len(line) <= width for line in listed), (width, listed)
        assert "\x1b" not in "".join(listed)
        if width < 42:
            continue
        for task, line in zip(tasks, listed[1:], strict=True):
            shown, state = line.split()[:2]
            assert task.startswith(shown)
            assert len(shown) >= 4
            assert state == "queued"
            assert fleet.json("show", shown)[0]["id"] == task, "what is shown can be typed"
        assert "…" in listed[1] or width > 120
    assert {"PROMPT", "WHY"} <= set(heads(lines_at(fleet, 42)[0]))
    assert heads(lines_at(fleet, 220)[0]) == ["ID", "STATE", "AGENT", "AGE", "RUNS", "PROMPT", "WHY"]
    assert PROMPTS[0] in lines_at(fleet, 220)[1]
    assert tasks[0] in lines_at(fleet, 220)[1]

    wide = lines_at(fleet, 42, "--wide")
    assert PROMPTS[0] in wide[1]
    assert tasks[0] in wide[1]
    piped = fleet.cli("ps").stdout.splitlines()
    assert tasks[0] in piped[1]
    assert piped[1].endswith("no supervisor is running: holdfast up"), "in a pipe, WHY is not cut"
    on_terminal = shown_on_terminal(fleet, "ps", env={"NO_COLOR": "1", "COLUMNS": "60"}).replace("\r", "")
    assert on_terminal.startswith("\n".join(lines_at(fleet, 60)))


@pytest.mark.parametrize("text", [*PROMPTS, "ab", "", "a"])
def test_a_cut_text_is_never_too_wide(text: str) -> None:
    printable = "".join(letter for letter in text if letter.isprintable())
    for width in range(12):
        assert cell_len(cut(printable, width)) <= width
        assert cell_width(cut(printable, width)) == cell_len(cut(printable, width))


def test_a_running_task_tells_what_its_agent_does(fleet: Fleet) -> None:
    """F9: WHY of a running task is the last tool or line of its agent, and its age; without secrets."""
    secret = "ghp_" + "a1B2c3D4e5F6" * 3
    go = fleet.root / "go"
    fleet.up()
    tool = fleet.add_scenario({"say": "I look around"}, {"tool": {"name": "Bash", "input": f"make test {secret}"}})
    line = fleet.add("x", command=("sh", "-c", f"echo first; echo 'token {secret} read'; read x < {fifo(go)}"))
    wait_until(lambda: "Bash make test" in fleet.cli("ps").stdout, "the tool is told")
    wait_until(lambda: "token" in fleet.cli("ps").stdout, "the last line is told")
    for width in (60, 80, 200):
        by_id = {words[0]: words for words in map(str.split, lines_at(fleet, width)[1:])}
        for task, start in ((tool, "Bash"), (line, "token")):
            shown = " ".join(next(words for short, words in by_id.items() if task.startswith(short)))
            assert start in shown, (width, shown)
            assert re.search(r", \d+\w+( \d+s)?$", shown), (width, shown)
    everything = [fleet.cli("ps", "--wide").stdout, fleet.cli("top", "--once").stdout]
    everything += [path.read_text() for path in fleet.home.glob("runs/*/reading.json")]
    assert all("Bash make test" in text for text in everything[:2]), "top uses the same words"
    assert "ago: Bash make test" in fleet.cli("why", tool).stdout
    assert not any(secret in text or secret[8:30] in text for text in everything)
    go.write_text("x\n")
    fleet.wait_state(line, "completed")
    assert "token" not in "".join(row for row in fleet.cli("ps", "--all").stdout.splitlines() if row.startswith(line))
    fleet.cli("cancel", tool)


def fifo(path: Path) -> Path:
    os.mkfifo(path)
    return path


def test_a_forged_record_of_an_agent_is_nothing_worse_than_no_record(fleet: Fleet) -> None:
    """The agent can write where the supervisor saves what it does: `ps` neither hangs nor breaks."""
    go = fleet.root / "go"
    fleet.up()
    task = fleet.add("x", command=("sh", "-c", f"echo hello; read x < {fifo(go)}"))
    wait_until(lambda: "hello" in fleet.cli("ps").stdout, "the line is told")
    [saved] = fleet.home.glob("runs/*/reading.json")
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    for forged in (
        "[]", "{", '{"does": 3}', f'{{"boot_id":"{boot}","does":["\\u001b[2Jx",1e999]}}',
        f'{{"boot_id":"{boot}","does":["x",NaN]}}', f'{{"boot_id":"{boot}","does":[["x"],-5]}}', "[" * 100_000,
    ):  # fmt: skip
        saved.unlink()
        saved.write_text(forged)
        listed = fleet.cli("ps").stdout
        assert task in listed
        assert "\x1b" not in listed
    saved.unlink()
    os.mkfifo(saved)
    assert task in fleet.cli("ps").stdout
    go.write_text("x\n")
    fleet.wait_state(task, "completed")


def test_columns_order_and_number_are_chosen(fleet: Fleet) -> None:
    first = fleet.add("bbb", "--label", "area=docs", command=("true",))
    second = fleet.add("aaa", "--priority", 5, command=("true",))
    third = fleet.add("ccc", command=("true",))
    ids = [line.split()[0] for line in fleet.cli("ps", "--columns", "id,prompt").stdout.splitlines()]
    assert ids == ["ID", first, second, third]
    shown = fleet.cli("ps", "--columns", "labels, priority ,id,path").stdout.splitlines()
    assert heads(shown[0]) == ["LABELS", "PRIORITY", "ID", "PATH"]
    assert shown[1].split() == ["area=docs", "0", first, str(fleet.repo)]
    assert order(fleet, "--sort", "prompt") == [second, first, third]
    assert order(fleet, "--sort", "-prompt") == [third, first, second]
    assert order(fleet, "--sort=-prompt", "--limit", 2) == [third, first]
    assert order(fleet, "--sort", "priority") == [second, first, third]
    assert order(fleet, "--sort", "age") == [third, second, first]
    assert [row["id"] for row in fleet.json("ps", "--sort", "-prompt", "--limit", 2)] == [third, first]
    assert "the first 2 of 3 tasks" in fleet.cli("ps", "--limit", 2).stderr
    for option, value, known in (("--columns", "id,colour", "prompt, why"), ("--sort", "-taste", "priority")):
        refused = fleet.cli("ps", option, value, code=2).stderr
        assert value.split(",")[-1] in refused
        assert known in refused
    assert "not between 1 and" in fleet.cli("ps", "--limit", 0, code=2).stderr


def order(fleet: Fleet, *arguments: object) -> list[str]:
    return [line.strip() for line in fleet.cli("ps", "--columns", "id", *arguments).stdout.splitlines()[1:]]


def test_two_repositories_have_a_column(fleet: Fleet) -> None:
    """F5: one home serves all repositories, so a list of several names each."""
    fleet.add("one", command=("true",))
    assert "REPO" not in heads(fleet.cli("ps").stdout.splitlines()[0])
    other = fleet.make_repo(fleet.root / "shop")
    fleet.add("two", command=("true",), cwd=other)
    listed = fleet.cli("ps").stdout.splitlines()
    assert "REPO" in heads(listed[0])
    assert [line.split()[3] for line in listed[1:]] == ["repo", "shop"]


def listed(fleet: Fleet, *arguments: object, cwd: Path | None = None) -> set[str]:
    return {json.loads(line)["id"] for line in fleet.cli("ps", *arguments, "--json", cwd=cwd).stdout.splitlines()}


def test_words_and_options_select_tasks(fleet: Fleet) -> None:
    """F5: the filter words of `top` are arguments of `ps`; ids show those tasks; options mean the same, exactly."""
    other = fleet.make_repo(fleet.root / "shop")
    docs = fleet.add("write the manual", "--label", "area=docs", command=("true",))
    web = fleet.add("mend the window", "--label", "area=docs2", "--label", "team=web", command=("true",))
    shop = fleet.add("count the goods", command=("true",), cwd=other)
    held = fleet.add("hold on", command=("true",))
    over = fleet.add("over and out", command=("true",))
    fleet.cli("pause", held)
    fleet.cli("cancel", over)
    active = {docs, web, shop, held}
    for arguments, wanted in (
        ((), active),
        (("--all",), {*active, over}),
        (("state:paused",), {held}),
        (("--state", "paused"), {held}),
        (("--state", "paused", "--state", "cancelled"), {held, over}),
        (("state:cancelled",), {over}),
        (("!state:paused",), active - {held}),
        (("--all", "!state:queued"), {held, over}),
        (("agent:command",), active),
        (("--agent", "command", "!manual"), active - {docs}),
        (("--agent", "claude"), set()),
        (("label:area=docs",), {docs, web}),
        (("--label", "area=docs"), {docs}),
        (("--label", "area"), {docs, web}),
        (("--label", "area=docs2", "--label", "team=web"), {web}),
        (("manual",), {docs}),
        (("THE", "mend"), {web}),
        ((docs,), {docs}),
        ((docs[:6], over[:6]), {docs, over}),
        ((docs, over, "--state", "cancelled"), {over}),
        ((f"repo:{other}",), {shop}),
        (("--repo", other / ".git"), {shop}),
    ):
        assert listed(fleet, *arguments) == wanted, arguments
        shown = fleet.cli("ps", *arguments, "--columns", "id").stdout.split()[1:]
        assert set(shown) == wanted, arguments
    assert listed(fleet, "repo:.", cwd=other) == {shop}
    assert listed(fleet, "--repo", ".", cwd=other) == {shop}
    assert listed(fleet, "--repo", ".", cwd=fleet.repo / "src") == active - {shop}


def test_a_wrong_word_is_answered_with_the_known_ones(fleet: Fleet) -> None:
    """F5: a word that is no id and no filter, a filter that does not exist, a state that does not: each says more."""
    fleet.add("write", "--label", "area=docs", command=("true",))
    for arguments, code, words in (
        (("npy8npy8",), 3, ("No task has 'npy8npy8'", "holdfast ps --all npy8npy8", "state:")),
        (("npy8npy8", "--json"), 3, ("No task has",)),
        (("\x1b[31mx",), 3, ("No task has",)),
        (("stat:paused",), 2, ("no filter 'stat:'", "state:", "label:")),
        (("state:done",), 2, ("There is no state 'done'", "completed")),
        (("--state", "complete"), 2, ("no state 'complete'", "completed")),
        (("--state", ""), 2, ("no state ''",)),
        (("--repo", "/"), 3, ("No task belongs to a repository at /", str(fleet.repo))),
        (("repo:/nowhere",), 3, (str(fleet.repo),)),
        (("--agent", "claude"), 0, ("no task matches", "agents here: command", "labels here: area=docs")),
        (("label:area=web",), 0, ("no task matches", "labels here: area=docs")),
    ):
        answer = fleet.cli("ps", *arguments, code=code)
        assert answer.stdout == ""
        assert all(word in answer.stderr for word in words), answer.stderr
        assert "\x1b" not in answer.stderr


class Stream:
    """`ps --json --watch` in the background, which ends with the block; what it printed so far."""

    def __init__(self, fleet: Fleet, *arguments: object) -> None:
        self.process = fleet.start("ps", "--json", "--watch", *arguments)
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.output, self.errors = self.process.stdout, self.process.stderr
        os.set_blocking(self.output.fileno(), False)
        self._text = b""

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_error: object) -> None:
        self.output.close()
        self.errors.close()
        self.process.kill()
        self.process.wait()

    def rows(self) -> list[dict[str, Any]]:
        self._text += self.output.read() or b""
        return [json.loads(line) for line in self._text.splitlines(keepends=True) if line.endswith(b"\n")]

    def states(self, task: str) -> list[str]:
        return [str(row.get("state", "forgotten")) for row in self.rows() if row["id"] == task]

    def end(self) -> tuple[int, bytes]:
        """Its exit code, and what it said."""
        return self.process.wait(), self.errors.read()


def test_json_and_watch_stream_each_change(fleet: Fleet) -> None:
    """F15: first the list, then one line per change of a task, at once; Ctrl-C ends it without a word."""
    go = fifo(fleet.root / "go")
    first = fleet.add("first", command=("true",))
    with Stream(fleet) as stream:
        wait_until(lambda: stream.states(first) == ["queued"], "the list is printed")
        assert set(stream.rows()[0]) == {*fleet.json("ps")[0], "schema"}
        second = fleet.add("second", command=("sh", "-c", f"read x < {go}"))
        wait_until(lambda: stream.states(second) == ["queued"], "a new task is printed")
        assert stream.states(first) == ["queued"], "what did not change is not printed again"
        fleet.up()
        wait_until(lambda: "running" in stream.states(second), "its start is printed")
        go.write_text("x\n")
        wait_until(lambda: stream.states(second)[-1] == "completed", "a task that leaves the list is printed once more")
        wait_until(lambda: stream.states(first)[-1] == "completed", "likewise")
        fleet.wait_clean()
        stream.process.send_signal(signal.SIGINT)
        assert stream.end() == (130, b"")


def test_a_stream_is_of_the_tasks_that_were_asked_for(fleet: Fleet) -> None:
    """Filters count for every change: a task comes when it begins to match, and once more when it ends to."""
    task = fleet.add("one", command=("true",))
    with Stream(fleet, "state:paused") as stream:
        fleet.cli("pause", task)
        wait_until(lambda: stream.states(task) == ["paused"], "it matches now")
        fleet.add("two", command=("true",))
        fleet.cli("resume", task)
        wait_until(lambda: stream.states(task) == ["paused", "queued"], "it does not match any more")
        assert {row["id"] for row in stream.rows()} == {task}
        refused = fleet.cli("ps", "--json", "--watch", "--limit", 3, code=2).stderr
        assert "--limit" in refused


def test_a_stream_without_a_reader_ends_by_itself(fleet: Fleet) -> None:
    """F15: whoever reads the stream goes away: it ends at once and quietly, although nothing changes."""
    task = fleet.add("one", command=("true",))
    with Stream(fleet) as stream:
        wait_until(lambda: stream.states(task) == ["queued"], "the list is printed")
        stream.output.close()
        assert stream.end() == (0, b"")


def test_an_idle_stream_costs_nothing(fleet: Fleet) -> None:
    """It sleeps until the store is written to, and then prints at once: no busy polling."""
    task = fleet.add("one", command=("true",))
    with Stream(fleet) as stream:
        wait_until(lambda: stream.states(task) == ["queued"], "the list is printed")
        wait_until(lambda: state_of(stream.process.pid) == "S", "it sleeps")
        calls = switches(stream.process.pid)
        began = time.monotonic()
        wait_until(lambda: time.monotonic() > began + 3, "three seconds pass")
        assert switches(stream.process.pid) - calls < 8, "it woke a few times in three seconds"


def switches(pid: int) -> int:
    """How often the process slept so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("voluntary_ctxt_switches")))


def test_a_completed_task_tells_whether_it_was_merged(fleet: Fleet) -> None:
    """The facts of the store alone, no git: merged into a branch, not merged, no changes."""
    fleet.up()
    made = fleet.add("make a file", command=("sh", "-c", "echo a > a.txt; git add a.txt; git commit -qm a"))
    idle = fleet.add("make nothing", command=("true",))
    for task in (made, idle):
        fleet.wait_state(task, "completed")
    fleet.wait_clean()

    def why(task: str) -> str:
        line = fleet.cli("ps", task, "--columns", "why").stdout.splitlines()[1]
        assert line in fleet.cli("top", "--once", "--all").stdout, "top uses the same words"
        return line

    assert why(made).startswith("not merged: ")
    assert why(idle).startswith("no changes: ")
    assert fleet.json("ps", made)[0]["merged_into"] is None
    fleet.cli("merge", made)
    assert why(made).startswith("merged into main: ")
    assert fleet.json("ps", made)[0]["merged_into"] == "main"
    fleet.cli("branches", "prune", "--merged")
    assert why(made).startswith("merged into main: ")
    fleet.cli("send", made, "once more")
    fleet.wait_state(made, "completed")
    fleet.wait_clean()
    assert not why(made).startswith("merged"), "its new work is not merged"
