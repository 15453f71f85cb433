"""The entry point of the command line.

It finds the command, imports only the module of that command, and turns an error into one line and an exit code. Before
that, `prepare_process` makes sure that the standard streams exist and can print any text, and that we may open our own
files.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
from importlib import import_module
from typing import NoReturn

from holdfast.base import low_memory
from holdfast.base.errors import HoldfastError, Unavailable, UsageError
from holdfast.base.platform import LINUX_ONLY, refuse_unsupported
from holdfast.base.text import one_line

UNFORESEEN = 70  # the exit code of an error that no code of ours foresaw: EX_SOFTWARE of sysexits.h


def prepare_process() -> None:
    """Repair the streams, the encoding and the umask that a shell, a cron job or a service may have left unusable."""
    _open_closed_streams()
    _restart_in_utf8_mode()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a prompt may have letters that the terminal lacks
    mask = os.umask(0o077)
    os.umask(mask & ~0o700)  # a mask that removes the owner's rights would lock us out of our own files


def _restart_in_utf8_mode() -> None:
    """Start again in UTF-8 mode if the locale has another encoding. Otherwise Python cannot open a file named `é`."""
    if sys.getfilesystemencoding() != "utf-8" and not sys.flags.utf8_mode and sys.orig_argv:
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])


def _open_closed_streams() -> None:
    """Point closed streams to /dev/null. Otherwise the next opened file would get the number of a closed stream, and
    our output would go to that file."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # gets the lowest free number: this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - open until exit


