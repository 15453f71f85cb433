"""What `run` shows: the agent and the task's states, not our plumbing; and at its end what a person does next."""

from __future__ import annotations

import json

from tests.clis import fake_cli, recorded
from tests.fleet import Fleet

PLUMBING = ("fence", "pid ", "task.claimed", "run.started", "workspace.", "cleanup_on_complete", "--raw")


def states_in(text: str) -> list[str]:
    """The lines about states, without their times."""
    return [line[11:] for line in text.splitlines() if line.startswith("  ") and not line.startswith("  | ")]


def test_run_shows_a_commands_output_and_one_line_per_state(fleet: Fleet) -> None:
    """F8: `run -- my-agent` never showed the command's output, only events."""
    fleet.up()
    script = """echo 'working on it'; echo '{"json": 1}'; printf '1%%\\r100%%\\n'; echo 'a warning' >&2"""
    done = fleet.cli("run", "x", "--", "sh", "-c", script)
    assert [line for line in done.stderr.splitlines() if line.startswith("  | ")] == [
        "  | working on it", '  | {"json": 1}', "  | 100%", "  | a warning",
    ]  # fmt: skip
    assert not [word for word in PLUMBING if word in done.stderr]
    assert states_in(done.stderr) == ["running"]
    assert "working on it" not in done.stdout
    loud = fleet.cli("run", "x", "-v", "--", "sh", "-c", "echo hello").stderr
    assert "task.claimed" in loud
    assert "  | hello" in loud


def test_every_change_of_state_has_a_line(fleet: Fleet) -> None:
    """A second try has the reason for it. The end is on standard output; with --json it has a line too."""
    fleet.up()
    check = "test $(wc -l < made.txt) -ge 2"
    done = fleet.cli("run", "x", "--gate", check, "--", "sh", "-c", "echo line >> made.txt")
    first, checked, second, third, again = states_in(done.stderr)
    assert (first, third) == ("running", "running")
    assert checked == again == f"is checked by its gate `{check}`."
    assert second.startswith(f"queued: its gate `{check}` exited with 1; try 2 of 3 follows")
    assert done.stdout.startswith("completed ")
    quiet = fleet.cli("run", "x", "--json", "--", "true")
    assert json.loads(quiet.stdout)["state"] == "completed"
    assert states_in(quiet.stderr) == ["running", "completed: the command exited with code 0."]


def test_a_real_agents_words_are_shown_without_our_notes(fleet: Fleet) -> None:
    """F8: "[2 more line(s) that say nothing to people: --raw]", of a command that has no --raw."""
    fake_cli(fleet.root / "bin", "codex", lines=recorded("codex", "tool"), version="0.166.0")
    fleet.env["PATH"] = f"{fleet.root / 'bin'}:{fleet.env['PATH']}"
    fleet.up()
    shown = fleet.cli("run", "x", "--agent", "codex", "--permission", "full").stderr
    assert "  | " in shown
    assert not [word for word in (*PLUMBING, "say nothing", "--err") if word in shown]


def test_a_workflow_ends_with_its_last_answer_and_the_report(fleet: Fleet) -> None:
    """F8: the end of a workflow was "stage 2 of 2 (summary) completed", without the summary."""
    config = fleet.root / "user" / ".config" / "holdfast" / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(
        "[[workflow.two.stage]]\nname = 'look'\nprompt = 'look'\ncommand = ['echo', 'first words']\n"
        "[[workflow.two.stage]]\nname = 'sum'\nprompt = 'sum'\ncommand = ['echo', 'the summary']\n"
    )
    fleet.up()
    done = fleet.cli("run", "go", "--workflow", "two")
    assert "The answer of sum:\n  the summary\n" in done.stdout
    assert "first words" not in done.stdout
    assert "`holdfast report " in done.stdout


def test_uncommitted_changes_are_not_left_out_without_a_word(fleet: Fleet) -> None:
    fleet.up()
    assert "does not see" not in fleet.cli("run", "x", "--", "true").stderr
    (fleet.repo / "README.md").write_text("changed\n")
    (fleet.repo / "new.txt").write_text("new\n")
    (fleet.repo / "holdfast.toml").write_text("# settings apply without a commit\n")
    said = fleet.cli("run", "x", "--", "true").stderr
    assert "The agent does not see 2 uncommitted changes of your checkout: it starts from main." in said
    assert "does not see" not in fleet.cli("run", "x", "--workspace", "none", "--", "true").stderr


def test_a_pause_for_a_budget_ends_with_the_command_that_works(fleet: Fleet) -> None:
    """F8: `run` named `holdfast resume ID`, which is refused while the budget is spent."""
    fleet.up()
    steps = fleet.scenario({"usage": {"input": 900, "output": 200}}, {"crash": "SIGSEGV"})
    paused = fleet.cli("run", "--scenario", steps, "--budget-tokens", "1000", code=75)
    task = fleet.json("ps", "--json")[0]["id"]
    assert f"`holdfast resume {task} --budget-tokens " in paused.stdout
    assert f"`holdfast resume {task}`" not in paused.stdout


def test_a_command_is_found_as_the_caller_finds_it(fleet: Fleet) -> None:
    """F8: `could not run 'my-agent': No such file or directory`, although `which my-agent` works here."""
    fleet.up()
    tools = fleet.root / "own tools"
    fake_cli(tools, "my-agent", then="echo found me")
    done = fleet.cli("run", "x", "--", "my-agent", env={"PATH": f"{tools}:{fleet.env['PATH']}"})
    assert "  | found me" in done.stderr
    task = fleet.json("ps", "--json", "--all")[0]["id"]
    assert fleet.shown(task)["runs"][0]["launch"]["command"] == [str(tools / "my-agent")]


def test_an_agent_that_is_not_installed_is_refused_with_the_command_that_installs_it(fleet: Fleet) -> None:
    empty = fleet.root / "empty"
    empty.mkdir()
    found = {"PATH": f"{empty}:/usr/bin:/bin"}
    missing = fleet.cli("add", "x", "--agent", "claude", env=found, code=2).stderr
    assert "Claude Code is not installed" in missing
    assert "`npm install -g @anthropic-ai/claude-code`" in missing
    assert fleet.json("ps", "--json", "--all") == []
    said = fleet.cli(
        "add", "x", "--agent", "codex", "--permission", "full", env={"HOLDFAST_CODEX_BINARY": "/no/codex"}, code=2
    )
    assert "codex.binary names /no/codex" in said.stderr
    fleet.cli(
        "add", "x", "--agent", "claude", "--workspace", "container", env={**found, "HOLDFAST_CONTAINER_IMAGE": "i"}
    )
