"""What an agent says and does, from outside: `logs` for people, as JSON and byte for byte, live and across runs."""

from __future__ import annotations

import json

from tests.acceptance.cli.test_cli_contract import on_terminal, started
from tests.clis import fake_cli, recorded
from tests.fleet import Fleet, wait_until


def test_logs_show_what_happens_live_and_across_runs(fleet: Fleet) -> None:
    """R-TERM-10: every run is shown, in order, as it happens; --json has the events, --raw the bytes."""
    go = fleet.root / "go"
    task_id = fleet.add_scenario(
        {"print": "first \x1b[31mwords\x1b[0m"},
        {"tool": {"name": "Bash", "input": "make test", "for": "1ms"}},
        {"crash": "SIGSEGV", "run": 1},
        {"wait_for": str(go), "run": 2},
        {"print": "the last word"},
    )
    with started(fleet, "logs", task_id, "-f") as logs:
        wait_until(logs.is_asleep, "it waits for the first run")
        fleet.up()
        wait_until(lambda: logs.out.count("first words") == 2, "both runs are shown, the second while it works")
        assert "the last word" not in logs.out
        go.touch()
        assert logs.wait() == 0
        assert "run 2 of task" in logs.err
        shown = logs.out
    assert "\x1b" not in shown
    assert shown.count("session ") == 2
    assert shown.count("· Bash  make test") == 2
    assert "the last word\n✓ done" in shown

    events = [json.loads(line) for line in fleet.cli("logs", task_id, "--json").stdout.splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds == ["session", "text", "tool_started", "tool_finished", "text", "result"]
    assert {event["run"] for event in events} == {2}
    assert events[2]["name"] == "Bash"
    assert events[-1]["ok"] is True
    assert "first \x1b[31mwords\x1b[0m\n" in fleet.cli("logs", task_id, "--raw").stdout
    assert "✓ done" not in fleet.cli("logs", task_id, "--run", 1).stdout
    fleet.cli("logs", task_id, "--json", "--err", code=2)


def test_logs_of_a_task_that_went_on(fleet: Fleet) -> None:
    """After `send` the last run is shown, with a line about the others; `--all` shows every run in order."""
    fleet.up()
    task = fleet.add("x", command=("sh", "-c", "echo words $HOLDFAST_RUN_NUMBER; echo bad $HOLDFAST_RUN_NUMBER >&2"))
    fleet.wait_state(task, "completed")
    assert "run" not in fleet.cli("logs", task).stderr
    fleet.cli("send", task, "again")
    wait_until(lambda: len(fleet.show(task)["runs"]) == 2, "the message begins a run")
    fleet.wait_state(task, "completed")
    last = fleet.cli("logs", task)
    assert last.stdout == "words 2\n"
    assert f"run 2 of 2; every run: `holdfast logs {task} --all`" in last.stderr
    every = fleet.cli("logs", task, "--all")
    assert every.stdout == "words 1\nwords 2\n"
    assert every.stderr.splitlines() == [f"[run 1 of task {task}:]", f"[run 2 of task {task}, told: again:]"]
    assert fleet.cli("logs", task, "--all", "--err").stdout == "bad 1\nbad 2\n"
    assert {event["run"] for event in fleet.json("logs", task, "--all")} == {1, 2}
    assert fleet.cli("logs", task, "--json").stderr == ""
    assert "--run" in fleet.cli("logs", task, "--all", "--run", 1, code=2).stderr


def test_run_shows_the_agents_words(fleet: Fleet) -> None:
    """R-TERM-10: who waits for a task sees what its agent says and does; the result alone is on standard output."""
    steps = fleet.scenario({"print": "I begin"}, {"tool": {"name": "Bash", "input": "make", "for": "1ms"}})
    fleet.up()
    done = fleet.cli("run", "--scenario", steps)
    assert "  | I begin\n" in done.stderr
    assert "Bash  make" in done.stderr
    assert "  | ✓ done\n" in done.stderr
    assert "I begin" not in done.stdout
    with on_terminal(fleet, "run", "--scenario", steps) as terminal:
        assert terminal.wait() == 0
        assert "  | I begin\r\n" in terminal.words
        assert "  | \x1b[32m✓ done\x1b[0m\r\n" in terminal.text


def test_a_real_cli_is_shown_with_what_it_takes_and_how_to_go_on(fleet: Fleet) -> None:
    """Issue 6: live tokens and session id; totals in show, why, ps and stats; the command that continues by hand."""
    binary = fake_cli(fleet.root / "bin", "codex", lines=recorded("codex", "tool"), hold=6, then="echo hello > out.txt")
    session = "01a1dd20-6772-7411-a4cb-82410abad377"
    fleet.env["HOLDFAST_CODEX_BINARY"] = str(binary)
    fleet.up()
    task_id = fleet.add("write it", "--agent", "codex", "--keep-workspace")
    fleet.wait_started(task_id)
    wait_until(lambda: "the task is done" in fleet.cli("logs", task_id).stdout, "it has said something")

    [run] = fleet.shown(task_id)["runs"]
    assert run["session_id"] == session
    assert run["outcome"] is None
    looks = fleet.cli("show", task_id).stdout
    assert f"codex resume {session}" in looks
    assert f"holdfast cancel {task_id}" in looks
    (fleet.root / "bin" / "codex.go").touch()
    fleet.wait_state(task_id, "completed")
    fleet.wait_clean()

    shown = fleet.shown(task_id)
    [run] = shown["runs"]
    assert (run["session_id"], run["tokens"], run["cost_usd"]) == (session, 284, None)
    assert run["usage"] == {"input": 200, "output": 84, "cached": 60, "reasoning": 10}
    assert shown["usage"]["tokens"] == 284
    assert shown["by_hand"] == {
        "session_id": session,
        "command": f"cd {shown['workspace']['path']} && codex resume {session}",
        "warning": None,
    }
    why = fleet.cli("why", task_id).stdout
    assert "It took 200 tokens in (60 cached), 84 out." in why
    assert "Continue it by hand: cd " in why
    [row] = fleet.json("ps", "--all")
    assert (row["tokens"], row["cost_usd"], row["runs"]) == (284, None, 1)
    [row] = fleet.json("stats")
    assert (row["tokens"], row["input"], row["cached"], row["cost_usd"]) == (284, 200, 60, None)
    assert "200 tokens in" in fleet.cli("stats").stdout
    assert "▸ Bash" not in fleet.cli("logs", task_id, "--raw").stdout
