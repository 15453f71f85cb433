"""Arguments that many commands share, each with one help text."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from holdfast.base.errors import UsageError
from holdfast.base.text import is_text
from holdfast.cli.output.render import number

if TYPE_CHECKING:  # most commands change no task
    from holdfast.api.tasks.changes import Wanted


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="machine-readable output (stable, documented)")


def add_task_id(parser: argparse.ArgumentParser) -> None:
    """Add the id of a task. `Queries.resolve` completes a shortened id."""
    parser.add_argument("id", help="a task's id, or the beginning of it")


def add_reason_option(parser: argparse.ArgumentParser) -> None:
    """Add `--why`. `read_reason` checks it."""
    parser.add_argument("--why", default="", help="your reason, which is recorded")


def read_reason(arguments: argparse.Namespace) -> str:
    """Return the reason of a person. Raise UsageError if it is not text."""
    if not is_text(arguments.why):
        raise UsageError("--why is not text (it has NUL or undecodable bytes).")
    return str(arguments.why)


def add_change_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that change a task that continues: its prompt, its agent and its limits."""
    words = parser.add_mutually_exclusive_group()
    words.add_argument("--prompt", metavar="TEXT", help="a new prompt for the task; `-` reads standard input")
    words.add_argument("--append", metavar="TEXT", help="an addition to the task's prompt; `-` reads standard input")
    parser.add_argument("--model", metavar="NAME", help="another model of the agent")
    parser.add_argument("--agent", help="another agent, which starts with a hand-over")
    parser.add_argument("--account", metavar="NAME", help="the account of the agent")
    parser.add_argument(
        "--permission", choices=("read", "edit", "full"), help="what the agent may do without asking, from now on"
    )
    parser.add_argument(
        "--max-turns", type=number(1), metavar="N", help="end a run after this many turns, if the agent supports it"
    )
    parser.add_argument("--timeout", metavar="T", help="end a run after this long, e.g. 30m")
    parser.add_argument(
        "--max-resumes", type=number(0), metavar="N", help="how often the task may be resumed after a pause"
    )


def has_change(arguments: argparse.Namespace) -> bool:
    """True if an option of `add_change_options` is given."""
    names = ("prompt", "append", "model", "agent", "account", "permission", "max_turns", "timeout", "max_resumes")
    return any(getattr(arguments, name) is not None for name in names)


def read_change(arguments: argparse.Namespace, **more: object) -> tuple[Wanted, str]:
    """Return what the options of `add_change_options` change, and the words for the next run. `more`: further keys."""
    from holdfast.api.tasks.changes import Wanted, parse_changes
    from holdfast.cli.commands.add import read_prompt

    prompt, words = (read_prompt("-") if text == "-" else text for text in (arguments.prompt, arguments.append or ""))
    given = {
        "prompt": prompt,
        "timeout": arguments.timeout,
        "max-resumes": arguments.max_resumes,
        "agent": arguments.agent,
        "model": arguments.model,
        "account": arguments.account,
        "permission": arguments.permission,
        "max-turns": arguments.max_turns,
        **more,
    }
    pairs = [f"{key}={value}" for key, value in given.items() if value is not None]
    return parse_changes(pairs) if pairs else Wanted(), words
