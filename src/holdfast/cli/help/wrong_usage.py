"""Answers to wrong command lines: what is wrong, and the next command to type.

Imported only when a command line is wrong.
"""

from __future__ import annotations

import argparse
import difflib
import re
import shlex
from collections.abc import Collection, Sequence

from holdfast.base.text import one_line

# word → what to type instead. Words that other tools use, or that describe a wish.
SYNONYMS = {
    **dict.fromkeys(
        ("ls", "list", "tasks", "jobs", "queue"), "`holdfast ps` lists tasks; `holdfast ps --all` includes ended ones."
    ),
    **dict.fromkeys(
        ("status", "st", "info", "state", "fleet"),
        "`holdfast ps` lists tasks, `holdfast top` shows the fleet on one screen.",
    ),
    **dict.fromkeys(
        ("stop", "kill", "abort", "end", "interrupt", "quit"),
        "`holdfast cancel ID` ends a task, `holdfast down` stops the supervisor.",
    ),
    **dict.fromkeys(
        ("rm", "remove", "delete", "del", "clean", "cleanup", "prune"),
        "`holdfast cancel ID` ends a task, `holdfast workspaces clean ID` drops a kept workspace, "
        "`holdfast branches prune` deletes merged branches.",
    ),
    **dict.fromkeys(("tail", "output", "attach", "follow", "watch"), "`holdfast logs ID -f` follows an agent."),
    **dict.fromkeys(
        ("cost", "costs", "usage", "spend", "spending", "billing"), "`holdfast stats` shows runs, tokens and money."
    ),
    **dict.fromkeys(
        ("start", "exec", "do", "launch"),
        '`holdfast run "PROMPT"` starts a task, `holdfast up` starts the supervisor.',
    ),
    **dict.fromkeys(("new", "create", "submit", "enqueue"), '`holdfast add "PROMPT"` queues a task.'),
    **dict.fromkeys(("serve", "daemon", "server", "supervisor"), "`holdfast up --detach` starts the supervisor."),
    **dict.fromkeys(
        ("continue", "message", "msg", "tell", "say", "chat", "followup", "prompt", "reply", "ask"),
        '`holdfast send ID "TEXT"` tells a task what to do next.',
    ),
    **dict.fromkeys(
        ("edit", "change", "modify", "update", "rename"),
        "`holdfast set ID KEY=VALUE` changes a task that is not running; `holdfast config path` names the settings "
        "file.",
    ),
    **dict.fromkeys(
        ("open", "cd", "enter", "checkout", "ssh"), "`holdfast shell ID` opens a shell in the task's workspace."
    ),
    **dict.fromkeys(
        ("inspect", "describe", "get", "view", "details"), "`holdfast show ID` shows everything about a task."
    ),
    **dict.fromkeys(("explain", "reason"), "`holdfast why ID` explains the state of a task."),
    **dict.fromkeys(("history", "audit", "journal"), "`holdfast events` lists what happened, in order."),
    **dict.fromkeys(("restart", "rerun", "again", "redo"), "`holdfast retry ID` queues an ended task again."),
    **dict.fromkeys(("push", "publish", "review"), "`holdfast pr ID` pushes a task's branch and opens a pull request."),
    **dict.fromkeys(("land", "apply", "accept", "commit", "rebase"), "`holdfast merge ID` merges a task's work."),
    **dict.fromkeys(("changes", "patch"), "`holdfast diff ID` shows what a task changed."),
    **dict.fromkeys(("cron", "at", "every", "timer"), "`holdfast schedule list` shows schedules."),
    **dict.fromkeys(("login", "auth", "logins"), "`holdfast accounts` lists the logins of agents."),
    **dict.fromkeys(("settings", "configure", "setup", "option"), "`holdfast config show` shows the settings."),
    **dict.fromkeys(("undo", "recover", "lost"), "`holdfast salvage list` lists saved work."),
    **dict.fromkeys(("check", "diagnose", "health", "test", "verify"), "`holdfast doctor` checks machine and home."),
    **dict.fromkeys(
        ("uninstall", "reset", "destroy", "wipe"), "`holdfast purge --dry-run` lists what would be removed."
    ),
    **dict.fromkeys(("ui", "tui", "dashboard", "monitor", "web"), "`holdfast top` shows the fleet on one screen."),
    **dict.fromkeys(("models", "providers", "clis", "tools"), "`holdfast agents` lists the agents that you can use."),
    **dict.fromkeys(("demo", "try", "simulate", "example"), "`holdfast rehearse` plays a scenario without an agent."),
    **dict.fromkeys(("docs", "doc", "man", "manual"), "`holdfast help --all` lists every command and every topic."),
    "install": "`holdfast init` sets up a repository, `holdfast service install` installs a service.",
    "gate": '`holdfast run "PROMPT" --gate CMD` completes the task only if CMD exits with code 0.',
    "notify": "`holdfast alerts test` sends a test alert; `holdfast help alerts` lists the ways to reach you.",
    "version": "`holdfast --version` prints the version.",
    "yes": "A command that asks for confirmation takes `--yes`, such as `holdfast purge --yes`.",
}
_IDS = ("id", "ids", "ID")


