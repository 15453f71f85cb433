"""Help and completion, from outside: every command explains itself, and the tab key offers what the parsers take."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fleet import Fleet

import holdfast
from holdfast.cli.completion import SHELLS
from holdfast.cli.help.front_page import read_topic, topics
from holdfast.cli.help.pages import PAGES
from holdfast.cli.main import COMMANDS, _parse, build_parser, run

EXAMPLES = [(name, line) for name, page in PAGES.items() for _what, line in page.examples]


class TestHelp:
    def test_every_command_has_a_page(self) -> None:
        """To add a command is to write its page: description, an example, exit codes, neighbours that exist."""
        assert set(PAGES) == set(COMMANDS)
        for name, page in PAGES.items():
            assert page.description, name
            assert page.examples, name
            assert 0 in page.codes, name
            assert 2 in page.codes, name
            assert set(page.see) <= set(COMMANDS) - {name}, name

    @pytest.mark.parametrize(("name", "line"), EXAMPLES, ids=[line for _name, line in EXAMPLES])
    def test_every_example_parses(self, name: str, line: str) -> None:
        program, command, *rest = shlex.split(line.rpartition(" | ")[2])
        assert (program, command) == ("holdfast", name)
        _parse(build_parser(name), name, rest)

    def test_it_is_shown(self, fleet: Fleet) -> None:
        said = fleet.cli("purge", "--help").stdout
        for part in ("usage:", "--discard-work", "examples:", "holdfast purge --dry-run", "exit codes:", "see also:"):
            assert part in said
        assert fleet.cli("help", "purge").stdout == said
        assert fleet.cli("help").stdout == fleet.cli("--help").stdout
        assert "There is no command 'nonsense'" in fleet.cli("help", "nonsense", code=2).stderr
        everything = fleet.cli("help", "--all").stdout
        assert all(f"  {name:<12}" in everything for name in COMMANDS)
        assert "recovery" in everything
        page = fleet.cli("help", "recovery").stdout
        assert page.startswith("# ")
        assert "](" not in page
        assert "Does the agent see my uncommitted files?" in fleet.cli("help", "faq").stdout
        assert "holdfast add --from TODO.md" in fleet.cli("help", "tutorial").stdout
        for words in (("exit", "codes"), ("exit-codes",)):
            assert "75   the task is paused\n" in fleet.cli("help", *words).stdout
        assert fleet.cli("help", "schedule", "list").stdout == fleet.cli("help", "schedule").stdout

    @pytest.mark.parametrize("topic", sorted(topics()))
    def test_every_topic_is_printed(self, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
        """A topic with the name of a command comes behind that command's page."""
        assert run(["help", topic]) == 0
        printed = capsys.readouterr().out
        assert printed.endswith(read_topic(topic) or "-")
        assert printed.startswith("# ") or topic in COMMANDS
        if topic in COMMANDS:
            assert run([topic, "--help"]) == 0
            assert printed.startswith(own := capsys.readouterr().out)
            assert own.endswith(f"more: `holdfast help {topic}`\n")

    def test_every_topic_can_be_copied_from_the_list(self, capsys: pytest.CaptureFixture[str]) -> None:
        """No name is broken at its hyphen at the end of a line."""
        assert run(["help", "--all"]) == 0
        listed = re.split(r",\s+", capsys.readouterr().out.rpartition("TOPIC`):")[2].strip())
        assert set(listed) == {*topics(), "exit-codes"}

    def test_what_messages_call_a_topic_is_one(self) -> None:
        """`holdfast help WORD` in a message leads to a page, never to another command's usage."""
        sources = Path(holdfast.__file__).parent.rglob("*.py")
        named = {word for path in sources for word in re.findall(r"`holdfast help ([a-z][a-z-]*)`", path.read_text())}
        assert len(named) > 10
        assert sorted(named - set(topics()) - set(COMMANDS)) == []

    def test_it_costs_little(self, fleet: Fleet) -> None:
        """Cold start is measured in bench/; here only what would spoil it: heavy modules that --help has no use for."""
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "holdfast", "--help"],
            env=fleet.env,
            capture_output=True,
            text=True,
            check=True,
        )
        imported = {line.rsplit("|", 1)[1].strip() for line in done.stderr.splitlines() if "|" in line}
        assert "holdfast.cli.main" in imported
        heavy = {"asyncio", "apsw", "rich", "tomllib", "subprocess", "dataclasses", "holdfast.config", "holdfast.api"}
        assert imported & heavy == set()


