"""The command `add --from` for a list: the format that was recognised, queued tasks, known tasks, and all mistakes at
once."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from holdfast.api.outcome import no_supervisor
from holdfast.base.errors import UsageError
from holdfast.cli.output.render import clean_text, one_line, print_json

if TYPE_CHECKING:  # imported when needed: an ordinary `add` has to start fast
    from holdfast.api.commands import Commands, NewTask
    from holdfast.api.queries import Queries
    from holdfast.api.tasks.models import JsonObject
    from holdfast.api.tasks.task_lists import IntakeResult, ListProblem, TaskList

MOST_SHOWN = 50  # mistakes, or known tasks, that are printed one by one
_WORDS = {"checklist": "a checklist", "jsonl": "lines of JSON", "folder": "a folder of prompts"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--as",
        dest="how",
        choices=["prompt", "checklist", "jsonl", "folder"],
        help="with --from: the format, if name and content do not show it (`holdfast help intake`)",
    )
    parser.add_argument("--dry-run", action="store_true", help="with --from of a list: only show what would be queued")


def is_list(arguments: argparse.Namespace) -> bool:
    """True if the source is more than one prompt. The format of the source is kept in `arguments.how`."""
    if arguments.source is not None and arguments.prompt is None:
        from holdfast.api.tasks.task_lists import detect_format

        arguments.how = detect_format(arguments.source, arguments.how)
        if arguments.how != "prompt":
            return True
    elif arguments.how is not None:
        raise UsageError("--as belongs to --from. Nothing was queued.")
    if arguments.dry_run:
        raise UsageError("--dry-run belongs to --from of a list. Nothing was queued.")
    return False


def without_source(arguments: argparse.Namespace) -> argparse.Namespace:
    """Return the options that apply to every task of the list."""
    return argparse.Namespace(**{**vars(arguments), "source": None, "prompt": "one of a list"})


def add_list(commands: Commands, template: NewTask, arguments: argparse.Namespace) -> int:
    from holdfast.api.tasks.task_lists import ListIntake, read_list

    listed = read_list(arguments.source, arguments.how)
    taken = ListIntake(commands, template).take(listed, rehearse=arguments.dry_run)
    if arguments.json:
        print_json(_row(commands.home, arguments, listed, taken))
    else:
        print(_describe_source(arguments, listed), file=sys.stderr)
        _print_problems(taken.problems)
    if taken.problems and not arguments.json:
        print(f"holdfast: Nothing was queued: {len(taken.problems)} mistake(s).", file=sys.stderr)
    if not taken.problems and not arguments.json:
        _print_taken(commands.home, taken, rehearse=arguments.dry_run)
    return 2 if taken.problems else 0


def _describe_source(arguments: argparse.Namespace, listed: TaskList) -> str:
    name = "standard input" if arguments.source == "-" else clean_text(arguments.source)
    count = len(listed.items) + len({problem.where for problem in listed.problems})
    skipped = f", {listed.skipped} ticked one(s) skipped" if listed.skipped else ""
    return f"Read {name} as {_WORDS[arguments.how]}: {count} task(s){skipped}."


def _print_problems(problems: Any) -> None:
    """Print the mistakes. The same mistake on many lines is printed once."""
    by_text: dict[str, list[str]] = {}
    for problem in problems:
        by_text.setdefault(_text(problem), []).append(one_line(problem.where, 60))
    for text, places in list(by_text.items())[:MOST_SHOWN]:
        more = f" and {len(places) - 10} more" if len(places) > 10 else ""
        print(f"{', '.join(places[:10])}{more}: {text}", file=sys.stderr)
    if len(by_text) > MOST_SHOWN:
        print(f"and {len(by_text) - MOST_SHOWN} more mistakes", file=sys.stderr)


def _text(problem: ListProblem) -> str:
    text = one_line(problem.text.removesuffix(" Nothing was queued."), 400)
    return text.encode(errors="replace").decode()


def _print_taken(home: str, taken: IntakeResult, *, rehearse: bool) -> None:
    for note in taken.notes:
        print(clean_text(note), file=sys.stderr)
    for item, task_id in taken.queued:
        print(one_line(item.prompt, 70) if rehearse else task_id)
    word = "would be queued" if rehearse else "queued"
    words = [f"{len(taken.queued)} {word}"]
    if taken.known:
        ids = ", ".join(known.task_id for _item, known in taken.known[:MOST_SHOWN])
        words.append(f"{len(taken.known)} already known ({ids}{', …' if len(taken.known) > MOST_SHOWN else ''})")
    if taken.repeated:
        words.append(f"{len(taken.repeated)} listed twice")
    print(f"{', '.join(words)}.", file=sys.stderr)
    over = [known for _item, known in taken.known if known.is_over]
    for known in over[:MOST_SHOWN]:
        print(
            f"Task {known.task_id} is {known.state}: `holdfast retry {known.task_id}` queues it again.", file=sys.stderr
        )
    if not rehearse and taken.queued and _queries(home).supervisor() is None:
        print(no_supervisor(), file=sys.stderr)


def _row(home: str, arguments: argparse.Namespace, listed: TaskList, taken: IntakeResult) -> JsonObject:
    problems = [{"where": problem.where, "text": _text(problem)} for problem in taken.problems]
    return {
        "source": arguments.source.encode(errors="replace").decode(),
        "format": arguments.how,
        "dry_run": arguments.dry_run,
        "queued": [
            {"id": task_id or None, "key": item.key, "where": item.where, "prompt": item.prompt}
            for item, task_id in taken.queued
        ],
        "known": [
            {"id": known.task_id, "key": item.key, "where": item.where, "state": known.state}
            for item, known in taken.known
        ],
        "repeated": [{"key": item.key, "where": item.where} for item in taken.repeated],
        "skipped": listed.skipped,
        "mistakes": [{**each, "where": each["where"].encode(errors="replace").decode()} for each in problems],
        "supervisor": _queries(home).supervisor() is not None,
    }


def _queries(home: str) -> Queries:
    from holdfast.api.queries import Queries

    return Queries(home)
