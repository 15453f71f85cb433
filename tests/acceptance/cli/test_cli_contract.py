"""The command line's contract, from outside: exit codes, --json, ids, Ctrl-C, terminals, queue order, workspaces."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.fleet import PATIENCE, Fleet, lives, state_of, stopped_between_writes, user_name, wait_until

ESCAPE = "\x1b"
NASTY = "tidy \x1b[31mred\x1b[0m \x1b]0;owned\x07 \x9b2J \x1bc the docs"


class Started:
    """A CLI process that continues while the test does; its output is in files."""

    def __init__(self, process: subprocess.Popen[bytes], out: Path, err: Path) -> None:
        self.process = process
        self._out = out
        self._err = err

    @property
    def out(self) -> str:
        return self._out.read_text(errors="replace")

    @property
    def err(self) -> str:
        return self._err.read_text(errors="replace")

    def wait(self) -> int:
        return self.process.wait(timeout=PATIENCE)

    def is_asleep(self) -> bool:
        """It waits in a timed sleep: nothing of it is under way."""
        where = Path(f"/proc/{self.process.pid}/wchan").read_text()
        return "nanosleep" in where or (where == "0" and state_of(self.process.pid) == "S")


@contextlib.contextmanager
def started(fleet: Fleet, *arguments: object, env: Mapping[str, str] | None = None) -> Iterator[Started]:
    name = f"{arguments[0]}-{os.urandom(4).hex()}"
    out, err = fleet.root / f"{name}.out", fleet.root / f"{name}.err"
    with out.open("wb") as out_file, err.open("wb") as err_file:
        process = fleet.start(*arguments, env=env, stdout=out_file.fileno(), stderr=err_file.fileno())
    try:
        yield Started(process, out, err)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


class Terminal:
    """A CLI process on a pseudo-terminal of 200 columns; everything it wrote so far is `text`."""

    def __init__(self, process: subprocess.Popen[bytes], fd: int) -> None:
        self.process = process
        self._fd = fd
        self._seen = b""

    def read(self) -> None:
        with contextlib.suppress(OSError):  # EIO: the other side is closed; BlockingIOError: nothing new
            while block := os.read(self._fd, 1 << 16):
                self._seen += block

    @property
    def text(self) -> str:
        self.read()
        return self._seen.decode(errors="replace")

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    @property
    def words(self) -> str:
        """The text without colours and cursor movements."""
        return re.sub(r"\x1b\[[0-?]*[ -/]*[@-~]", "", self.text)

    def wait(self) -> int:
        """Its exit code; the terminal is read meanwhile, so that the process can never block on it."""

        def ended() -> bool:
            self.read()
            return self.process.poll() is not None

        wait_until(ended, "the process on the terminal ended")
        return int(self.process.wait())


@contextlib.contextmanager
def on_terminal(fleet: Fleet, *arguments: object, env: Mapping[str, str] | None = None) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
    os.set_blocking(ours, False)
    process = fleet.start(
        *arguments, env={"TERM": "xterm-256color", **(env or {})}, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(ours)


def shown_on_terminal(fleet: Fleet, *arguments: object, env: Mapping[str, str] | None = None) -> str:
    with on_terminal(fleet, *arguments, env=env) as terminal:
        terminal.wait()
        return terminal.text


def held(fleet: Fleet, name: str, *steps: Mapping[str, Any], options: tuple[object, ...] = ()) -> str:
    """A task whose agent says `NAME.in` by a file and then waits for `NAME.go`; its id."""
    return fleet.add_scenario(
        {"touch": str(fleet.root / f"{name}.in")},
        {"wait_for": str(fleet.root / f"{name}.go")},
        *steps,
        options=options,
    )


def wait_in(fleet: Fleet, name: str) -> None:
    wait_until((fleet.root / f"{name}.in").exists, f"agent {name} is at work")


def let_go(fleet: Fleet, name: str) -> None:
    (fleet.root / f"{name}.go").touch()


def running_pid(fleet: Fleet, task_id: str) -> int:
    return int(
        wait_until(
            lambda: [run["pid"] for run in fleet.shown(task_id)["runs"] if run["state"] == "started"],
            f"an agent of {task_id} is recorded as started",
        )[0]
    )


def claims(fleet: Fleet) -> list[str]:
    return [event["task"] for event in fleet.events() if event["kind"] == "task.claimed"]


def wait_workspace(fleet: Fleet, task_id: str, state: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        workspace: dict[str, Any] = fleet.shown(task_id)["workspace"]
        return workspace if workspace["state"] == state else None

    found = wait_until(look, f"the workspace of {task_id} is {state}")
    assert found is not None
    return found


# -- exit codes --------------------------------------------------------------------------------------------------------


def test_every_exit_code_by_a_real_case(fleet: Fleet) -> None:
    """CLI contract: 0 done, 1 failed or refused, 2 usage, 3 not found, 4 conflict, 69 unavailable, 75 paused."""
    fleet.cli("ps", code=69)
    fleet.cli("init", code=0)
    fleet.up()
    done = json.loads(fleet.cli("run", "x", "--json", "--", "true", code=0).stdout)
    fleet.cli("run", "x", "--", "false", code=1)
    fleet.cli("run", "x", "--scenario", fleet.scenario({"limit": {"kind": "usage", "for": "1h"}}), code=75)
    short = fleet.scenario({"run": 1, "limit": {"kind": "usage", "for": "1s"}}, {"print": "on"})
    fleet.cli("run", "x", "--scenario", short, code=0)  # a pause of seconds is waited for
    fleet.cli("run", "x", "--delay", "soon", "--", "true", code=2)
    fleet.cli("run", "x", "--no-such-option", code=2)
    fleet.cli("show", "zzzzzzzzzz", code=3)
    fleet.cli("cancel", done["id"], code=4)
    fleet.cli("salvage", "restore", done["id"], "--branch", "new", code=3)


# -- --json ------------------------------------------------------------------------------------------------------------

PS_FIELDS = {
    "id",
    "state",
    "agent",
    "prompt",
    "branch",
    "resume_attempts",
    "pause_reason",
    "resume_after",
    "outcome",
    "reason",
}
RUN_FIELDS = {
    "id",
    "pid",
    "state",
    "outcome",
    "reason",
    "started_at",
    "ended_at",
    "session_id",
    "cost_usd",
    "tokens",
}
EVENT_FIELDS = {"seq", "at", "level", "component", "kind", "task", "run", "message", "reason", "data"}


def test_json_of_tasks_has_the_promised_fields(fleet: Fleet) -> None:
    """CLI contract: add, run, ps, show, why and events, with the values that happened, not only the names."""
    fleet.up()
    added = json.loads(fleet.cli("add", "not yet", "--delay", "1h", "--json", "--", "true").stdout)
    assert (len(added["id"]), added["state"]) == (10, "queued")
    saved = {"write": {"path": "lost.txt", "text": "saved\n"}}
    ran = fleet.cli("run", "do it", "--json", "--scenario", fleet.scenario(saved, {"exit": 7}), code=1)
    assert len(ran.stdout.splitlines()) == 1
    failed = json.loads(ran.stdout)
    assert (failed["state"], failed["outcome"]) == ("failed", "failed")

    listed = {row["id"]: row for row in fleet.json("ps", "--all")}
    assert set(listed) == {added["id"], failed["id"]}
    for row in listed.values():
        assert row.keys() >= PS_FIELDS
    assert (listed[failed["id"]]["prompt"], listed[failed["id"]]["agent"]) == ("do it", "scripted")
    assert (listed[added["id"]]["agent"], listed[added["id"]]["resume_attempts"]) == ("command", 0)

    task = fleet.shown(failed["id"])
    assert task.keys() >= PS_FIELDS | {"runs", "workspace", "checkpoints", "budgets"}
    assert task["workspace"].keys() >= {"strategy", "path", "state"}
    assert task["workspace"]["strategy"] == "worktree"
    [run] = task["runs"]
    assert run.keys() >= RUN_FIELDS
    assert (run["state"], run["outcome"]) == ("settled", "failed")
    assert "exit code 7" in run["reason"]
    assert run["pid"] > 0
    assert run["ended_at"] >= run["started_at"] > 1e9
    assert run["session_id"].startswith("scripted-")
    assert task["budgets"]["runs"] == {"spent": 1, "limit": 12, "left": 11}
    assert isinstance(task["checkpoints"], list)

    [why] = fleet.json("why", failed["id"])
    assert (why["id"], why["state"]) == (failed["id"], "failed")
    assert any("exit code 7" in line for line in why["why"])
    assert any(f"holdfast retry {failed['id']}" in line for line in why["why"])

    events = fleet.events()
    assert all(event.keys() == EVENT_FIELDS for event in events)
    numbers = [event["seq"] for event in events]
    assert numbers == sorted(set(numbers))
    of_task = fleet.events(failed["id"])
    assert {event["task"] for event in of_task} == {failed["id"]}
    kinds = [event["kind"] for event in of_task]
    expected = ["task.queued", "task.claimed", "run.started", "run.ended", "task.failed"]
    assert [kind for kind in kinds if kind in expected] == expected
    last = [event["seq"] for event in fleet.json("events", "-n", "3")]  # more may come: its workspace is removed
    assert last == [event["seq"] for event in fleet.events() if event["seq"] <= last[-1]][-3:]
    assert last[-1] >= numbers[-1]


def test_json_of_the_rest(fleet: Fleet) -> None:
    """CLI contract: alerts, workspaces, salvage, doctor and rehearse."""
    fleet.up()
    task_id = fleet.add_scenario({"write": {"path": "a.txt", "text": "a\n"}}, {"limit": {"kind": "auth"}})
    assert fleet.wait_state(task_id, "paused")["pause_reason"] == "auth"
    [alert] = fleet.json("alerts")
    assert (alert["task"], alert["acked_at"]) == (task_id, None)
    assert alert.keys() >= {"id", "at", "level", "message", "remedy", "count"}
    [workspace] = fleet.json("workspaces")
    assert (workspace["task"], workspace["strategy"], workspace["state"]) == (task_id, "worktree", "ready")
    assert (Path(workspace["path"]) / "a.txt").read_text() == "a\n"
    fleet.cli("cancel", task_id)
    fleet.wait_clean()
    [salvage] = fleet.json("salvage", "list")
    assert (salvage["task"], salvage["files"], salvage["repo"]) == (task_id, 1, str(fleet.repo))
    assert re.fullmatch("[0-9a-f]{40}", salvage["commit"])
    assert fleet.json("workspaces") == []
    findings = fleet.json("doctor")
    assert {"sqlite", "git", "store", "supervisor", "workspaces", "repo"} <= {finding["what"] for finding in findings}
    assert {finding["level"] for finding in findings} <= {"ok", "note"}
    assert all(finding["text"] for finding in findings)


def test_a_rehearsal_says_how_it_ended(fleet: Fleet) -> None:
    """CLI contract: `rehearse` needs neither a store nor a supervisor, and leaves both homes alone."""
    good = fleet.scenario({"write": {"path": "a.txt", "text": "a\n"}}, {"spawn": {"kind": "daemon"}})
    result = json.loads(fleet.cli("rehearse", good, "--json").stdout)
    assert (result["state"], result["outcome"], result["left_behind"]) == ("completed", "completed", [])
    assert result["id"]
    bad = fleet.cli("rehearse", fleet.scenario({"exit": 9}), code=1)
    assert "exit code 9" in bad.stdout
    assert "Nothing was left behind." in bad.stdout
    assert not fleet.home.exists()
    assert fleet.branches() == []


# -- ids, help ---------------------------------------------------------------------------------------------------------


def test_ids_may_be_shortened_while_they_are_unambiguous(fleet: Fleet) -> None:
    """CLI contract: a prefix is enough; an ambiguous one is a conflict that lists the candidates; unknown is 3."""
    by_letter: dict[str, list[str]] = {}
    while max(map(len, by_letter.values()), default=0) < 2:  # at most 33 tasks: ids have 32 letters
        task_id = fleet.add("x", command=("true",))
        by_letter.setdefault(task_id[0], []).append(task_id)
    letter, [first, second] = next((letter, ids) for letter, ids in by_letter.items() if len(ids) == 2)
    ambiguous = fleet.cli("show", letter, code=4)
    assert first in ambiguous.stderr
    assert second in ambiguous.stderr
    cut = next(length for length in range(2, 11) if first[:length] != second[:length])
    assert fleet.shown(first[:cut])["id"] == first
    assert fleet.shown(second)["id"] == second
    fleet.cli("cancel", letter, code=4)
    assert fleet.shown(first)["state"] == fleet.shown(second)["state"] == "queued"
    fleet.cli("cancel", second[:cut])
    assert fleet.shown(second)["state"] == "cancelled"
    for command in ("show", "why", "events", "logs", "cancel", "retry", "resume", "diff"):
        assert fleet.cli(command, "zz0000", code=3).stderr == "holdfast: Task not found: zz0000\n"
    fleet.cli("add", "x", "--after", "zz0000", "--", "true", code=3)
    fleet.cli("add", "x", "--parent", "zz0000", "--", "true", code=3)


def test_every_command_explains_itself(fleet: Fleet) -> None:
    """CLI contract: --help of the whole and of each command exits 0; a mistyped command gets the nearest as answer."""
    overview = fleet.cli("--help").stdout
    names = re.findall(r"^  ([a-z]+) {2,}", fleet.cli("help", "--all").stdout, re.MULTILINE)
    assert {"init", "run", "add", "up", "down", "ps", "show", "why", "events", "logs", "alerts"} <= set(names)
    assert {"cancel", "retry", "resume", "diff", "workspaces", "salvage", "doctor", "rehearse"} <= set(names)
    for name in names:
        explained = fleet.cli(name, "--help")
        assert f"usage: holdfast {name}" in explained.stdout, name
        assert explained.stderr == "", name
    assert fleet.cli().stdout == overview
    assert re.fullmatch(r"holdfast \d+\.\d+.*\n", fleet.cli("--version").stdout)
    assert "Did you mean `holdfast events`?" in fleet.cli("evnets", code=2).stderr
    assert "`holdfast help`" in fleet.cli("frobnicate", code=2).stderr
    assert not fleet.home.exists()


# -- run ---------------------------------------------------------------------------------------------------------------


def test_run_starts_a_supervisor_and_reports_the_end(fleet: Fleet) -> None:
    """CLI contract: it says that it started one; exit 0, 1 or 75 by the task's end; the next run uses the same one."""
    write = {"write": {"path": "new.txt", "text": "new\n"}}
    first = fleet.cli("run", "add a file", "--scenario", fleet.scenario(write), code=0)
    pid = fleet.supervisor_pid()
    assert f"Started a supervisor (pid {pid})" in first.stderr
    assert " running\n" in first.stderr
    task_id = first.stdout.splitlines()[0].removeprefix("completed ")
    assert fleet.file_on_branch(f"holdfast/{task_id}", "new.txt") == "new"
    assert f"holdfast diff {task_id}" in first.stdout
    second = fleet.cli("run", "fail", "--", "sh", "-c", "echo it broke >&2; exit 5", code=1)
    assert "Started a supervisor" not in second.stderr
    assert second.stdout.startswith("failed ")
    assert "exited with code 5" in second.stdout
    assert "it broke" in second.stdout
    third = fleet.cli("run", "wait", "--scenario", fleet.scenario({"limit": {"kind": "usage", "for": "1h"}}), code=75)
    assert third.stdout.startswith("paused ")
    assert "usage_limit" in third.stdout
    assert "holdfast resume" in third.stdout
    assert fleet.supervisor_pid() == pid
    fleet.cli("down", "--now")
    assert fleet.supervisor_pid() is None