def script(fleet: Fleet, shell: str) -> Path:
    path = fleet.root / f"completion.{shell}"
    path.write_text(fleet.cli("completion", shell).stdout)
    return path


def tab_program(fleet: Fleet) -> Path:
    """A `holdfast` for the shells to call."""
    program = fleet.root / "bin" / "holdfast"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m holdfast "$@"\n')
    program.chmod(0o755)
    return program


def tab(fleet: Fleet, *words: str) -> set[str]:
    """What bash offers when tab is pressed behind the last of `words`."""
    line = " ".join(map(shlex.quote, ("holdfast", *words)))
    program = tab_program(fleet)
    done = subprocess.run(
        [
            "bash",
            "--norc",
            "-c",
            f"source {script(fleet, 'bash')}; COMP_WORDS=({line}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ));"
            ' _holdfast; printf "%s\\n" "${COMPREPLY[@]}"',
        ],
        env={**fleet.env, "PATH": f"{program.parent}:{os.environ['PATH']}"},
        cwd=fleet.repo,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return set(done.stdout.split())


class TestCompletion:
    def test_commands_options_and_values(self, fleet: Fleet) -> None:
        """In a real bash, from what the parsers say."""
        assert tab(fleet, "pur") == {"purge"}
        assert tab(fleet, "") >= set(COMMANDS)
        assert tab(fleet, "down", "--") == {"--help", "--now", "--keep-agents", "--json"}
        assert tab(fleet, "completion", "") == set(SHELLS)
        assert tab(fleet, "salvage", "l") == {"list"}
        assert tab(fleet, "rehearse", "READ") == {"README.md"}
        assert tab(fleet, "add", "x", "--repo", "s") == {"src"}
        assert tab(fleet, "run", "x", "--", "--") == set()  # the agent's own words are not ours to complete

    def test_ids_of_tasks(self, fleet: Fleet) -> None:
        """Those that the command is about; no store, no words, no error."""
        assert tab(fleet, "show", "") == set()
        waiting, done = (fleet.add(name, command=("true",)) for name in ("one", "two"))
        fleet.cli("cancel", done)
        assert tab(fleet, "show", "") == {waiting, done}
        assert tab(fleet, "show", waiting[:4]) == {waiting}
        assert tab(fleet, "cancel", "") == {waiting}
        assert tab(fleet, "retry", "") == {done}
        assert tab(fleet, "add", "x", "--after", "") == {waiting, done}
        assert fleet.cli("__complete", "ids", "cancel", "").stdout == f"{waiting}\tqueued: one\n"
        for odd in ((), ("ids",), ("ids", "show", "'; rm"), ("nonsense", "a", "b")):
            assert fleet.cli("__complete", *odd).stdout == ""

    @pytest.mark.parametrize("shell", SHELLS)
    def test_the_script_is_good_for_its_shell(self, fleet: Fleet, shell: str) -> None:
        if shutil.which(shell) is None:
            pytest.skip(f"{shell} is not installed: its completion script is NOT checked here")
        done = subprocess.run([shell, "-n", str(script(fleet, shell))], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")

    @pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed: NOT checked here")
    def test_in_a_real_fish(self, fleet: Fleet) -> None:
        """With descriptions, and ids from a store."""
        task_id = fleet.add("one", command=("true",))
        asked = f"source {script(fleet, 'fish')}; complete -C'holdfast pur'; complete -C'holdfast cancel '"
        program = tab_program(fleet)
        env = {**fleet.env, "PATH": f"{program.parent}:{os.environ['PATH']}"}
        done = subprocess.run(
            ["fish", "--no-config", "-c", asked], env=env, cwd=fleet.repo, capture_output=True, text=True, check=True
        )
        assert done.stdout.splitlines() == [f"purge\t{COMMANDS['purge'][1]}", f"{task_id}\tqueued: one"]

    @pytest.mark.parametrize("shell", SHELLS)
    def test_every_command_and_option_is_in_it(self, fleet: Fleet, shell: str) -> None:
        text = script(fleet, shell).read_text()
        for name in COMMANDS:
            assert name in text
            for action in build_parser(name)._actions:
                for option in action.option_strings:
                    assert (
                        option in text
                        or (shell == "fish" and f"-l {option.removeprefix('--')}" in text)
                        or (shell == "fish" and f"-s {option.removeprefix('-')}" in text)
                    ), (name, option)
