"""`init` from outside: three questions at most, where each answer goes, and that each answer is in force."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.acceptance.config.test_config import (
    COMMANDING,
    answer_on_terminal,
    refused,
    repo_file,
    shown,
    user_file,
)
from tests.clis import fake_cli
from tests.fleet import Fleet, processes_of

MAKEFILE = "all:\n\techo all\n\ntest: all\n\ttest -e made.txt\n"


def install_two_agents(fleet: Fleet) -> Path:
    """Put a claude and a codex into PATH. Return the directory."""
    tools = fleet.root / "tools"
    for name, version in (("claude", "2.1.325 (Claude Code)"), ("codex", "codex-cli 0.166.0")):
        fake_cli(tools, name, version=version)
    fleet.env["PATH"] = f"{tools}:{fleet.env['PATH']}"
    return tools


def test_init_asks_three_questions_and_the_answers_are_in_force(fleet: Fleet) -> None:
    """F16: agent and permissions go to the user's file, whose comments stay; the gate goes to a short holdfast.toml,
    trusted at once. `y` takes what was proposed. Answered questions are not asked again."""
    install_two_agents(fleet)
    (fleet.repo / "Makefile").write_text(MAKEFILE)
    fleet.git("add", "Makefile")
    fleet.git("commit", "-qm", "Makefile")
    own = user_file(fleet, "# mine\nagents = 2  # two\n\n[health]\ngrace = '9s'\n")
    own.chmod(0o640)
    said = answer_on_terminal(fleet, "init", answer="codex\nf\nfull\ny\n")
    assert "'f' is none of read, edit, full" in said
    assert own.read_text() == (
        '# mine\nagents = 2  # two\n\nagent = "codex"\npermissions.mode = "full"\n[health]\ngrace = \'9s\'\n'
    )
    assert own.stat().st_mode & 0o777 == 0o640
    assert "[make test]" in said
    file = fleet.repo / "holdfast.toml"
    assert len(file.read_text().splitlines()) <= 15
    assert f"Wrote {file}" in said
    assert str(own) in said
    assert shown(fleet)["gate.command"]["value"] == "make test", "in force, so trusted"

    said = answer_on_terminal(fleet, "init", answer="")
    assert "?" not in said, "nothing is asked twice"
    assert "Default agent: codex" in said
    assert "Permissions: full" in said
    assert "make test" in said

    idle = fleet.add("x", "--tries", "1", command=("true",))
    done = fleet.add("x", command=("touch", "made.txt"))
    fleet.up()
    assert fleet.wait_state(idle, "failed")["failure_reason"] == "gate_failed"
    assert fleet.wait_state(done, "completed")["gate"]["passed"]


def test_no_answer_becomes_a_gate_by_mistake(fleet: Fleet) -> None:
    """`y` without a proposal, and words of other questions, are not commands; `n` is none. Each writes nothing."""
    said = answer_on_terminal(fleet, "init", answer="y\nedit\nn\n")
    assert said.count("is not a command") == 2
    assert not (fleet.repo / "holdfast.toml").exists()
    (fleet.repo / "package.json").write_text('{"scripts": {"test": "node --test"}}')
    answer_on_terminal(fleet, "init", answer="no\n")
    assert not (fleet.repo / "holdfast.toml").exists()
    answer_on_terminal(fleet, "init", answer="npm run -s quick\n")
    assert shown(fleet)["gate.command"]["value"] == "npm run -s quick"


def test_without_a_terminal_nothing_is_asked_and_options_answer(fleet: Fleet) -> None:
    """A script gets proposals as text, and takes them with --yes. An option wins over a proposal. Nothing is recorded
    that nobody chose."""
    tools = install_two_agents(fleet)
    (fleet.repo / "package.json").write_text('{"scripts": {"test": "node --test"}}')
    (fleet.repo / "package-lock.json").write_text("{}")
    (fleet.repo / ".gitignore").write_text("/node_modules/\n")
    said = fleet.cli("init").stdout
    assert "Agent CLIs: claude 2.1.325, codex 0.166.0" in said
    assert "No default agent yet. Choose one: holdfast init --agent NAME" in said
    assert "Permissions: edit" in said
    assert "holdfast init --yes" in said
    assert "npm test" in said
    assert len(said.splitlines()) <= 15
    assert not (fleet.repo / "holdfast.toml").exists()
    own = fleet.root / "user" / ".config" / "holdfast" / "config.toml"
    assert not own.exists()

    said = fleet.cli("init", "--yes", "--permission", "read").stdout
    assert own.read_text() == 'agent = "claude"\npermissions.mode = "read"\n'
    rows = shown(fleet)
    assert (rows["gate.command"]["value"], rows["workspace.setup"]["value"]) == ("npm test", ["npm ci"])
    assert "HOLDFAST_HOME" in said, "the user's file is not in the home: init says so"
    assert processes_of(tools) == {}

    fleet.cli("init", "--permissions", "edit", "--agent", "codex")
    assert shown(fleet)["permissions.mode"]["value"] == "edit"
    done = fleet.cli("init", "--permission", "read", env={"HOLDFAST_FAULT": "config.rename:1:EROFS"}, code=1)
    assert 'Add this line to it yourself: permissions.mode = "read"' in done.stderr
    assert sorted(path.name for path in own.parent.iterdir()) == ["config.toml"]
    fleet.cli("init", "--agent", "nobody", code=2)
    assert "--no-file" in refused(fleet, "init", "--no-file", "--gate", "make", code=2)


def test_a_gate_for_an_existing_file_is_added_or_refused(fleet: Fleet) -> None:
    """An existing file is never replaced: one line of it is set, and that is said. Trust covers what init wrote and
    what was trusted before, nothing else."""
    file = repo_file(fleet, "# ours\nworkspace.preserve_ttl = '1d'\n")
    fleet.cli("trust", "--yes")
    assert f"Set gate.command in {file}" in fleet.cli("init", "--gate", "make a").stdout
    assert (
        file.read_text()
        == '# ours\nworkspace.preserve_ttl = \'1d\'\ngate.command = "make a"\npermissions.allow = ["make a"]\n'
    )
    assert shown(fleet)["gate.command"]["value"] == "make a"
    said = fleet.cli("init", "--gate", "make b").stdout
    assert "make a" in said
    assert "make b" in said
    assert shown(fleet)["gate.command"]["value"] == "make b"
    assert "make b" in fleet.cli("init", "--yes").stdout

    repo_file(fleet, COMMANDING)
    done = refused(fleet, "init", "--gate", "make c", code=1)
    assert "not trusted" in done
    assert "holdfast trust" in done
    assert file.read_text() == COMMANDING
    repo_file(fleet, "agnt = 1\n")
    assert "holdfast.toml:1: there is no setting 'agnt'; did you mean 'agent'?" in fleet.cli("init").stdout
    assert "mistakes" in refused(fleet, "init", "--gate", "make c", code=1)
    file.unlink()
    elsewhere = fleet.root / "elsewhere.toml"
    elsewhere.write_text("resume.max_attempts = 1\n")
    file.symlink_to(elsewhere)
    assert "symbolic link" in refused(fleet, "init", "--gate", "make c", code=1)
    assert elsewhere.read_text() == "resume.max_attempts = 1\n"


def test_init_finds_agents_and_their_versions(fleet: Fleet) -> None:
    """Agent CLIs are asked for their version; one that hangs, fails or chatters costs nothing but its version."""
    tools = fleet.root / "tools"
    tools.mkdir()
    for name, script in {
        "claude": "echo '9.9.9 (Claude Code)'",
        "codex": "sleep 1000",
        "gemini": "exit 3",
        "opencode": "yes long long line | tr '\\n' ' '",
        "qwen": "printf 'v1 \\033]0;owned\\007\\nsecond\\n'",
    }.items():
        (tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (tools / name).chmod(0o755)
    (tools / "aider").write_bytes(b"\0not a program")
    (tools / "aider").chmod(0o755)
    said = fleet.cli("init", env={"PATH": f"{tools}:{fleet.env['PATH']}"}).stdout
    assert "Agent CLIs: claude 9.9.9, codex, gemini" in said
    assert "\x1b" not in said
    assert processes_of(tools) == {}


@pytest.mark.parametrize("answer", ["y\n", "n\n", "\n"])
def test_init_does_not_trust_what_a_clone_brought(fleet: Fleet, answer: str) -> None:
    """ADR trust: an existing file is shown; trusted by a person's yes or --trust, never by `init` or --yes alone."""
    repo_file(fleet, COMMANDING)
    said = fleet.cli("init", "--yes").stdout
    assert 'command.argv = ["sh", "-c", "echo ran > ran.txt"]' in said
    assert "holdfast trust" in said
    refused(fleet, "add", "x", "--", "true", code=1)
    said = answer_on_terminal(fleet, "init", answer=answer + "n\n")
    assert "command.argv = " in said
    if answer == "y\n":
        fleet.add("x", command=("true",))
        assert fleet.cli("trust", "--revoke").returncode == 0
    refused(fleet, "add", "x", "--", "true", code=1)
    answer_on_terminal(fleet, "trust", answer=answer)
    fleet.cli("add", "x", "--", "true", code=0 if answer == "y\n" else 1)
    fleet.cli("trust", "--revoke")
    fleet.cli("init", "--trust")
    fleet.add("x", command=("true",))


def test_init_in_a_checkout_that_cannot_be_written(fleet: Fleet) -> None:
    """The repository is known all the same; the line says what to do, and no half of a file stays."""
    done = fleet.cli("init", "--gate", "true", env={"HOLDFAST_FAULT": "init.file:1:EROFS"}, code=1)
    assert "could not be written: injected at init.file: Read-only file system" in done.stderr
    assert "--no-file" in done.stderr
    assert not (fleet.repo / "holdfast.toml").exists()