def test_a_task_without_changes_names_no_branch(fleet: Fleet) -> None:
    """CLI contract: what is said about the result is true: a branch without a commit is gone at the end."""
    fleet.up()
    task_id = fleet.add("change nothing", command=("true",))
    fleet.wait_state(task_id, "completed")
    fleet.wait_clean()
    assert fleet.branches() == []
    assert f"holdfast/{task_id}" not in fleet.cli("why", task_id).stdout


def test_ctrl_c_cancels_the_task_of_run(fleet: Fleet) -> None:
    """CLI contract: SIGINT to `run` cancels, waits for the end, exits 1; agent and tree are gone."""
    fleet.up()
    steps = fleet.scenario({"touch": str(fleet.root / "a.in")}, {"hang": True})
    with started(fleet, "run", "hang", "--scenario", steps, "--json") as run:
        wait_in(fleet, "a")
        [task] = fleet.json("ps")
        pid = running_pid(fleet, task["id"])
        run.process.send_signal(signal.SIGINT)
        assert run.wait() == 1
        assert json.loads(run.out)["state"] == "cancelled"
        assert "Cancelling" in run.err
        assert "Traceback" not in run.err
    assert not lives(pid)
    fleet.wait_clean()
    fleet.doctor()


def test_the_reason_of_a_cancel_is_kept(fleet: Fleet) -> None:
    """DESIGN, Requests: who, when, why; "nothing silent": the reason is with the task and in an event."""
    fleet.up()
    task_id = held(fleet, "a")
    wait_in(fleet, "a")
    fleet.cli("cancel", task_id, "--why", "changed my mind", env={"USER": "tess"})
    reason = fleet.shown(task_id)["reason"]
    assert f"cancelled by {user_name()}: " in reason, "the uid's name, whatever $USER says"
    assert "changed my mind" in reason
    assert any("changed my mind" in f"{event['reason']} {event['message']}" for event in fleet.events(task_id))