def find_same(word: str, commands: Collection[str]) -> str | None:
    """Return the command that `word` names in the singular or the plural."""
    for other in (f"{word}s", f"{word}es", word.removesuffix("s"), word.removesuffix("es")):
        if other in commands:
            return other
    return None


def unknown_command(word: str, commands: Collection[str]) -> str:
    """Return the answer to a word that is no command."""
    said = f"There is no command '{one_line(word, 40)}'."
    if " " in word.strip():
        return f"{said} To give this prompt to an agent: `holdfast run {shlex.quote(one_line(word, 60))}`."
    if word.lower() in commands:
        return f"{said} Commands are written in small letters: `holdfast {word.lower()}`."
    if word.lower() in SYNONYMS:
        return f"{said} {SYNONYMS[word.lower()]}"
    return f"{said} {_name_topic_or_agent(word.lower()) or _guess(word.lower(), commands)}"


def _name_topic_or_agent(word: str) -> str | None:
    """Return the answer to a word that is a topic of the help, or an agent. None: it is neither."""
    from holdfast.cli.help.front_page import topics
    from holdfast.config.settings import CLI_AGENTS

    if word in CLI_AGENTS:
        return f'`holdfast run "PROMPT" --agent {word}` gives a task to this agent; `holdfast agents` lists them all.'
    known = topics()
    topic = word if word in known else find_same(word, known)
    return None if topic is None else f"`holdfast help {topic}` explains it."


def _guess(word: str, commands: Collection[str]) -> str:
    """Return the question about a mistyped command, topic or synonym. A word that is far from all gets no guess."""
    from holdfast.cli.help.front_page import topics

    known = [*commands, *SYNONYMS]
    swapped = next((other for other in known if sorted(other) == sorted(word)), None)
    close = difflib.get_close_matches(word, commands, n=1, cutoff=0.75)
    meant = swapped or next((other for other in SYNONYMS if _is_one_slip(word, other)), None) or next(iter(close), None)
    if meant in SYNONYMS:
        return f"Did you mean '{meant}'? {SYNONYMS[meant]}"
    if meant is not None:
        return f"Did you mean `holdfast {meant}`?"
    if page := difflib.get_close_matches(word, topics(), n=1, cutoff=0.8):
        return f"Did you mean `holdfast help {page[0]}`?"
    return "`holdfast help` lists the commands."


def _is_one_slip(word: str, other: str) -> bool:
    """True if a letter more, a letter less or another letter makes `other` of a `word` of five letters or more."""
    if len(word) < 5 or abs(len(word) - len(other)) > 1:
        return False
    longer, shorter = sorted((word, other), key=len, reverse=True)
    skip = 1 if len(word) == len(other) else 0
    return any(longer[:at] + longer[at + 1 :] == shorter[:at] + shorter[at + skip :] for at in range(len(longer)))