def redirect_to_null(number: int) -> None:
    """Point a stream without a reader to /dev/null, so that its buffered text does not fail again at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


# name → (module, one-line help). A command's module has `configure_NAME(parser)` and `run_NAME(arguments) -> int`.
COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("commands.init", "choose agent, permissions and test command"),
    "trust": ("commands.init", "let this repository's holdfast.toml set commands and environments"),
    "run": ("commands.add", "add a task and watch it to its end"),
    "add": ("commands.add", "queue a task"),
    "up": ("commands.daemon", "run the supervisor"),
    "down": ("commands.daemon", "stop the supervisor; its tasks stay queued"),
    "ps": ("commands.tasks", "list tasks"),
    "top": ("commands.top", "show the fleet live on one screen and control it by keys"),
    "show": ("commands.tasks", "show everything about one task"),
    "report": ("commands.report", "print a task as Markdown: prompt, stages, answers, gates, cost"),
    "why": ("commands.tasks", "explain the state of a task, and what happens next"),
    "events": ("commands.tasks", "list events, in order"),
    "logs": ("commands.logs", "show the output and the actions of an agent"),
    "alerts": ("commands.alerts", "list alerts, acknowledge them, test their delivery"),
    "crashes": ("commands.alerts", "list agents that died unexpectedly"),
    "agents": ("commands.accounts", "list the agents that you can use, with version and login"),
    "accounts": ("commands.accounts", "list the logins of agents, reopen one that is parked or stopped"),
    "tracker": ("commands.trackers", "list issues of outside trackers, sync now"),
    "schedule": (
        "commands.schedules",
        "list schedules with their times, fire, enable or disable one",
    ),
    "dispatch": (
        "commands.accounts",
        "list holds (provider, account, mass death), release them",
    ),
    "worker": ("commands.workers", "list named workers, start, stop or restart one"),
    "workflows": (
        "commands.workflows",
        "list and check workflows (tasks in several stages)",
    ),
    "stats": ("commands.stats", "show how reliable agents are: how runs ended, how long they took"),
    "cancel": ("commands.control", "end a task and save its work"),
    "retry": ("commands.control", "queue a failed or cancelled task again"),
    "pause": ("commands.control", "pause a task: its agent ends, its workspace and session stay"),
    "resume": ("commands.control", "continue a paused task now"),
    "send": ("commands.send", "tell a task what to do next, even after it has ended"),
    "set": ("commands.send", "change a task that does not run: priority, prompt, agent, limits, labels"),
    "wait": ("commands.wait", "wait until tasks have ended, or need a person"),
    "approve": ("commands.control", "approve the work of a stage, or request changes"),
    "diff": ("commands.branches", "show what a task changed"),
    "merge": ("commands.branches", "merge a task's work into the branch that it started from"),
    "pr": ("commands.branches", "push a task's branch and open a pull request"),
    "branches": ("commands.branches", "list the branches of tasks, delete those that are merged"),
    "workspaces": ("commands.workspaces", "list workspaces, drop preserved ones"),
    "shell": ("commands.workspaces", "open a shell in a task's workspace"),
    "keep": ("commands.workspaces", "keep a task's workspace for longer"),
    "salvage": ("commands.salvage", "list, show, restore or delete saved work"),
    "config": ("commands.config", "show and check the settings, with the origin of each"),
    "doctor": ("commands.daemon", "check this machine and this home"),
    "sweep": ("commands.home", "remove what killed supervisors left behind"),
    "backup": ("commands.home", "copy the store and all saved work into one file"),
    "restore": ("commands.home", "restore a backup"),
    "purge": ("commands.home", "remove everything that Holdfast made, or only for one repository"),
    "service": ("commands.daemon", "install Holdfast as a systemd service, show it, remove it"),
    "agent": ("commands.agent", "report a sign of life, progress or the result (called by agents)"),
    "rehearse": ("commands.daemon", "play a scenario in a throw-away repository and home"),
    "completion": ("completion", "print a completion script for your shell"),
    "help": ("help.pages", "explain a command"),
}

# Commands that a process inside a run may use, with the actions that it may ask for (none named: all of them). Every
# other command is a person's. Processes inside a run may also control their own subtasks (api/tasks/subtasks.py).
AGENT_COMMANDS: dict[str, tuple[str | None, ...]] = {
    **dict.fromkeys(("agent", "add", "run", "ps", "show", "report", "why", "events", "logs", "crashes", "stats"), ()),
    **dict.fromkeys(("diff", "workflows", "config", "agents", "rehearse", "completion", "help"), ()),
    **dict.fromkeys(("accounts", "tracker", "dispatch", "worker"), ("list",)),
    **dict.fromkeys(("branches", "workspaces"), ("list", None)),
    "alerts": (None,),
    "schedule": ("list", "show"),
    "salvage": ("list", "show"),
}


def narrow_formatter(prog: str) -> argparse.HelpFormatter:
    """Return a help formatter as wide as the terminal. argparse makes a formatter for each option. Without a given
    width, the formatter imports shutil, with all archive formats, to find the width."""
    return argparse.RawDescriptionHelpFormatter(prog, width=terminal_columns() - 2)


def terminal_columns() -> int:
    """Return the number of columns, as `shutil.get_terminal_size` finds it: COLUMNS, the terminal, or 80."""
    with contextlib.suppress(KeyError, ValueError):
        if (columns := int(os.environ["COLUMNS"])) > 0:
            return columns
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or 80 if sys.__stdout__ is not None else 80
    except (AttributeError, ValueError, OSError):
        return 80


class Parser(argparse.ArgumentParser):
    """An argparse parser that reports a mistake as our one-line error instead of printing its usage and exiting."""

    def error(self, message: str) -> NoReturn:
        from holdfast.cli.help.wrong_usage import explain

        raise UsageError(explain(self, message))

    def format_help(self) -> str:
        """Return the help text. The manual pages are imported only here, because few commands need them."""
        name = self.prog.removeprefix("holdfast ")
        if name in COMMANDS:
            import textwrap

            from holdfast.cli.help import pages

            self.description = textwrap.fill(pages.find_description(name, COMMANDS[name][1]), 100)
            self.epilog = pages.build_epilog(name, self.epilog)
        return super().format_help()


def build_parser(name: str) -> Parser:
    """Return the complete parser of a command."""
    parser = Parser(prog=f"holdfast {name}", formatter_class=narrow_formatter)
    module = import_module(f"holdfast.cli.{COMMANDS[name][0]}")
    getattr(module, f"configure_{name}")(parser)
    return parser


def run(argv: list[str]) -> int:
    """Run one command and return its exit code."""
    try:
        code = _run(argv)
        sys.stdout.flush()
        return code
    except HoldfastError as error:
        return _print_error(error, error.exit_code, argv)
    except BrokenPipeError:
        redirect_to_null(1)  # the reader of our output went away: not our error
        return 0
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        return _print_error(*_describe_os_error(error), argv)
    except Exception as error:  # noqa: BLE001 - people get a line, never a traceback
        if low_memory.is_out_of_memory(error):
            return low_memory.report_low_memory()
        return _print_error(_describe_unforeseen(error), UNFORESEEN, argv)


def _run(argv: list[str]) -> int:
    try:
        if argv[:1] == ["__complete"]:  # called by the completion scripts at every press of the tab key
            from holdfast.cli.completion import complete

            return complete(argv[1:])
        name, rest = _choose_command(argv)
        arguments, extra = _parse(build_parser(name), name, rest)
        arguments.command, arguments.typed = extra, argv
        if name in LINUX_ONLY:
            refuse_unsupported(f"`holdfast {name}`")
        refuse_agents(name, arguments)
        module = import_module(f"holdfast.cli.{COMMANDS[name][0]}")
        code: int = getattr(module, f"run_{name}")(arguments)
    except SystemExit as done:  # --help, --version
        return int(done.code or 0)
    return code


def refuse_agents(name: str, arguments: argparse.Namespace) -> None:
    """Raise Refused if only people may use the command, and this process is inside a run of this home.

    This is the only place where the CLI decides that. Facts about the process decide, not variables, because an agent
    can set variables.
    """
    may = AGENT_COMMANDS.get(name)
    if may == () or (may is not None and getattr(arguments, "action", None) in may):
        return
    if (name == "top" and arguments.once) or (name == "doctor" and not arguments.fix):
        return
    from holdfast.base.home import home_directory
    from holdfast.processes.caller import find_caller

    caller = find_caller(home_directory())
    if caller is not None:
        from holdfast.api.tasks.subtasks import refuse_agent

        refuse_agent(home_directory(), caller, name, vars(arguments))


def _print_error(why: object, code: int, argv: list[str]) -> int:
    """Print the error as one cleaned line, with --json as an object. Return the exit code even where the line cannot
    be written."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        redirect_to_null(1)
    try:
        from holdfast.cli.output.render import print_json_error
        from holdfast.secrets.redact import redact_text  # the text may quote an address that contains a login
    except OSError:  # no memory or descriptor is left, so nothing more can be imported
        low_memory.report_low_memory()
        return code
    try:
        text = redact_text(one_line(why))
        if "--json" in (argv[: argv.index("--")] if "--" in argv else argv):
            print_json_error(why, text, code, argv)
        else:
            print(f"holdfast: {text}", file=sys.stderr, flush=True)
    except (OSError, ValueError):
        redirect_to_null(2)
    return code