def test_a_second_ctrl_c_detaches(fleet: Fleet) -> None:
    """CLI contract: `run` returns at once and says so, while the agent still lives."""
    supervisor = fleet.up()
    steps = fleet.scenario({"touch": str(fleet.root / "a.in")}, {"hang": True})
    with started(fleet, "run", "hang", "--scenario", steps) as run:
        wait_in(fleet, "a")
        [task] = fleet.json("ps")
        pid = running_pid(fleet, task["id"])
        with stopped_between_writes(fleet, supervisor):  # so that the first Ctrl-C cannot be carried out meanwhile
            interrupt_twice(run)
            assert run.wait() == 130
            assert f"Detached. Task {task['id']}" in run.err
            assert lives(pid)
            assert fleet.shown(task["id"])["state"] == "running"
    fleet.cli("cancel", task["id"], code=None)
    fleet.wait_state(task["id"], "cancelled")
    assert not lives(pid)


def interrupt_twice(run: Started) -> None:
    run.process.send_signal(signal.SIGINT)
    wait_until(lambda: "Cancelling" in run.err and run.is_asleep(), "the first Ctrl-C is recorded")
    run.process.send_signal(signal.SIGINT)


def test_detaching_does_not_take_the_cancel_back(fleet: Fleet) -> None:
    """CLI contract: what `run` says last is what happens: it did not wait, but the task is cancelled."""
    supervisor = fleet.up()
    steps = fleet.scenario({"touch": str(fleet.root / "a.in")}, {"wait_for": str(fleet.root / "a.go")})
    with started(fleet, "run", "continue", "--scenario", steps) as run:
        wait_in(fleet, "a")
        [task] = fleet.json("ps")
        with stopped_between_writes(fleet, supervisor):
            interrupt_twice(run)
            run.wait()
            assert "is being cancelled" in run.err
    assert fleet.wait_state(task["id"], "completed", "cancelled")["state"] == "cancelled"


