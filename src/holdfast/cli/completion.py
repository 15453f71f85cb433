"""Completion scripts for shells, made from the real parsers, so the tab key offers exactly what a command takes."""

from __future__ import annotations

import argparse
import shlex
from typing import NamedTuple

from holdfast.base.errors import HoldfastError

SHELLS = ("bash", "zsh", "fish")
# The task states that a command accepts. A command that is missing here accepts every state.
STATES_FOR = {
    "cancel": ["queued", "running", "paused"],
    "retry": ["failed", "cancelled"],
    "pause": ["queued", "running"],
    "resume": ["paused"],
    "approve": ["paused"],
}
IDS, SCHEDULES, WORKFLOWS, FILES, FOLDERS, NOTHING = "ids", "schedules", "workflows", "files", "folders", ""
SETTINGS_KINDS = (SCHEDULES, WORKFLOWS)  # objects that the settings define, completed by name

_KINDS = {
    "ID": IDS,
    "SCHEDULE": SCHEDULES,
    "WORKFLOW": WORKFLOWS,
    "FILE": FILES,
    "SCENARIO": FILES,
    "DIR": FOLDERS,
    "DIRECTORY": FOLDERS,
}


class CompletionArgument(NamedTuple):
    """One option, or one positional argument (without names), with the values that completion offers for it."""

    names: tuple[str, ...]
    help: str
    takes_value: bool
    choices: tuple[str, ...]
    kind: str  # one of the constants above. NOTHING: no values to offer


class CompletionCommand(NamedTuple):
    name: str
    help: str
    options: tuple[CompletionArgument, ...]
    positionals: tuple[CompletionArgument, ...]


def list_commands() -> list[CompletionCommand]:
    from holdfast.cli.main import COMMANDS, build_parser

    found = []
    for name, (_module, text) in COMMANDS.items():
        words = [_describe_argument(action) for action in build_parser(name)._actions]
        options = tuple(word for word in words if word.names)
        positionals = tuple(word for word in words if not word.names)
        found.append(CompletionCommand(name, text, options, positionals))
    return found


def _describe_argument(action: argparse.Action) -> CompletionArgument:
    label = str(action.metavar or action.dest).upper()
    kind = _KINDS.get(label.partition("…")[0], NOTHING)
    return CompletionArgument(
        names=tuple(action.option_strings),
        help=(action.help or "").replace("%%", "%"),
        takes_value=action.nargs != 0,
        choices=tuple(map(str, action.choices or ())),
        kind=kind,
    )


def configure_completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="which shell")


def run_completion(arguments: argparse.Namespace) -> int:
    scripts = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}
    print(scripts[arguments.shell](list_commands()), end="")
    return 0


def complete(arguments: list[str]) -> int:
    """Print the values for `__complete KIND COMMAND PREFIX`, one per line.

    For the kind `ids` a line is `id TAB state: prompt`. For `schedules` and `workflows` it is `name TAB description`.
    Errors are never printed, because the tab key must not disturb the command line.
    """
    from holdfast.api.queries import Queries
    from holdfast.base.home import home_directory
    from holdfast.base.text import one_line

    if len(arguments) == 3 and arguments[0] in SETTINGS_KINDS:
        return _complete_schedules(arguments[2]) if arguments[0] == SCHEDULES else _complete_workflows(arguments[2])
    if len(arguments) != 3 or arguments[0] != "ids" or not (arguments[2] or "a").isalnum():
        return 0
    try:
        for row in Queries(home_directory()).completions(arguments[2], STATES_FOR.get(arguments[1])):
            print(f"{row['id']}\t{row['state']}: {one_line(row['prompt'], 50)}")
    except (HoldfastError, OSError):
        return 0
    return 0


def _complete_schedules(prefix: str) -> int:
    from holdfast.api.fleet.schedules import list_schedules
    from holdfast.base.home import home_directory

    try:
        for row in list_schedules(home_directory())[0]:
            if row["name"].startswith(prefix):
                print(f"{row['name']}\t{row['words']}")
    except (HoldfastError, OSError):
        return 0
    return 0


