"""Wrong commands, as a table that a person can read (wrong_commands.txt): each answer says what is wrong and what to
type."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from tests.fleet import Fleet

from holdfast.agents.port import HostFacts
from holdfast.cli.help.front_page import GROUPS, front_page
from holdfast.cli.help.wrong_usage import SYNONYMS, unknown_command
from holdfast.cli.main import COMMANDS, run
from holdfast.intake import new_task

TABLE = Path(__file__).with_name("wrong_commands.txt")
# Words of our tools and of our code that tell a user nothing.
ODD = re.compile(
    r"argparse|flag:|invalid choice|[Uu]nrecognized|following arguments|uid \d|Traceback|Namespace|docs/\S+\.md"
)


def rows() -> list[tuple[str, int, str]]:
    lines = [line for line in TABLE.read_text().splitlines() if line.strip() and not line.startswith("#")]
    found = []
    for command, answer in zip(lines[::2], lines[1::2], strict=True):
        code, _, part = answer.strip().partition("  ")
        assert command.startswith("$ "), command
        found.append((command.removeprefix("$ "), int(code), part))
    return found


def test_wrong_commands_are_answered(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """F11 and the table of 51 wrong commands: the exit code, what is wrong, one line, no odd word."""
    failed = fleet.queue("echo x > lost.txt; exit 3")
    done = fleet.queue("true")
    fleet.up("--idle-exit", "0s")
    fleet.wait_state(failed, "failed")
    fleet.wait_state(done, "completed")
    fleet.wait_clean()
    queued, paused = fleet.queue("true"), fleet.queue("true")
    fleet.cli("pause", paused)
    monkeypatch.chdir(fleet.repo)
    capsys.readouterr()
    wrong, table = [], rows()
    with fleet.as_its_user():
        for line, code, part in table:
            words = shlex.split(line.format(done=done, failed=failed, queued=queued, paused=paused))
            answered = run(words)
            out, err = capsys.readouterr()
            part = part.format(done=done, failed=failed, queued=queued, paused=paused)
            if (answered, out) != (code, "") or part not in err or err.count("\n") != 1 or ODD.search(err):
                wrong.append(f"$ {line}\n  wanted {code}  {part}\n  got    {answered}  {err.strip()} {out[:200]}")
    assert not wrong, "\n".join(["", *wrong])
    assert len(table) >= 167


def test_full_permissions_as_root_are_answered_with_the_ways_out(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Claude Code refuses its mode to root. The task is not queued, and the answer has three ways that work."""
    monkeypatch.setattr(new_task, "describe_host", lambda *_: HostFacts(is_root=True))
    monkeypatch.chdir(fleet.repo)
    with fleet.as_its_user():
        assert run(["add", "x", "--agent", "claude", "--permission", "full"]) == 2
    err = capsys.readouterr().err
    for part in ("root", "--permission edit", "--workspace container", "permissions.sandbox"):
        assert part in err
    assert err.count("\n") == 1


def test_a_money_budget_is_refused_to_an_agent_without_prices(fleet: Fleet) -> None:
    """The answer names the budgets that work for it. Nothing is queued."""
    program = {"HOLDFAST_CODEX_BINARY": "/bin/true"}
    err = fleet.cli("add", "x", "--agent", "codex", "--budget-usd", "5", code=2, env=program).stderr
    assert "'codex' does not report its cost" in err
    assert "--budget-tokens works for this agent. Nothing was queued." in err


def test_synonyms_lead_to_commands_that_exist() -> None:
    """A synonym is not a command, and its answer names only commands and options that parse."""
    later = {"send", "set", "agents"}  # built by the issues of the daily loop
    for word, answer in SYNONYMS.items():
        assert word not in COMMANDS, word
        named = re.findall(r"`holdfast ([a-z]+)", answer)
        assert set(named) <= set(COMMANDS) | later, answer


@pytest.mark.parametrize("word", ["install", "fleet", "tree", "permissions", "sessions", "claude", "plan", "clone"])
def test_a_far_word_is_never_answered_as_another(word: str) -> None:
    """`install` once led to `purge`. Only the word itself, a topic or an agent is answered without a question."""
    answer = unknown_command(word, COMMANDS)
    named = [other for other, said in SYNONYMS.items() if said in answer]
    assert named == [] or word in named
    assert "purge" not in answer


def test_options_with_values_stand_before_the_command(fleet: Fleet) -> None:
    """A value is not taken for the command, also where it has a command's name."""
    task_id = fleet.cli("--label", "area=add", "--agent", "command", "add", "x", "--", "true").stdout.strip()
    assert fleet.cli("--repo", ".", "--state", "queued", "ps", "--json").stdout.count(f'"{task_id}"') == 1
    assert fleet.cli("--label", "area=ps", "--json", "ps").stdout == ""
    assert fleet.cli("--repo=.", "tasks", code=2).stderr.startswith("holdfast: There is no command 'tasks'.")
    assert fleet.cli("--sort", "show", "ps", code=2).stderr.startswith("holdfast: --sort: there is no order")


def test_singular_and_plural_lead_to_one_command(fleet: Fleet) -> None:
    """Each list command takes the other number of its name, and `list`."""
    fleet.queue("true")
    for word in (
        "account",
        "accounts",
        "agents",
        "workflow",
        "workflows",
        "schedule",
        "schedules",
        "worker",
        "workers",
    ):
        assert fleet.cli(word, "list", "--json").stdout == fleet.cli(word, "--json").stdout, word
    for one, other in (("tracker", "trackers"), ("alert", "alerts"), ("branch", "branches"), ("event", "events")):
        assert fleet.cli(one, "--json").stdout == fleet.cli(other, "--json").stdout, one


def test_the_front_page_fits_a_small_terminal() -> None:
    """At most 32 lines of 80 columns; every command is in one group of `help --all`."""
    lines = front_page(COMMANDS).splitlines()
    assert len(lines) <= 32
    assert max(map(len, lines)) <= 80
    listed = [name for names in GROUPS.values() for name in names]
    assert len(listed) == len(set(listed))
    assert set(COMMANDS) <= set(listed)
