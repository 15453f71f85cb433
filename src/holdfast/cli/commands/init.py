"""Commands that set up a repository: init, trust.

`init` asks three questions at most. The default agent and the permissions go to the user's own file. The command that
runs the tests goes to the repository's file.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.api.home.init import AGENT, GATE, PERMISSIONS, read_choice, record_choice
from holdfast.base.errors import Refused, UsageError
from holdfast.base.home import home_directory
from holdfast.cli.output.render import clean_text, one_line, print_json, print_table

if TYPE_CHECKING:
    from holdfast.api.home.agent_clis import AgentCli
    from holdfast.api.home.init import TrustQuestion
    from holdfast.api.home.models import InitRow
    from holdfast.api.home.proposals import Proposal
    from holdfast.config import Config


MODES = {
    "read": "agents may read, but change nothing",
    "edit": "agents may change files of their workspace; anything that needs approval is refused",
    "full": "agents may do everything that you may do: any command, any file, the network",
}
MOST_ATTEMPTS = 3  # for one question


def choose_agent(found: Sequence[AgentCli], wanted: str | None, *, is_yes: bool) -> None:
    names = [cli.name for cli in found]
    if found:
        listed = ", ".join(f"{cli.name} {cli.version}".rstrip() for cli in found)
        print(f"Agent CLIs: {clean_text(listed)}.")
    if wanted is not None:
        _print_recorded(f"Default agent: {wanted}", record_choice(AGENT, wanted))
        return
    if not found:
        print("No agent CLI was found in PATH. Any command can be an agent:")
        print('  holdfast run "say hello" -- sh -c "cat > hello.txt"')
        return
    before = read_choice(AGENT)
    if before is not None:
        print(f"Default agent: {clean_text(before)}, as you chose.")
    elif len(names) == 1 or is_yes:
        _record(f"Default agent: {names[0]}", AGENT, names[0])
    elif _has_terminal():
        answer = _ask(f"Default agent? [{names[0]}] ", names, names[0])
        if answer is not None:
            _record(f"Default agent: {answer}", AGENT, answer)
    else:
        print("No default agent yet. Choose one: holdfast init --agent NAME")


def refuse_unknown(name: str) -> None:
    """Raise UsageError for an unknown agent. Call this before anything is done or printed, so that the refusal is the
    only output."""
    from holdfast.api.home.agent_clis import list_agents

    if name not in list_agents():
        raise UsageError(f"There is no agent '{one_line(name, 40)}'. This version knows: {', '.join(list_agents())}.")


def choose_permissions(found: Sequence[AgentCli], settings: Config, wanted: str | None, *, is_yes: bool) -> None:
    from holdfast.api.home.agent_clis import find_start_problem

    mode = wanted or read_choice(PERMISSIONS)
    if wanted is not None:
        _print_recorded(f"Permissions: {wanted} ({MODES[wanted]})", record_choice(PERMISSIONS, wanted))
    elif mode is not None:
        print(f"Permissions: {clean_text(mode)} ({MODES.get(mode, 'not a mode')}), as you chose.")
    elif found and (is_yes or _has_terminal()):
        mode = "edit" if is_yes else _ask_permissions(found)
        if mode is not None:
            _record(f"Permissions: {mode} ({MODES[mode]})", PERMISSIONS, mode)
    if mode is None:
        mode = "edit"
        print(f"Permissions: edit, the default ({MODES[mode]}).")
        print("  To change it: holdfast init --permission read|edit|full")
    for cli in found:
        why = find_start_problem(cli, settings, mode)
        if why is not None:
            print(f"  {cli.name} cannot be started like this: {clean_text(why)}.")


def _ask_permissions(found: Sequence[AgentCli]) -> str | None:
    from holdfast.api.home.agent_clis import describe_permissions

    print("What may agents do without asking? --permission changes this for one task.")
    for mode, meaning in MODES.items():
        print(f"  {mode:<5} {meaning}")
        for cli in found:
            words = describe_permissions(cli).get(mode, "")
            if words:
                print(f"          {cli.name}: {one_line(words, 100)}")
    return _ask("read, edit or full? [edit] ", list(MODES), "edit")


def _ask(question: str, answers: Sequence[str], default: str) -> str | None:
    """Ask until a person gives one of the answers. None: there was no answer. Only whole words count, so that one wrong
    key cannot choose something dangerous."""
    for answer in _answers(question):
        chosen = answer.lower() or default
        if chosen in answers:
            return chosen
        print(f"'{one_line(answer, 40)}' is none of {', '.join(answers)}.")
    return None


def _answers(question: str) -> Iterator[str]:
    """Yield what a person types, until the input ends or the question was asked often enough."""
    for _attempt in range(MOST_ATTEMPTS):
        try:
            yield input(question).strip()
        except EOFError:
            print()
            return


def _record(what: str, key: str, value: str) -> None:
    """Record an answer. If it cannot be written, print the line that the user has to add, and continue the set-up."""
    try:
        _print_recorded(what, record_choice(key, value))
    except Refused as error:
        print(clean_text(error))


def _print_recorded(what: str, file: str) -> None:
    print(f"{what}; recorded in {clean_text(file)}.")


def _has_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


# -- the gate ----------------------------------------------------------------------------------------------------------


def choose_gate(home: str, asked: TrustQuestion, settings: Config, wanted: str | None, *, is_yes: bool) -> None:
    """Choose a gate if none is set or `wanted` names one, and write it into the repository's file with the proposed
    set-up. The values are in force at once. Agents are allowed to run the gate's command."""
    from holdfast.api.home.init import SETUP, write_repo_values
    from holdfast.api.home.proposals import propose

    present = str(asked.values.get(GATE) or settings[GATE])
    if wanted is None and present:
        print(
            f"Gate: {clean_text(present)} ({clean_text(asked.file) if GATE in asked.values else 'your own settings'})."
        )
        return
    found = propose(asked.repo)
    setup = [] if SETUP in asked.values or wanted is not None else list(found.setup)
    if wanted is None and not is_yes and not _has_terminal():
        if found.gate:
            print(f"{found.gate_from}: the gate of every task can be `{found.gate}`. Not set yet: holdfast init --yes")
        return
    gate = wanted if wanted is not None else found.gate if is_yes else _ask_gate(found)
    if not gate:
        print("Gate: none. Name the command that runs your tests: holdfast init --gate COMMAND")
        return
    values = {GATE: gate, **({SETUP: setup} if setup else {}), **_allow(gate, asked, settings)}
    for line in write_repo_values(home, asked, values):
        print(clean_text(line))