def test_ctrl_c_after_the_end_reports_the_end(fleet: Fleet) -> None:
    """CLI contract: a Ctrl-C that comes too late cancels nothing; `run` still ends with the task's own code."""
    fleet.up()
    steps = fleet.scenario({"touch": str(fleet.root / "a.in")}, {"wait_for": str(fleet.root / "a.go")})
    with started(fleet, "run", "finish", "--scenario", steps) as run:
        wait_in(fleet, "a")
        [task] = fleet.json("ps")
        wait_until(run.is_asleep, "run waits for events")
        run.process.send_signal(signal.SIGSTOP)
        let_go(fleet, "a")
        fleet.wait_state(task["id"], "completed")
        run.process.send_signal(signal.SIGINT)
        run.process.send_signal(signal.SIGCONT)
        wait_until(lambda: run.process.poll() is not None, "run ended by itself")
        assert run.wait() == 0
        assert run.out.startswith("completed, no changes ")


# -- following ---------------------------------------------------------------------------------------------------------


def test_followers_see_what_happens_and_end(fleet: Fleet) -> None:
    """CLI contract: `events -f` shows an event soon after its commit; `logs -f` ends when the task ends."""
    fleet.up()
    task_id = held(fleet, "a", {"print": "the last word"})
    wait_in(fleet, "a")
    with started(fleet, "events", "-f", "--json") as events, started(fleet, "logs", task_id, "-f") as logs:
        wait_until(lambda: "task.claimed" in events.out, "the follower has shown what was there before")
        wait_until(lambda: "session" in logs.out, "the log follower has shown the first line")
        late = fleet.add("late", "--delay", "1h", command=("true",))
        wait_until(lambda: late in events.out, "the follower saw the new task")
        assert logs.process.poll() is None
        let_go(fleet, "a")
        assert logs.wait() == 0
        assert "the last word" in logs.out
        assert fleet.shown(task_id)["state"] == "completed"
        wait_until(lambda: '"task.completed"' in events.out, "the follower saw the end")
        assert events.process.poll() is None
        events.process.send_signal(signal.SIGINT)
        assert events.wait() == 130
        assert events.err == ""
        numbers = [json.loads(line)["seq"] for line in events.out.splitlines()]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_logs_keep_every_character_whole(fleet: Fleet) -> None:
    """R-TERM-10: output is complete; a character across two blocks of a large log is one character."""
    fleet.up()
    task_id = fleet.add("x", command=("sh", "-c", "head -c 65535 /dev/zero | tr '\\0' a; echo 'é end'"))
    fleet.wait_state(task_id, "completed")
    assert fleet.cli("logs", task_id).stdout == "a" * 65535 + "é end\n"


