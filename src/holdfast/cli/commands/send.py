"""The commands that change what a task is to do: send and set."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.api.commands import operator_name
from holdfast.api.outcome import no_supervisor
from holdfast.api.queries import Queries
from holdfast.api.tasks.batches import REFUSALS, TaskResult, refused
from holdfast.api.tasks.changes import Wanted, parse_changes, resolve_change, set_in, set_task
from holdfast.api.tasks.messages import rebase_text, send_message
from holdfast.base.errors import HoldfastError, UsageError
from holdfast.base.home import home_directory
from holdfast.base.text import one_line
from holdfast.cli.commands.add import read_prompt
from holdfast.cli.output.options import add_json_option
from holdfast.cli.output.render import clean_text, print_json
from holdfast.cli.output.selection import (
    SHORTEST_ID,
    add_selection,
    change_many,
    choose_tasks,
    has_filter,
    print_results,
)

if TYPE_CHECKING:
    from holdfast.api.home.models import EventRow
    from holdfast.core.tasks.changes import TaskChange
    from holdfast.store.port.transaction import Transaction

_TOLD = {
    "running": "Its agent gets the message at the end of its turn",
    "queued": "Its next run gets the message",
}


def configure_send(parser: argparse.ArgumentParser) -> None:
    add_selection(
        parser,
        metavar="ID… TEXT",
        about="ids, then the message as the last word; `-` reads standard input",
    )
    parser.add_argument("--file", metavar="FILE", help="read the message from a file")
    parser.add_argument("--edit", action="store_true", help="write the message in $EDITOR")
    parser.add_argument("--rebase", action="store_true", help="ask the agent to rebase its branch and solve conflicts")
    add_json_option(parser)


def run_send(arguments: argparse.Namespace) -> int:
    home = home_directory()
    queries = Queries(home)
    text = _split_text(queries, arguments)
    chosen = choose_tasks(queries, arguments, "send")
    if chosen.is_many:
        return _send_many(queries, chosen.ids, text, arguments)
    task_id = chosen.ids[0]
    before = str(send_message(home, task_id, _message(queries, task_id, text, arguments)))
    if arguments.json:
        print_json({"id": task_id, "before": before, "message": queries.task(task_id)["messages"][-1]["number"]})
    else:
        print(f"{_how(task_id, before)}. Watch it: `holdfast logs {task_id} -f`.")
    if queries.supervisor() is None:
        print(no_supervisor(), file=sys.stderr)
    return 0


def _how(task_id: str, before: str) -> str:
    return _TOLD.get(before, f"Task {task_id} was {before} and is queued again: its next run gets the message")


def _split_text(queries: Queries, arguments: argparse.Namespace) -> str | None:
    """Split the words into ids and the message. The message is the last word, unless an option gives the message.

    Raise UsageError if another word is not the beginning of an id: then the user forgot the quotes around the message.
    """
    words: list[str] = arguments.ids
    sources = sum([arguments.file is not None, arguments.edit, arguments.rebase])
    ids = words if sources else words[:-1]
    filtered = has_filter(arguments, words=())
    if not ids and not filtered and sources < 2:
        raise UsageError(_which_task(queries, words, arguments))
    if sources > 1 or not (sources or words):
        raise UsageError(_once(words[0] if words else "ID"))
    if filtered and ids:
        raise UsageError(f"'{one_line(ids[0], 40)}' was given in addition to a filter. {_quotes('--all', words)}")
    if ids:
        queries.resolve(ids[0])
    for place, word in enumerate(ids):
        if not _begins_id(queries, word, SHORTEST_ID if place else 1 + bool(sources)):
            hint = _once("ID") if sources else _quotes(ids[0], words[1:])
            raise UsageError(f"'{one_line(word, 40)}' is not a task. {hint}")
    arguments.ids = ids
    return None if sources else words[-1]


def _which_task(queries: Queries, words: list[str], arguments: argparse.Namespace) -> str:
    """Return the refusal of a message without a task, or of a task without a message."""
    if words and _begins_id(queries, words[0], SHORTEST_ID):
        return _once(words[0])
    by_option = {"--file FILE": arguments.file is not None, "--edit": arguments.edit, "--rebase": arguments.rebase}
    given = next((option for option, is_given in by_option.items() if is_given), None)
    text = given or (shlex.quote(one_line(words[0], 80)) if words else "TEXT")
    return f"Which task? `holdfast send ID {text}`. `holdfast ps --all` lists the tasks. Nothing was sent."


def _begins_id(queries: Queries, word: str, shortest: int) -> bool:
    """True if a word is the beginning of a task's id. A word of less than `shortest` letters counts as text, because it
    could be the beginning of an id by chance."""
    is_word = len(word) >= shortest and word.isalnum() and word.isascii()
    return is_word and bool(queries.view("ids_like", prefix=word))


def _once(task_id: str) -> str:
    return (
        f"Give the message once: `holdfast send {one_line(task_id, 40)} TEXT`, --file FILE, --edit or --rebase. "
        "Nothing was sent."
    )


def _quotes(target: str, words: list[str]) -> str:
    text = shlex.quote(one_line(" ".join(words), 80))
    typed = f"`holdfast send {one_line(target, 40)} {text}`"
    return f"The message is the last word. Put it in quotes: {typed}. Nothing was sent."


def _send_many(queries: Queries, ids: list[str], text: str | None, arguments: argparse.Namespace) -> int:
    shared = None if arguments.rebase else _message(queries, ids[0], text, arguments)

    def results() -> Iterator[TaskResult]:
        for task_id in ids:
            try:
                words = rebase_text(queries, task_id) if shared is None else shared
                before = str(send_message(queries.home, task_id, words))
            except REFUSALS as error:
                yield refused(task_id, error)
            else:
                yield TaskResult(task_id, f"{task_id}: {_how(task_id, before)}.")

    code = print_results(queries, results(), as_json=arguments.json)
    if queries.supervisor() is None:
        print(no_supervisor(), file=sys.stderr)
    return code


def _message(queries: Queries, task_id: str, text: str | None, arguments: argparse.Namespace) -> str:
    """Return the message from the one source that was given."""
    if arguments.rebase:
        return rebase_text(queries, task_id)
    if arguments.edit:
        return _edited(task_id)
    if arguments.file is not None:
        return read_prompt(arguments.file)
    return read_prompt("-") if text == "-" else text or ""


def _edited(task_id: str) -> str:
    """Return what a person writes in the editor. Raise UsageError if that is nothing."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix="holdfast-send-") as folder:
        path = os.path.join(folder, "message.md")
        with open(path, "w", encoding="utf-8"):
            pass
        # $EDITOR may have arguments, and git too leaves its words to the shell
        code = subprocess.run(["sh", "-c", f'{editor} "$1"', editor, path], check=False).returncode
        if code != 0:
            raise UsageError(f"The editor `{editor}` ended with exit code {code}. Nothing was sent.")
        text = read_prompt(path)
    if not text.strip():
        raise UsageError(f"The message to task {task_id} is empty. Nothing was sent.")
    return text.rstrip("\n")