def _allow(gate: str, asked: TrustQuestion, settings: Config) -> dict[str, list[str]]:
    """Return the commands that agents may run, with the gate's. Empty: they are already allowed to, or the gate is
    not one plain command."""
    from holdfast.agents.registry import AGENTS
    from holdfast.api.home.init import ALLOW
    from holdfast.config.values import is_plain_command

    agent = AGENTS.get(read_choice(AGENT) or "")
    before = list(asked.values.get(ALLOW) or settings[ALLOW])
    if gate in before or not is_plain_command(gate) or not getattr(agent, "runs_commands", True):
        return {}
    return {ALLOW: [*before, gate]}


def _ask_gate(found: Proposal) -> str:
    print("Which command runs your tests? A task counts as done only if this command passes.")
    if found.setup:
        print(f"  New workspaces are set up first: {', '.join(found.setup)}")
    hint = f"from {found.gate_from}; Enter or y: this command, n: no gate" if found.gate else "Enter: none"
    for answer in _answers(f"Command? ({hint}) [{found.gate}] " if found.gate else f"Command? ({hint}) "):
        word = answer.lower()
        if not answer or (word in ("y", "yes") and found.gate):
            return found.gate
        if word in ("n", "no", "none", "-"):
            return ""
        if word not in ("y", "yes", *MODES) and len(answer) > 1:
            return answer
        print(f"'{one_line(answer, 40)}' is not a command.")
    return ""


# -- init --------------------------------------------------------------------------------------------------------------