# -- terminals ---------------------------------------------------------------------------------------------------------


def test_colours_only_where_they_are_welcome(fleet: Fleet) -> None:
    """CLI contract: colours on a terminal, none in a pipe, none with NO_COLOR."""
    fleet.up()
    task_id = fleet.add_scenario({"write": {"path": "a.txt", "text": "a\n"}}, {"exit": 1})
    fleet.wait_state(task_id, "failed")
    fleet.wait_clean()
    looks: list[tuple[object, ...]] = [("ps", "--all"), ("show", task_id), ("why", task_id), ("events",), ("doctor",)]
    more: list[tuple[object, ...]] = [("salvage", "list"), ("workspaces", "--all"), ("diff", task_id), ("alerts",)]
    run: tuple[object, ...] = ("run", "x", "--", "true")
    for arguments in (*looks, *more, run):
        piped = fleet.cli(*arguments)
        assert ESCAPE not in piped.stdout + piped.stderr, arguments
    for arguments in (looks[0], looks[2], looks[4], run):
        assert ESCAPE not in shown_on_terminal(fleet, *arguments, env={"NO_COLOR": "1"}), arguments
        assert re.search(r"\x1b\[[0-9;]*m", shown_on_terminal(fleet, *arguments)), arguments


def test_watch_shows_changes_and_ends_on_ctrl_c(fleet: Fleet) -> None:
    """CLI contract: `ps --watch` is live; it refuses a pipe and says what to use instead."""
    fleet.up()
    task_id = held(fleet, "a")
    wait_in(fleet, "a")
    with on_terminal(fleet, "ps", "--watch", "--all") as terminal:
        wait_until(lambda: re.search(rf"{task_id}\s+running", terminal.words), "the list shows the running task")
        assert not re.search(rf"{task_id}\s+completed", terminal.words)
        let_go(fleet, "a")
        wait_until(lambda: re.search(rf"{task_id}\s+completed", terminal.words), "the list shows its completion")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.wait() == 130
        assert "Traceback" not in terminal.text
    assert "ps --json --watch" in fleet.cli("ps", "--watch", code=2).stderr


def test_watch_works_without_colours_too(fleet: Fleet) -> None:
    """CLI contract: NO_COLOR is about colours; a terminal is still a terminal."""
    task_id = fleet.add("x", command=("true",))
    with on_terminal(fleet, "ps", "--watch", env={"NO_COLOR": "1"}) as terminal:
        wait_until(
            lambda: terminal.process.poll() is not None or re.search(rf"{task_id}\s+queued", terminal.words),
            "the list is shown, or refused",
        )
        assert terminal.process.poll() is None, terminal.text
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.wait() == 130


def test_escapes_in_prompts_and_output_never_reach_the_terminal(fleet: Fleet) -> None:
    """CLI contract: nothing that a prompt or an agent wrote drives the user's terminal; --raw and --json are exact."""
    fleet.up()
    steps = fleet.scenario({"print": f"said {NASTY}"}, {"stderr": f"moaned {NASTY}"}, {"exit": 1})
    ran = fleet.cli("run", NASTY, "--scenario", steps, code=1)
    [task] = fleet.json("ps")
    outputs = {"run": ran.stdout + ran.stderr}
    for arguments in (("ps",), ("show", task["id"]), ("why", task["id"]), ("events",), ("logs", task["id"])):
        done = fleet.cli(*arguments)
        outputs[arguments[0]] = done.stdout + done.stderr
    outputs["logs --err"] = fleet.cli("logs", task["id"], "--err").stdout
    for command, text in outputs.items():
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text), command
    for command in ("run", "ps", "show"):
        assert "tidy red" in outputs[command], command
    assert "said tidy red" in outputs["logs"]
    assert "moaned tidy red" in outputs["logs --err"]
    assert "moaned tidy red" in outputs["why"]
    assert task["prompt"] == NASTY
    assert f"said {NASTY}" in fleet.cli("logs", task["id"], "--raw").stdout


def test_escapes_in_labels_and_reasons_never_reach_the_terminal(fleet: Fleet) -> None:
    """CLI contract: labels and the reason of a cancel are other people's words as well."""
    task_id = fleet.add("x", "--label", f"area={NASTY}", command=("true",))
    fleet.cli("cancel", task_id, "--why", NASTY)
    for arguments in (("ps", "--all"), ("show", task_id), ("why", task_id), ("events",)):
        text = fleet.cli(*arguments).stdout
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text), arguments
    assert "area=tidy red" in fleet.cli("show", task_id).stdout
    assert fleet.shown(task_id)["labels"] == {"area": NASTY}