def _complete_workflows(prefix: str) -> int:
    """Print the names of workflows, including those of the repository in the current directory."""
    from holdfast.api.fleet.workflows import list_workflows
    from holdfast.base.home import home_directory
    from holdfast.base.text import one_line
    from holdfast.cli.commands.workflows import find_repository

    try:
        for row in list_workflows(home_directory(), find_repository(".")).rows:
            if row["name"].startswith(prefix):
                print(f"{row['name']}\t{one_line(row['about'], 70)}")
    except (HoldfastError, OSError):
        return 0
    return 0


# -- bash --------------------------------------------------------------------------------------------------------------


def bash_script(all_commands: list[CompletionCommand]) -> str:
    lines = [
        "# bash completion for holdfast; made by `holdfast completion bash`.",
        "_holdfast() {",
        '    local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" word i',
        '    local command="${COMP_WORDS[1]}" options="" words="" kind=""',
        "    COMPREPLY=()",
        "    if (( COMP_CWORD == 1 )); then",
        f'        COMPREPLY=( $(compgen -W "{" ".join(c.name for c in all_commands)} --help --version" -- "$cur") )',
        "        return",
        "    fi",
        "    for (( i = 2; i < COMP_CWORD; i++ )); do",
        '        if [[ "${COMP_WORDS[i]}" == -- ]]; then compopt -o default 2>/dev/null; return; fi',
        "    done",
        '    case "$command" in',
    ]
    for command in all_commands:
        names = [name for option in command.options for name in option.names]
        lines.append(f'        {command.name}) options="{" ".join(names)}"; {_bash_offer(command.positionals)} ;;')
    lines += ["    esac", '    case "$command $prev" in']
    for command in all_commands:
        for option in command.options:
            if option.takes_value:
                pattern = "|".join(f'"{command.name} {name}"' for name in option.names)
                lines.append(f'        {pattern}) options=""; {_bash_offer((option,))} ;;')
    lines += [
        "    esac",
        '    if [[ "$cur" == -* && -n "$options" ]]; then',
        '        COMPREPLY=( $(compgen -W "$options" -- "$cur") )',
        "        return",
        "    fi",
        '    [[ -n "$words" ]] && COMPREPLY=( $(compgen -W "$words" -- "$cur") )',
        '    case "$kind" in',
        '        *ids*) COMPREPLY+=( $("${COMP_WORDS[0]}" __complete ids "$command" "$cur" 2>/dev/null | cut -f1) ) ;;',
        f"        {'|'.join(SETTINGS_KINDS)})",
        '            COMPREPLY+=( $("${COMP_WORDS[0]}" __complete "$kind" x "$cur" 2>/dev/null | cut -f1) ) ;;',
        '        files) compopt -o filenames 2>/dev/null; COMPREPLY+=( $(compgen -f -- "$cur") ) ;;',
        '        folders) compopt -o filenames 2>/dev/null; COMPREPLY+=( $(compgen -d -- "$cur") ) ;;',
        "    esac",
        "}",
        "complete -F _holdfast holdfast",
    ]
    return "\n".join(lines) + "\n"


def _bash_offer(words: tuple[CompletionArgument, ...]) -> str:
    choices = " ".join(choice for word in words for choice in word.choices)
    kinds = [word.kind for word in words if word.kind]
    return f'words="{choices}"; kind="{kinds[0] if kinds else ""}"'


# -- zsh ---------------------------------------------------------------------------------------------------------------


