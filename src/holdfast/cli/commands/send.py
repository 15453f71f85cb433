"""The commands that change what a task is to do: send and set."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile

from holdfast.api.outcome import no_supervisor
from holdfast.api.queries import Queries
from holdfast.api.tasks.messages import rebase_text, send_message
from holdfast.base.errors import UsageError
from holdfast.base.home import home_directory
from holdfast.cli.commands.add import read_prompt
from holdfast.cli.output.options import add_json_option, add_task_id
from holdfast.cli.output.render import clean_text, print_json

_TOLD = {
    "running": "Its agent gets the message at the end of its turn",
    "queued": "Its next run gets the message",
}


def configure_send(parser: argparse.ArgumentParser) -> None:
    add_task_id(parser)
    parser.add_argument("text", nargs="*", metavar="TEXT", help="what the agent should do; `-` reads standard input")
    parser.add_argument("--file", metavar="FILE", help="read the message from a file")
    parser.add_argument("--edit", action="store_true", help="write the message in $EDITOR")
    parser.add_argument("--rebase", action="store_true", help="ask the agent to rebase its branch and solve conflicts")
    add_json_option(parser)


def run_send(arguments: argparse.Namespace) -> int:
    home = home_directory()
    queries = Queries(home)
    task_id = queries.resolve(arguments.id)
    before = str(send_message(home, task_id, _message(queries, task_id, arguments)))
    if arguments.json:
        print_json({"id": task_id, "before": before, "message": queries.task(task_id)["messages"][-1]["number"]})
    else:
        how = _TOLD.get(before, f"Task {task_id} was {before} and is queued again: its next run gets the message")
        print(f"{how}. Watch it: `holdfast logs {task_id} -f`.")
    if queries.supervisor() is None:
        print(no_supervisor(), file=sys.stderr)
    return 0


def _message(queries: Queries, task_id: str, arguments: argparse.Namespace) -> str:
    """Return the message from the one source that was given."""
    given = [bool(arguments.text), arguments.file is not None, arguments.edit, arguments.rebase]
    if sum(given) != 1:
        what = "Give the message" if not any(given) else "Give the message once"
        raise UsageError(
            f'{what}: `holdfast send {task_id} "TEXT"`, --file FILE, --edit or --rebase. Nothing was sent.'
        )
    if arguments.rebase:
        return rebase_text(queries, task_id)
    if arguments.edit:
        return _edited(task_id)
    if arguments.file is not None:
        return read_prompt(arguments.file)
    return read_prompt("-") if arguments.text == ["-"] else " ".join(arguments.text)


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
    add_task_id(parser)
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE", help="what to change: a name of an option of `add`")
    add_json_option(parser)


def run_set(arguments: argparse.Namespace) -> int:
    from holdfast.api.tasks.changes import parse_changes, set_task

    queries = Queries(home_directory())
    wanted = parse_changes(arguments.changes)
    task_id = queries.resolve(arguments.id)
    before = queries.last_seq()
    set_task(queries, task_id, wanted)
    told = [event for event in queries.events(after=before, task_id=task_id) if event["kind"] == "task.changed"]
    if arguments.json:
        print_json({"id": task_id, "changed": told[-1]["data"]["changed"] if told else {}})
    else:
        print(clean_text(told[-1]["message"]) if told else f"Task {task_id} is like that already.")
    return 0