def test_escapes_in_a_diff_never_reach_the_terminal(fleet: Fleet) -> None:
    """CLI contract: on a terminal a diff is filtered like all else; in a pipe it is exact, so that it applies."""
    fleet.up()
    task_id = fleet.add_scenario({"write": {"path": "nasty.txt", "text": "owned \x1b]0;owned\x07 here\n"}})
    fleet.wait_state(task_id, "completed")
    fleet.wait_clean()
    assert "+owned \x1b]0;owned\x07 here" in fleet.cli("diff", task_id).stdout
    shown = shown_on_terminal(fleet, "diff", task_id)
    assert "here" in shown
    assert "\x1b]" not in shown
    assert "\x07" not in shown


# -- the queue ---------------------------------------------------------------------------------------------------------


def test_claims_follow_priority_age_delay_and_needs(fleet: Fleet) -> None:
    """Words: higher priority first, then older first; --delay and --after hold a task back whatever its priority."""
    low = fleet.add("low", "--priority", "-1", command=("true",))
    first = fleet.add("first", command=("true",))
    second = fleet.add("second", command=("true",))
    delayed = fleet.add("delayed", "--delay", "3s", "--priority", "9", command=("true",))
    high = fleet.add("high", "--priority", "5", "--label", "area=docs", "--label", "who=me=you", command=("true",))
    after = fleet.add("after", "--after", low, "--after", first, "--priority", "9", command=("true",))
    not_before = fleet.shown(delayed)["not_before"]
    waits = fleet.cli("why", after).stdout
    assert low in waits
    assert first in waits
    fleet.up("--agents", "1")
    for task_id in (low, first, second, delayed, high, after):
        fleet.wait_state(task_id, "completed")
    order = claims(fleet)
    assert sorted(order) == sorted([low, first, second, delayed, high, after])
    assert [task_id for task_id in order if task_id in (high, first, second, low)] == [high, first, second, low]
    assert order.index(after) > order.index(low)
    claimed_at = next(e["at"] for e in fleet.events(delayed) if e["kind"] == "task.claimed")
    assert claimed_at >= not_before
    assert next(e["at"] for e in fleet.events(after) if e["kind"] == "task.claimed") >= next(
        e["at"] for e in fleet.events(low) if e["kind"] == "task.completed"
    )
    assert fleet.shown(high)["labels"] == {"area": "docs", "who": "me=you"}
    assert "area=docs who=me=you" in fleet.cli("show", high).stdout
    assert {row["id"]: row["labels"] for row in fleet.json("ps", "--all")}[low] == {}


def test_dependents_of_a_failure_are_cancelled(fleet: Fleet) -> None:
    """States: a dependent of a failed or cancelled task is cancelled with that reason, and so are its dependents."""
    fails = fleet.add("fails", command=("false",))
    child = fleet.add("child", "--after", fails, command=("true",))
    grandchild = fleet.add("grandchild", "--after", child, command=("true",))
    bystander = fleet.add("bystander", command=("true",))
    fleet.up()
    fleet.wait_state(fails, "failed")
    cancelled = fleet.wait_state(child, "cancelled")
    assert fails in cancelled["reason"]
    assert "failed" in cancelled["reason"]
    assert child in fleet.wait_state(grandchild, "cancelled")["reason"]
    assert cancelled["runs"] == []
    fleet.wait_state(bystander, "completed")
    refused = fleet.cli("add", "too late", "--after", fails, "--", "true", code=4)
    assert f"holdfast retry {fails}" in refused.stderr
    assert child not in claims(fleet)


def test_one_home_serves_several_repositories(fleet: Fleet) -> None:
    """Words: many repos per home; a task works on the files of its own."""
    other = fleet.make_repo(fleet.root / "other repo", {"only-here.txt": "other\n"})
    fleet.up()
    command = ("sh", "-c", "ls > listing.txt")
    here = fleet.add("list", command=command)
    there = fleet.add("list", command=command, cwd=other)
    named = fleet.add("list", "--repo", other, command=command)
    for task_id in (here, there, named):
        fleet.wait_state(task_id, "completed")
    assert (fleet.shown(here)["repo"], fleet.shown(there)["repo"]) == (str(fleet.repo), str(other))
    assert fleet.branches() == [f"holdfast/{here}"]
    assert sorted(fleet.branches(other)) == sorted([f"holdfast/{there}", f"holdfast/{named}"])
    assert fleet.git("show", f"holdfast/{named}:listing.txt", cwd=other).split() == ["listing.txt", "only-here.txt"]
    assert "README.md" in fleet.file_on_branch(f"holdfast/{here}", "listing.txt")
    fleet.wait_clean()
    assert "other repo: no stray worktree entry" in fleet.doctor()


# -- workspaces --------------------------------------------------------------------------------------------------------