def _describe_os_error(error: OSError) -> tuple[str, int]:
    """Return message and exit code for an unexpected system error: a full disk, a directory in place of a file."""
    why = error.strerror or str(error)
    try:
        sys.stdout.flush()
    except OSError:
        return f"The output could not be written: {why}. What the command did is kept; see `holdfast ps`.", 1
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{why}. Nothing that was acknowledged is lost. Fix the cause and try again.", Unavailable.exit_code


def _describe_unforeseen(error: Exception) -> str:
    """Return the line for an unexpected error: a damaged record of the store, or a bug in Holdfast.

    With HOLDFAST_DEBUG the error is raised, and Python prints its traceback.
    """
    if os.environ.get("HOLDFAST_DEBUG"):
        raise error
    import traceback

    place = traceback.extract_tb(error.__traceback__)[-1]
    what = f"{type(error).__name__} {error}, {os.path.basename(place.filename)}:{place.lineno}"
    return (
        f"This command stopped at something that Holdfast does not understand ({what}). The store may be damaged, or "
        "Holdfast has a mistake. Nothing that was acknowledged is lost. `holdfast doctor` checks the store; with "
        "HOLDFAST_DEBUG=1 the command shows where it stopped."
    )


def _parse(parser: argparse.ArgumentParser, name: str, rest: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Parse the arguments. Everything after `--` is the agent's command, which Holdfast never interprets."""
    if name in ("send", "set"):  # the words of a person may stand on both sides of an option
        return parser.parse_intermixed_args(rest), []
    if name == "ps":
        return parser.parse_intermixed_args(_join_order(rest)), []
    if name not in ("run", "add"):
        return parser.parse_args(rest), []
    command: list[str] = []
    if "--" in rest:
        cut = rest.index("--")
        rest, command = rest[:cut], rest[cut + 1 :]
        if not command:
            raise UsageError("After `--` a command is expected.")
    arguments, unknown = parser.parse_known_args(rest)
    if unknown:
        from holdfast.cli.help import wrong_usage

        if not unknown[0].startswith("-"):
            raise UsageError(wrong_usage.unquoted_prompt(name, arguments.prompt or "", unknown))
        raise UsageError(
            f"{wrong_usage.unknown_option(name, parser, unknown[0])} "
            "A prompt that begins with '-' is read from a file (--from FILE) or from standard input (--from -)."
        )
    return arguments, command


def _join_order(words: list[str]) -> list[str]:
    """Return the words with `--sort -cost` as one word, because argparse takes an order with `-` for an option."""
    joined: list[str] = []
    for word in words:
        is_order = joined[-1:] == ["--sort"] and word[:1] == "-" and word[1:2].isalpha()
        joined[-1:] = [f"--sort={word}"] if is_order else [*joined[-1:], word]
    return joined


def _choose_command(argv: list[str]) -> tuple[str, list[str]]:
    """Return the command and its arguments. Options may stand before the command."""
    if argv and argv[0] in COMMANDS:
        return argv[0], argv[1:]
    at = 0 if argv and not argv[0].startswith("-") else _find_command(argv)
    if at is None:
        _answer_without_command(argv)
    name = _name_command(argv[at])
    if name is None:
        from holdfast.cli.help.wrong_usage import unknown_command

        raise UsageError(unknown_command(argv[at], COMMANDS))
    return name, [*argv[at + 1 :], *argv[:at]] if "--" not in argv else [*argv[:at], *argv[at + 1 :]]


def _find_command(argv: list[str]) -> int | None:
    """Return the index of the command in `argv`, behind options and their values. None: there is no command."""
    last = argv.index("--") if "--" in argv else len(argv)
    places = [index for index, word in enumerate(argv[:last]) if not word.startswith("-")]
    named = [index for index in places if _name_command(argv[index]) is not None]
    unknown = {at: _find_unknown_option(str(_name_command(argv[at])), argv[:at]) for at in named}
    known = [at for at in named if unknown[at] is None]
    if not known and named and named[0] != places[0]:  # a word that is the value of an option, and then a command
        from holdfast.cli.help.wrong_usage import unknown_option

        name = str(_name_command(argv[named[0]]))
        raise UsageError(unknown_option(name, build_parser(name), unknown[named[0]] or argv[0]))
    words = [index for index in places if argv[index][:1].isalpha()]
    return next(iter([*known, *words, *places]), None)


def _name_command(word: str) -> str | None:
    """Return the command that the word names, also in the singular or the plural."""
    if word in COMMANDS:
        return word
    from holdfast.cli.help.wrong_usage import find_same

    return find_same(word, COMMANDS)


def _find_unknown_option(name: str, words: list[str]) -> str | None:
    """Return the first of the words that is not an option of the command, or an option without its value. None: all
    of them are options with their values."""
    known = build_parser(name)._option_string_actions
    rest = list(words)
    while rest:
        option, separator, _value = rest.pop(0).partition("=")
        wanted = 0 if option not in known or known[option].nargs == 0 or separator else 1
        if option not in known or len(rest) < wanted:
            return option
        del rest[:wanted]
    return None


def _answer_without_command(argv: list[str]) -> NoReturn:
    """Handle a command line without a command: print the front page or the version."""
    from holdfast.cli.help import front_page

    if "--version" in argv or "-V" in argv:
        from holdfast import __version__

        print(f"holdfast {__version__}")
    elif not argv or argv[0] in ("-h", "--help"):
        print(front_page.all_commands(COMMANDS) if "--all" in argv else front_page.front_page(COMMANDS))
    else:
        raise UsageError(f"There is no option {one_line(argv[0], 80)}. `holdfast help` lists the commands.")
    raise SystemExit(0)