def configure_set(parser: argparse.ArgumentParser) -> None:
    add_selection(parser, metavar="ID… KEY=VALUE…", about="ids, then KEY=VALUE; keys are names of options of `add`")
    add_json_option(parser)


def run_set(arguments: argparse.Namespace) -> int:
    queries = Queries(home_directory())
    words: list[str] = arguments.ids
    # ids first; `label:area=core` is a filter word
    begin = next((at for at, word in enumerate(words) if "=" in word and ":" not in word.partition("=")[0]), len(words))
    arguments.ids = words[:begin]
    if not words[:begin] and not has_filter(arguments):
        raise UsageError("Which task? Type `holdfast set ID KEY=VALUE`. `holdfast ps --all` lists the tasks.")
    wanted = parse_changes(words[begin:] or words[1:begin][-1:])
    chosen = choose_tasks(queries, arguments, "set")
    if chosen.is_many:
        return _set_many(queries, chosen.ids, wanted, arguments)
    task_id = chosen.ids[0]
    before = queries.last_seq()
    set_task(queries, task_id, wanted)
    told = _changes_since(queries, task_id, before)
    if arguments.json:
        print_json({"id": task_id, "changed": told[-1]["data"]["changed"] if told else {}})
    else:
        print(clean_text(told[-1]["message"]) if told else _like_that(task_id))
    return 0


def _like_that(task_id: str) -> str:
    return f"Task {task_id} already has these values."


def _changes_since(queries: Queries, task_id: str, before: int) -> list[EventRow]:
    return [event for event in queries.events(after=before, task_id=task_id) if event["kind"] == "task.changed"]


def _set_many(queries: Queries, ids: list[str], wanted: Wanted, arguments: argparse.Namespace) -> int:
    by, before = operator_name(), queries.last_seq()
    changes: dict[str, TaskChange | HoldfastError] = {}
    for task_id in ids:
        try:
            changes[task_id] = resolve_change(queries, task_id, wanted)
        except REFUSALS as error:
            changes[task_id] = error

    def change(tx: Transaction, task_id: str) -> None:
        wanted_change = changes[task_id]
        if isinstance(wanted_change, HoldfastError):
            raise wanted_change
        set_in(tx, task_id, wanted_change, by)

    def describe(task_id: str, _none: None) -> str:
        told = _changes_since(queries, task_id, before)
        return str(told[-1]["message"]) if told else _like_that(task_id)

    return print_results(queries, change_many(queries, ids, change, describe), as_json=arguments.json)