def test_workspace_none_is_exclusive_and_leaves_everything(fleet: Fleet) -> None:
    """R-CLEAN-05: the checkout itself, one task at a time; its files, and whatever the agent left, stay."""
    other = fleet.make_repo(fleet.root / "other")
    (fleet.repo / "mine.txt").write_text("the user's\n")
    fleet.up()
    none = ("--workspace", "none")
    first = held(fleet, "a", {"write": {"path": "a.txt", "text": "a\n"}}, options=none)
    wait_in(fleet, "a")
    second = held(fleet, "b", {"write": {"path": "b.txt", "text": "b\n"}}, {"exit": 1}, options=none)
    elsewhere = fleet.add("x", *none, command=("true",), cwd=other)
    worktree = fleet.add("x", command=("true",))
    fleet.wait_state(elsewhere, "completed")  # so there was room for another agent,
    fleet.wait_state(worktree, "completed")
    assert fleet.shown(second)["state"] == "queued"  # and still the second one waits
    assert not (fleet.root / "b.in").exists()
    let_go(fleet, "a")
    fleet.wait_state(first, "completed")
    wait_in(fleet, "b")
    let_go(fleet, "b")
    fleet.wait_state(second, "failed")
    fleet.wait_clean()
    ended = next(e["seq"] for e in fleet.events(first) if e["kind"] == "task.completed")
    begun = next(e["seq"] for e in fleet.events(second) if e["kind"] == "task.claimed")
    assert ended < begun
    assert fleet.git("status", "--porcelain").split() == ["??", "a.txt", "??", "b.txt", "??", "mine.txt"]
    assert (fleet.repo / "mine.txt").read_text() == "the user's\n"
    assert fleet.branches() == []
    assert fleet.shown(first)["workspace"]["path"] == str(fleet.repo)
    fleet.doctor()


def test_workspace_directory_is_empty_and_its_result_is_salvaged(fleet: Fleet) -> None:
    """R-CLEAN-05, R-TREE-13: no branch holds the files, so the salvage does; restore brings them back."""
    fleet.up()
    task_id = fleet.add(
        "x", "--workspace", "directory", command=("sh", "-c", "ls -A > was-here.txt; mkdir d; echo 1 > d/e")
    )
    task = fleet.wait_state(task_id, "completed")
    assert (task["workspace"]["strategy"], task["branch"]) == ("directory", None)
    path = wait_workspace(fleet, task_id, "gone")["path"]
    assert not Path(path).exists()
    assert fleet.branches() == []
    fleet.cli("salvage", "restore", task_id, "--branch", "result")
    assert fleet.git("ls-tree", "-r", "--name-only", "result").split() == ["d/e", "was-here.txt"]
    assert fleet.git("show", "result:was-here.txt") == "was-here.txt"
    assert fleet.cli("salvage", "restore", task_id, "--branch", "result", code=4).stderr.startswith("holdfast: ")
    fleet.cli("salvage", "restore", task_id, "--branch", "bad..name", code=1)


def test_workspace_directory_copy_sees_the_checkout(fleet: Fleet) -> None:
    """DESIGN, Workspaces: a copy of the checkout as it is, uncommitted files included, without its .git."""
    (fleet.repo / "untracked.txt").write_text("as it is\n")
    fleet.up()
    command = ("sh", "-c", "ls -A > listing.txt; echo changed > README.md")
    task_id = fleet.add("x", "--workspace", "directory:copy", "--keep-workspace", command=command)
    fleet.wait_state(task_id, "completed")
    path = Path(wait_workspace(fleet, task_id, "preserved")["path"])
    assert set((path / "listing.txt").read_text().split()) == {"README.md", "listing.txt", "src", "untracked.txt"}
    assert (path / "untracked.txt").read_text() == "as it is\n"
    assert (fleet.repo / "README.md").read_text() == "# Test\n"


def test_preserved_workspaces_stay_until_they_are_dropped(fleet: Fleet) -> None:
    """R-CLEAN-03, R-CLEAN-04, R-CLEAN-07, R-CLEAN-11: kept as they were and listed; `clean` salvages first."""
    fleet.up()
    write = {"write": {"path": "w.txt", "text": "work\n"}}
    kept = fleet.add_scenario(write, options=("--keep-workspace",))
    preserved = fleet.add_scenario(write, {"exit": 1}, options=("--preserve-on-failure",))
    refused = fleet.add_scenario(write, {"exit": 1}, options=("--no-preserve-on-failure",))
    gone = fleet.add_scenario(write, options=("--preserve-on-failure",))  # it does not fail, so it is cleaned
    fleet.wait_state(kept, "completed")
    fleet.wait_state(preserved, "failed")
    fleet.wait_state(refused, "failed")
    fleet.wait_state(gone, "completed")
    fleet.wait_clean()
    paths = {row["task"]: Path(row["path"]) for row in fleet.json("workspaces")}
    assert paths.keys() == {kept, preserved}
    assert all((path / "w.txt").read_text() == "work\n" for path in paths.values())
    listing = fleet.cli("workspaces").stdout
    assert str(paths[preserved]) in listing
    assert "preserved" in listing
    fleet.cli("workspaces", "clean", refused, code=4)
    fleet.cli("workspaces", "clean", code=2)
    assert preserved not in [row["task"] for row in fleet.json("salvage", "list")]
    for task_id in (kept, preserved):
        fleet.cli("workspaces", "clean", task_id)
        wait_workspace(fleet, task_id, "gone")
        assert not paths[task_id].exists()
    assert fleet.worktrees() == []
    fleet.cli("salvage", "restore", preserved, "--branch", "rescued")
    assert fleet.git("show", "rescued:w.txt") == "work"
    assert fleet.file_on_branch(f"holdfast/{kept}", "w.txt") == "work"
    fleet.doctor()


