"""What an agent says and does, from outside: `logs` for people, as JSON and byte for byte, live and across runs."""

from __future__ import annotations

import json

from tests.acceptance.test_cli_contract import started
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


def test_run_shows_the_agents_words(fleet: Fleet) -> None:
    """R-TERM-10: who waits for a task sees what its agent says and does; the result alone is on standard output."""
    steps = fleet.scenario({"print": "I begin"}, {"tool": {"name": "Bash", "input": "make", "for": "1ms"}})
    fleet.up()
    done = fleet.cli("run", "--scenario", steps)
    assert "  | I begin\n" in done.stderr
    assert "Bash  make" in done.stderr
    assert "  | ✓ done\n" in done.stderr
    assert "I begin" not in done.stdout