def zsh_script(all_commands: list[CompletionCommand]) -> str:
    lines = [
        "#compdef holdfast",
        "# zsh completion for holdfast; made by `holdfast completion zsh`.",
        "_holdfast_ids() {",
        "    local -a found; local id text",
        "    while IFS=$'\\t' read -r id text; do found+=(\"${id}:${text//:/\\\\:}\"); done \\",
        '        < <("${words[1]}" __complete ids "${words[2]}" "${words[CURRENT]}" 2>/dev/null)',
        "    _describe -V task found",
        "}",
        "_holdfast_named() {",
        "    local -a found; local name text",
        "    while IFS=$'\\t' read -r name text; do found+=(\"${name}:${text//:/\\\\:}\"); done \\",
        '        < <("${words[1]}" __complete "$1" x "${words[CURRENT]}" 2>/dev/null)',
        '    _describe -V "$1" found',
        "}",
        "_holdfast() {",
        "    local -a found; local command=${words[2]} prev=${words[CURRENT-1]}",
        "    if (( CURRENT == 2 )); then",
        f"        found=({' '.join(_zsh_pair(c.name, c.help) for c in all_commands)})",
        "        _describe command found; return",
        "    fi",
        "    if (( ${words[(i)--]} < CURRENT )); then _files; return; fi",
        '    case "$command $prev" in',
    ]
    for command in all_commands:
        for option in command.options:
            if option.takes_value:
                pattern = "|".join(f'"{command.name} {name}"' for name in option.names)
                lines.append(f"        {pattern}) {_zsh_offer((option,))}; return ;;")
    lines += ["    esac", '    if [[ "${words[CURRENT]}" == -* ]]; then', '        case "$command" in']
    for command in all_commands:
        pairs = " ".join(_zsh_pair(name, option.help) for option in command.options for name in option.names)
        lines.append(f"            {command.name}) found=({pairs}) ;;")
    lines += ["        esac", "        _describe option found; return", "    fi", '    case "$command" in']
    lines += [f"        {command.name}) {_zsh_offer(command.positionals)} ;;" for command in all_commands]
    lines += [
        "    esac",
        "}",
        'if [[ "${funcstack[1]}" == _holdfast ]]; then _holdfast "$@"; else compdef _holdfast holdfast; fi',
    ]
    return "\n".join(lines) + "\n"


def _zsh_pair(name: str, text: str) -> str:
    return shlex.quote(f"{name}:{text}".replace("\n", " "))


def _zsh_offer(words: tuple[CompletionArgument, ...]) -> str:
    steps = []
    choices = [choice for word in words for choice in word.choices]
    if choices:
        steps.append(f"compadd -- {' '.join(map(shlex.quote, choices))}")
    for word in words:
        named = {kind: f"_holdfast_named {kind}" for kind in SETTINGS_KINDS}
        step = {IDS: "_holdfast_ids", **named, FILES: "_files", FOLDERS: "_files -/"}.get(word.kind)
        if step is not None and step not in steps:
            steps.append(step)
    return "; ".join(steps) or ":"


# -- fish --------------------------------------------------------------------------------------------------------------


def fish_script(all_commands: list[CompletionCommand]) -> str:
    lines = ["# fish completion for holdfast; made by `holdfast completion fish`.", "complete -c holdfast -f"]
    for command in all_commands:
        lines.append(f"complete -c holdfast -n __fish_use_subcommand -a {command.name} -d {_fish(command.help)}")
    for command in all_commands:
        when = f"complete -c holdfast -n '__fish_seen_subcommand_from {command.name}'"
        for option in command.options:
            names = " ".join(f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in option.names)
            value = f" -r{_fish_offer(command.name, option)}" if option.takes_value else ""
            lines.append(f"{when} {names}{value} -d {_fish(option.help)}")
        for word in command.positionals:
            offer = _fish_offer(command.name, word)
            if offer:
                lines.append(f"{when}{offer}")
    return "\n".join(lines) + "\n"


def _fish_offer(command: str, word: CompletionArgument) -> str:
    offers = [f" -a {_fish(' '.join(word.choices))}"] if word.choices else []
    if word.kind == IDS:
        offers.append(f" -a '(holdfast __complete ids {command} (commandline -ct))'")
    if word.kind in SETTINGS_KINDS:
        offers.append(f" -a '(holdfast __complete {word.kind} x (commandline -ct))'")
    if word.kind == FILES:
        offers.append(" -F")
    if word.kind == FOLDERS:
        offers.append(" -a '(__fish_complete_directories)'")
    return "".join(offers)


def _fish(text: str) -> str:
    quoted = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{quoted}'"
