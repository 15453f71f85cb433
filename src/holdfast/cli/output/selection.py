"""Shared parts of commands about several tasks: the choice of tasks, the question before, one result line for each."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from holdfast.base.errors import HoldfastError, NotFound, Refused, UsageError
from holdfast.base.text import clean_text, one_line
from holdfast.cli.output.render import print_json

if TYPE_CHECKING:  # a command about one task needs none of these
    from holdfast.api.fleet.targets import Targets
    from holdfast.api.queries import Queries
    from holdfast.api.tasks.batches import TaskResult
    from holdfast.core.model import RequestKind
    from holdfast.store.port.transaction import Transaction

T = TypeVar("T")
SHORTEST_ID = 4  # letters of an id, where a word beside it may be text


class ChosenTasks(NamedTuple):
    """The ids to which a command applies. `is_many` false: one id was typed, and the answer is that of one task."""

    ids: list[str]
    is_many: bool


def add_selection(
    parser: argparse.ArgumentParser, *, metavar: str = "ID", about: str = "", agent: bool = True, asks: bool = True
) -> None:
    """Add ids and the options of a filter. `agent` false: the command has an option `--agent` of its own."""
    parser.add_argument("ids", nargs="*", metavar=metavar, help=about or "a task's id, or the beginning of it; several")
    group = parser.add_argument_group("select tasks by these filters instead of ids")
    group.add_argument("--state", dest="of_state", action="append", default=[], metavar="S", help="tasks in this state")
    group.add_argument(
        "--label",
        dest="of_label",
        action="append",
        default=[],
        metavar="K=V",
        help="tasks with this label (or K alone)",
    )
    if agent:
        group.add_argument(
            "--agent", dest="of_agent", action="append", default=[], metavar="A", help="tasks of this agent"
        )
    group.add_argument(
        "--repo", dest="of_repo", action="append", default=[], metavar="PATH", help="tasks of this repository"
    )
    group.add_argument("--all", dest="of_all", action="store_true", help="all tasks to which the command applies")
    if asks:
        group.add_argument("--yes", action="store_true", help="do not ask for confirmation")


def read_targets(arguments: argparse.Namespace) -> Targets:
    """Return the tasks that the arguments ask for."""
    from holdfast.api.fleet.targets import Targets

    return Targets(
        words=arguments.ids,
        states=arguments.of_state,
        labels=arguments.of_label,
        agents=getattr(arguments, "of_agent", ()),
        repos=arguments.of_repo,
        everything=arguments.of_all,
    )


def has_filter(arguments: argparse.Namespace, words: Sequence[str] | None = None) -> bool:
    """True if an option of a filter is given, or one of `words` is a filter word such as state:paused."""
    names = ("of_state", "of_label", "of_agent", "of_repo", "of_all")
    named = arguments.ids if words is None else words
    return any(getattr(arguments, name, None) for name in names) or any(":" in word for word in named)


def choose_tasks(
    queries: Queries,
    arguments: argparse.Namespace,
    command: str,
    *,
    keep: Callable[[Queries, str], bool] | None = None,
) -> ChosenTasks:
    """Return the tasks to which a command applies. A filter is asked about first: raise Refused if the answer is no.

    `keep`: a further test of the tasks that a filter finds.
    """
    if not has_filter(arguments):
        return ChosenTasks(resolve_ids(queries, arguments.ids, command), len(arguments.ids) > 1)
    from holdfast.api.fleet.targets import count_states, find_targets

    rows = find_targets(queries, read_targets(arguments), command)
    if keep is not None:
        rows = [row for row in rows if keep(queries, row["id"])]
    if not rows:
        raise NotFound(
            f"No task to {command} matches. The selected tasks are already done, or have nothing to {command}."
        )
    if command != "wait":
        _ask(arguments, command, count_states(rows))
    return ChosenTasks([row["id"] for row in rows], is_many=True)


def resolve_ids(queries: Queries, words: Sequence[str], command: str) -> list[str]:
    """Return the full ids, each once. Raise UsageError if there is none."""
    if not words:
        raise UsageError(
            f"Which task? Type `holdfast {command} ID`. `holdfast ps --all` lists the tasks with their ids; "
            f"`holdfast {command} --help` explains how to choose several."
        )
    return list(dict.fromkeys(queries.resolve(word) for word in words))


def _ask(arguments: argparse.Namespace, command: str, what: str) -> None:
    if arguments.yes:
        return
    if sys.stdin.isatty() and sys.stdout.isatty():
        if input(f"{command.capitalize()} {what}? [y/N] ").strip().lower() in ("y", "yes"):
            return
        raise Refused("Nothing was changed.")
    typed = one_line(shlex.join(arguments.typed), 400)
    raise Refused(f"This affects {what}. Nothing was changed. To do it without a question: `holdfast {typed} --yes`.")


# -- results -----------------------------------------------------------------------------------------------------------


def print_results(queries: Queries, results: Iterable[TaskResult], *, as_json: bool) -> int:
    """Print one line for each task as its result comes. Return the worst exit code."""
    from holdfast.api.tasks.batches import worst_code
    from holdfast.secrets.redact import redact_text

    seen = []
    for result in results:
        seen.append(result)
        message = redact_text(one_line(result.message))
        if as_json:
            state = next((row["state"] for row in queries.view("states_of", ids=f'["{result.id}"]')), None)
            print_json({"id": result.id, "done": result.code == 0, "state": state, "message": message})
        else:
            shown = message if result.id in message else f"{result.id}: {message}"
            print(clean_text(shown), flush=True)
    failed = sum(result.code != 0 for result in seen)
    if failed and not as_json:
        print(f"{failed} of {len(seen)} tasks were not changed.", file=sys.stderr)
    return worst_code(seen)


def change_many(
    queries: Queries,
    ids: Sequence[str],
    operation: Callable[[Transaction, str], T],
    describe: Callable[[str, T], str],
) -> Iterator[TaskResult]:
    """Change tasks in batches. Yield the result of each task, in order."""
    from holdfast.api.tasks.batches import TaskResult, change_batches, refused

    for batch in change_batches(queries.home, ids, operation):
        for task_id, result in batch:
            yield (
                refused(task_id, result)
                if isinstance(result, HoldfastError)
                else TaskResult(task_id, describe(task_id, result))
            )


def stop_many(
    queries: Queries,
    ids: Sequence[str],
    operation: Callable[[Transaction, str], int | None],
    kind: RequestKind,
    *,
    waits: bool,
    patience: float,
) -> Iterator[TaskResult]:
    """Cancel or pause tasks in batches: waiting ones at once, the others by requests that a supervisor carries out."""
    from holdfast.api.tasks.batches import TaskResult, change_batches, refused, wait_for_requests

    asked: dict[str, int] = {}
    participle = "Cancelled" if kind == "cancel" else "Paused"
    for batch in change_batches(queries.home, ids, operation):
        for task_id, result in batch:
            if isinstance(result, HoldfastError):
                yield refused(task_id, result)
            elif result is None:
                yield TaskResult(task_id, f"{participle} {task_id}.")
            else:
                asked[task_id] = result
    if waits:
        yield from wait_for_requests(queries, asked, kind, patience)
    else:
        yield from (TaskResult(task_id, f"Asked the supervisor to {kind} {task_id}.") for task_id in asked)