# -- retry and cancel --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "retry", "expected", "branch"),
    [
        pytest.param(("--preserve-on-failure",), (), "one\ntwo", "holdfast/{}", id="in-the-preserved-tree"),
        pytest.param((), (), "one\ntwo", "holdfast/{}", id="from-the-salvage"),
        pytest.param((), ("--fresh",), "two", "holdfast/{}-r1", id="fresh-from-the-base"),
        pytest.param(
            ("--preserve-on-failure",), ("--fresh",), "two", "holdfast/{}-r1", id="fresh-despite-the-preserved-tree"
        ),
    ],
)
def test_retry_continues_or_starts_afresh(
    fleet: Fleet, options: tuple[str, ...], retry: tuple[str, ...], expected: str, branch: str
) -> None:
    """States: `retry` goes on in the preserved tree or the last salvage; `--fresh` starts from the base, work kept."""
    fleet.up()
    task_id = fleet.add_scenario(
        {"run": 1, "write": {"path": "w.txt", "text": "one\n", "append": True}},
        {"run": 1, "exit": 1},
        {"write": {"path": "w.txt", "text": "two\n", "append": True}},
        options=options,
    )
    fleet.wait_state(task_id, "failed")
    fleet.wait_clean()
    before = fleet.shown(task_id)["workspace"]
    fleet.cli("retry", task_id, *retry)
    task = fleet.wait_state(task_id, "completed")
    assert task["branch"] == branch.format(task_id)
    assert fleet.file_on_branch(task["branch"], "w.txt") == expected
    assert task["workspace"]["path"] == before["path"]
    assert [run["outcome"] for run in task["runs"]] == ["failed", "completed"]
    fleet.wait_clean()
    if expected == "two":  # the first try's work is still to be had
        fleet.cli("salvage", "restore", task_id, "--branch", "first-try")
        assert fleet.git("show", "first-try:w.txt") == "one"
    refused = fleet.cli("retry", task_id, code=4)
    assert "only a failed or cancelled task can be retried" in refused.stderr
    assert fleet.cli("cancel", task_id, code=4).stdout == ""
    assert "not paused" in fleet.cli("resume", task_id, code=4).stderr
    assert fleet.shown(task_id)["state"] == "completed"
    fleet.doctor()


def test_cancel_without_a_supervisor(fleet: Fleet) -> None:
    """DESIGN, Requests: a waiting task is cancelled at once; a running one by the next `up`, and the CLI says so."""
    waiting = fleet.add("x", command=("true",))
    dependent = fleet.add("x", "--after", waiting, command=("true",))
    fleet.cli("cancel", waiting, "--why", "not needed")
    assert "not needed" in fleet.shown(waiting)["reason"]
    assert fleet.shown(dependent)["state"] == "cancelled"
    fleet.cli("cancel", waiting, code=4)

    supervisor = fleet.up()
    task_id = held(fleet, "a")
    wait_in(fleet, "a")
    pid = running_pid(fleet, task_id)
    fleet.kill_supervisor(supervisor)
    asked = fleet.cli("cancel", task_id, code=69)
    assert "recorded" in asked.stderr
    assert "holdfast up" in asked.stderr
    assert lives(pid)
    assert fleet.shown(task_id)["state"] == "running"
    assert "asked to cancel it" in fleet.cli("why", task_id).stdout
    fleet.up()
    task = fleet.wait_state(task_id, "cancelled", "completed")
    assert task["state"] == "cancelled"
    assert [run["outcome"] for run in task["runs"]] == ["cancelled"]
    assert not lives(pid)
    assert waiting not in claims(fleet)
    fleet.wait_clean()
    fleet.doctor()


# -- the agent's environment -------------------------------------------------------------------------------------------


def test_agents_see_only_the_allowed_environment(fleet: Fleet) -> None:
    """DESIGN, Agents: an allow-list plus `env.pass` and `env.set`; secrets of the supervisor and the CLI stay there."""
    settings = fleet.root / "config.toml"
    settings.write_text('[env]\npass = ["PASSED_*"]\nset = { COLOUR_OF_SKY = "blue", LANG = "en" }\n')
    outside = {"SECRET_TOKEN": "canary", "PASSED_ONE": "yes", "HOLDFAST_CONFIG": str(settings)}
    fleet.up(env=outside)
    task_id = fleet.add("x", command=("sh", "-c", "env > env.txt; cat > stdin.txt"), env=outside)
    plain = fleet.add("x", command=("sh", "-c", "env > env.txt"), env={"SECRET_TOKEN": "canary"})
    fleet.wait_state(task_id, "completed")
    fleet.wait_state(plain, "completed")
    text = fleet.file_on_branch(f"holdfast/{task_id}", "env.txt")
    seen = dict(line.split("=", 1) for line in text.splitlines())
    assert "canary" not in text
    assert "SECRET_TOKEN" not in seen
    assert (seen["PATH"], seen["HOME"]) == (fleet.env["PATH"], fleet.env["HOME"])
    assert (seen["PASSED_ONE"], seen["COLOUR_OF_SKY"], seen["LANG"]) == ("yes", "blue", "en")
    assert (seen["HOLDFAST_TASK_ID"], seen["HOLDFAST_RUN_NUMBER"]) == (task_id, "1")
    assert seen["PWD"] == fleet.shown(task_id)["workspace"]["path"]
    assert fleet.file_on_branch(f"holdfast/{task_id}", "stdin.txt") == "x"
    other = fleet.file_on_branch(f"holdfast/{plain}", "env.txt")
    assert "canary" not in other
    assert "PASSED_ONE" not in other
    assert "COLOUR_OF_SKY" not in other
    assert (
        "canary"
        not in subprocess.run(
            ["grep", "-r", "canary", str(fleet.home)], capture_output=True, text=True, check=False
        ).stdout
    )