def unquoted_prompt(name: str, prompt: str, rest: Sequence[str]) -> str:
    """Return the answer to a prompt of several words without quotes."""
    whole = shlex.quote(one_line(" ".join([prompt, *rest]), 80))
    return f"The prompt is one argument. Put it in quotes: `holdfast {name} {whole}`."


def unknown_option(name: str, parser: argparse.ArgumentParser, word: str) -> str:
    """Return the answer to an option that the command does not have."""
    option = word.partition("=")[0]
    said = f"`holdfast {name}` has no option {one_line(option, 40)}."
    close = difflib.get_close_matches(option, _options(parser), n=1, cutoff=0.7)
    if close:
        return f"{said} Did you mean {close[0]}?"
    return f"{said} `holdfast {name} --help` lists its options."


def _options(parser: argparse.ArgumentParser) -> list[str]:
    return [option for action in parser._actions for option in action.option_strings if option.startswith("--")]


def explain(parser: argparse.ArgumentParser, message: str) -> str:
    """Return what argparse found wrong in plain words, with the next command."""
    program = parser.prog
    name = program.removeprefix("holdfast ")
    more = f"`{program} --help` explains it."
    if found := re.fullmatch(r"the following arguments are required: (.*)", message):
        return _missing(parser, program, found[1].split(", "))
    if found := re.fullmatch(r"unrecognized arguments: (.*)", message):
        first = found[1].split()[0] if found[1].split() else "''"
        if first.startswith("-"):
            return unknown_option(name, parser, first)
        return f"`{program}` does not take '{one_line(found[1], 60)}'. {more}"
    if found := re.fullmatch(r"argument ([^:]*): invalid choice: '?(.*?)'? \(choose from (.*)\)", message):
        known = [word.strip().strip("'") for word in found[3].split(",")]
        close = difflib.get_close_matches(found[2], known, n=1)
        hint = f" Did you mean '{close[0]}'?" if close else ""
        return f"'{one_line(found[2], 40)}' is not one of: {', '.join(known)}.{hint} {more}"
    if found := re.fullmatch(r"argument ([^:]*): invalid (?:int|float) value: '(.*)'", message):
        kind = "a whole number" if "int value" in message else "a number"
        return f"{_label(found[1])} takes {kind}, not '{one_line(found[2], 40)}'. {more}"
    if found := re.fullmatch(
        r"argument ([^:]*): expected (?:one argument|at least one argument|\d+ arguments)", message
    ):
        return f"{_label(found[1])} needs a value. {more}"
    if found := re.fullmatch(r"ambiguous option: (\S+) could match (.*)", message):
        return f"{found[1]} may be any of {found[2]}. Type more letters of it."
    if found := re.fullmatch(r"argument ([^:]*): not allowed with argument (.*)", message):
        return f"{_label(found[1])} and {_label(found[2])} cannot be combined. {more}"
    if found := re.fullmatch(r"argument ([^:]*): ignored explicit argument '(.*)'", message):
        return f"{_label(found[1])} takes no value. {more}"
    if found := re.fullmatch(r"argument ([^:]*): (.*)", message):
        return f"{_label(found[1])}: {found[2]}. {more}"
    return f"{message[0].upper()}{message[1:]}. {more}"


def _label(argument: str) -> str:
    """Return the long name of an option that argparse names as `-n/--number`."""
    return argument.split("/")[-1]


def _missing(parser: argparse.ArgumentParser, program: str, names: Sequence[str]) -> str:
    if names and names[0] in _IDS:
        return f"Which task? Type `{program} ID`. `holdfast ps --all` lists the tasks with their ids."
    shown = " ".join(name.upper() for name in names)
    action = next((one for one in parser._actions if names and names[0] in (one.dest, one.metavar)), None)
    choices = f" It is one of: {', '.join(map(str, action.choices))}." if action is not None and action.choices else ""
    return f"Something is missing: `{program} {shown}`.{choices} `{program} --help` explains it."