def configure_init(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", nargs="?", default=".", help="the repository (this directory)")
    parser.add_argument("--moved-from", metavar="OLD", help="the repository was moved from OLD; its tasks move with it")
    parser.add_argument("--agent", metavar="NAME", help="record the default agent in your own settings")
    parser.add_argument(
        "--permission",
        "--permissions",
        dest="permissions",
        choices=["read", "edit", "full"],
        help="record in your own settings what agents may do without asking",
    )
    gate = parser.add_mutually_exclusive_group()
    gate.add_argument(
        "--gate",
        metavar="COMMAND",
        help="write the command that runs your tests to holdfast.toml; '': no gate, and no question",
    )
    gate.add_argument("--no-file", action="store_true", help="do not write a holdfast.toml, and do not ask for a gate")
    parser.add_argument("--yes", "-y", action="store_true", help="accept the proposals without asking")
    parser.add_argument("--trust", action="store_true", help="trust the current values of an existing holdfast.toml")
    parser.add_argument("--json", action="store_true", help="machine-readable output; asks nothing")


def run_init(arguments: argparse.Namespace) -> int:
    """Set up the repository. With --json, print one object: its `notes` are the sentences for people."""
    if not arguments.json:
        _set_up(arguments)
        return 0
    from holdfast import config
    from holdfast.api.home.init import question

    with contextlib.redirect_stdout(io.StringIO()) as told:
        repo = _set_up(arguments)
    home, settings = home_directory(), config.load_valid_values()
    try:
        asked = question(home, repo)
    except config.ConfigError:  # the notes have the mistakes
        asked = None
    found: InitRow = {
        "repo": repo,
        "home": home,
        "agent": read_choice(AGENT),
        "permission": str(settings[PERMISSIONS]),
        "gate": str((asked.values.get(GATE) if asked else None) or settings[GATE]) or None,
        "trusted": asked is not None and asked.is_trusted,
        "notes": told.getvalue().splitlines(),
    }
    print_json(found)
    return 0


def _set_up(arguments: argparse.Namespace) -> str:
    """Set up the repository, and return its path."""
    from holdfast import config
    from holdfast.api.commands import Commands
    from holdfast.api.home.agent_clis import find_clis, find_distrust
    from holdfast.intake.repository import absolute_path

    if arguments.agent is not None:
        refuse_unknown(arguments.agent)
    home = home_directory()
    repo = Commands(home).register(absolute_path(arguments.directory), moved_from=arguments.moved_from)
    print(f"Repository {repo.path} is known to Holdfast (home {home}).")
    settings = config.load_valid_values()
    found = [cli for cli in find_clis(settings, home) if cli.path is not None]
    choose_agent(found, arguments.agent, is_yes=arguments.yes)
    choose_permissions(found, settings, arguments.permissions, is_yes=arguments.yes)
    if "HOLDFAST_HOME" in os.environ and "HOLDFAST_CONFIG" not in os.environ:
        print("Your own settings are not in HOLDFAST_HOME. HOLDFAST_CONFIG names another settings file.")
    for cli in found:
        if (distrust := find_distrust(cli, settings, repo.path)) is not None:
            print(clean_text(f"{distrust}."))
    asked = _ask_about_existing(home, repo.path, is_yes=arguments.trust)
    if arguments.gate and asked is None:
        raise Refused("The gate was not written, because holdfast.toml has mistakes.")
    if asked is not None and not arguments.no_file and (asked.is_trusted or arguments.gate):
        choose_gate(home, asked, settings, arguments.gate, is_yes=arguments.yes)
    _print_next_step(found)
    return repo.path


def _print_next_step(found: Sequence[AgentCli]) -> None:
    """Print the command that gives the first task to an agent."""
    chosen = read_choice(AGENT)
    if chosen is not None:
        print('Next: holdfast run "PROMPT"')
    elif found:
        print(f'Next: holdfast run "PROMPT" --agent {found[0].name}')


def _ask_about_existing(home: str, repo: str, *, is_yes: bool) -> TrustQuestion | None:
    """Ask for trust in an existing file, and return what the file sets. None: it has mistakes.

    `init` alone does not make a file of a clone trusted: docs/adr/*-trust.md.
    """
    from holdfast.api.home.init import give_trust, question
    from holdfast.config import ConfigError

    try:
        asked = question(home, repo)
    except ConfigError as error:
        print("holdfast.toml has mistakes; until they are fixed, tasks are refused:")
        for problem in error.problems:
            print(f"  {clean_text(problem)}")
        return None
    if asked.is_trusted:
        return asked
    _show(asked)
    if is_yes or _is_confirmed():
        give_trust(home, asked)
        print(f"Trusted {asked.file} with these values.")
        return replace(asked, is_trusted=True)
    print(f"It is not trusted; until it is, {_consequence(asked)}. After you have reviewed it: holdfast trust")
    return asked


def _show(asked: TrustQuestion) -> None:
    what = [
        *(["could run commands or show secrets"] if asked.values else []),
        *(["is less strict than your own settings"] if asked.looser else []),
        *(["adds tasks by the clock"] if asked.schedules else []),
    ]
    print(f"{asked.file} sets what {', and '.join(what)}:")
    for line in asked.lines:
        print(f"  {clean_text(line)}")


def _consequence(asked: TrustQuestion) -> str:
    if asked.values:
        return "tasks are refused"
    return "its schedules are not used" if asked.schedules else "your own values stay"


def _is_confirmed() -> bool:
    """True if a person answers yes. False without a terminal for both input and output."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    try:
        return input("Trust it with exactly these values? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


# -- trust -------------------------------------------------------------------------------------------------------------


def configure_trust(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", nargs="?", default=".", help="the repository (this directory)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--yes", "-y", action="store_true", help="trust without asking")
    what.add_argument("--revoke", action="store_true", help="take trust back")
    what.add_argument("--list", action="store_true", help="every trusted repository")
    parser.add_argument(
        "--json", action="store_true", help="machine-readable output; changes nothing without --yes or --revoke"
    )
    parser.epilog = (
        "Trust covers the values that were shown. If a value that could run commands changes, tasks are refused until "
        "you trust it again. If another value changes, your own value applies until then."
    )


def run_trust(arguments: argparse.Namespace) -> int:
    from holdfast.api.home.init import give_trust, question, revoke_trust
    from holdfast.config.tables.schedules import trust_values

    home = home_directory()
    if arguments.list:
        return _list(home, as_json=arguments.json)
    if arguments.revoke:
        path, was_trusted = revoke_trust(home, os.path.abspath(arguments.directory))
        if arguments.json:
            print_json({"repo": path, "was_trusted": was_trusted})
        else:
            print(
                f"{path} is not trusted any more."
                if was_trusted
                else f"{path} was not trusted, so there is nothing to do."
            )
        return 0
    asked = question(home, os.path.abspath(arguments.directory))
    if arguments.yes and not asked.is_trusted:
        give_trust(home, asked)
    if arguments.json:
        is_trusted = asked.is_trusted or arguments.yes
        values = asked.values | asked.settings | trust_values(asked.schedules)
        print_json({"repo": asked.repo, "file": asked.file, "values": values, "trusted": is_trusted})
        return 0
    return _decide(home, asked, is_yes=arguments.yes)


def _decide(home: str, asked: TrustQuestion, *, is_yes: bool) -> int:
    from holdfast.api.home.init import give_trust

    if not asked.lines:
        print(f"{asked.file} {'sets nothing that needs trust' if asked.exists else 'does not exist'}.")
        return 0
    _show(asked)
    if asked.is_trusted:
        print("It is already trusted with these values.")
        return 0
    if not is_yes:
        if not _is_confirmed():
            raise Refused(f"{asked.file} is not trusted, because you did not confirm. Without a terminal, add --yes.")
        give_trust(home, asked)
    print("Trusted.")
    return 0


def _list(home: str, *, as_json: bool) -> int:
    from holdfast.api.home.init import list_trust

    rows = list_trust(home)
    if as_json:
        for row in rows:
            print_json(row)
        return 0
    if not rows:
        print("No repository is trusted.")
        return 0
    print_table(
        ("REPOSITORY", "STATE", "KEYS", "BY", "WHEN"),
        [
            (
                clean_text(row["repo"]),
                row["state"],
                " ".join(row["keys"] or []),
                clean_text(row["by"]),
                time.strftime("%Y-%m-%d %H:%M", time.localtime(row["at"] or 0)),
            )
            for row in rows
        ],
    )
    return 0
