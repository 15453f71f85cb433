"""Commands that only read: ps, show, why, events. Heavy modules are imported only when needed."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.api.queries import Queries
from holdfast.base.errors import UsageError
from holdfast.base.home import home_directory
from holdfast.cli.output.render import (
    clean_text,
    format_age,
    indent_text,
    is_terminal,
    number,
    one_line,
    paint,
    print_json,
)

if TYPE_CHECKING:
    from holdfast.api.fleet.selection import ListingReader, TaskListing
    from holdfast.api.home.models import EventRow
    from holdfast.api.tasks.models import TaskRow

RECENT = 3600.0  # `ps` without --all shows failures for an hour
ORDER = "added"  # of `ps`: as added, subtasks below their parents


def _json_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="machine-readable output (stable, documented)")


# -- ps ----------------------------------------------------------------------------------------------------------------


def configure_ps(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="WORD", help="ids of tasks, filters (state:paused) and text")
    parser.add_argument("--all", "-a", action="store_true", help="finished tasks too")
    for name, metavar, text in (
        ("state", "S", "only tasks in this state (repeat to allow several)"),
        ("agent", "A", "only tasks of this agent (repeat to allow several)"),
        ("label", "K=V", "only tasks with this label (repeat to require several)"),
        ("repo", "DIR", "only tasks of this repository (`.`: the current one)"),
    ):
        parser.add_argument(f"--{name}", action="append", default=[], metavar=metavar, help=text)
    parser.add_argument("--sort", default=ORDER, metavar="KEY", help="sort order; -KEY reverses it")
    parser.add_argument("--limit", type=number(1), metavar="N", help="only the first N tasks")
    parser.add_argument("--columns", metavar="LIST", help="columns, in this order: id,state,prompt,why")
    parser.add_argument("--wide", action="store_true", help="cut nothing")
    parser.add_argument("--quiet", "-q", action="store_true", help="only ids, one per line, for a script")
    parser.add_argument("--watch", "-w", action="store_true", help="keep the list on screen and update it")
    _json_flag(parser)
    parser.epilog = "Without --all: queued, running and paused tasks, and failures of the last hour."


def run_ps(arguments: argparse.Namespace) -> int:
    queries = Queries(home_directory())
    if arguments.quiet and (arguments.json or arguments.watch):
        raise UsageError("--quiet prints ids once: --json and --watch do not go with it.")
    if arguments.json and arguments.watch and (arguments.limit or arguments.sort != ORDER):
        raise UsageError("--json --watch prints tasks as they change, so it takes no --limit and no --sort.")
    if arguments.json and _is_plain(arguments):  # without the modules that select, because scripts ask often
        _print_tasks(queries.tasks(everything=arguments.all, recent=time.time() - RECENT))
        return 0
    from holdfast.api.fleet.selection import ListingReader, Selection
    from holdfast.cli.output.task_columns import find_room, listing_lines, parse_columns

    columns = parse_columns(arguments.columns)
    reader = ListingReader(
        Selection(
            words=tuple(arguments.words),
            states=tuple(arguments.state),
            agents=tuple(arguments.agent),
            labels=tuple(arguments.label),
            repos=tuple(arguments.repo),
            everything=arguments.all,
            sort=arguments.sort,
            limit=arguments.limit,
        )
    )
    if arguments.json and arguments.watch:
        return _stream(queries, reader)
    if arguments.watch:
        return _watch(queries, reader, columns, wide=arguments.wide)
    listing = reader.read(queries)
    if arguments.json:
        _print_tasks(_task_rows(queries, listing))
        return 0
    if arguments.quiet:
        for row in listing.rows:
            print(row["id"])
        return 0
    if listing.rows:
        for line in listing_lines(queries, listing, columns, find_room(wide=arguments.wide), wide=arguments.wide):
            print(line)
    print(f"{_listing_note(listing)}{_summary(queries)}", file=sys.stderr)
    if not listing.candidates and any(queries.counts().values()):
        print("`holdfast ps --all` lists finished tasks too.", file=sys.stderr)
    return 0


def _task_rows(queries: Queries, listing: TaskListing) -> list[TaskRow]:
    order = {row["id"]: place for place, row in enumerate(listing.rows)}
    return sorted(queries.tasks(everything=False, ids=list(order)), key=lambda row: order[row["id"]])


def _stream(queries: Queries, reader: ListingReader) -> int:
    """Print the list as JSON, and then each task that changes, until the reader of our output is gone."""
    from holdfast.api.fleet.watch import watch_rows

    for rows in watch_rows(queries, lambda: _task_rows(queries, reader.read(queries)), sys.stdout.fileno()):
        for row in rows:
            print_json(row)
        sys.stdout.flush()
    return 0


def _is_plain(arguments: argparse.Namespace) -> bool:
    """True if no task is selected and no order is chosen."""
    chosen = ("words", "state", "agent", "label", "repo", "limit", "columns", "wide", "watch")
    return arguments.sort == ORDER and not any(getattr(arguments, name) for name in chosen)


def _print_tasks(rows: list[TaskRow]) -> None:
    for row in rows:
        print_json(row)


def _listing_note(listing: TaskListing) -> str:
    """Return a note about tasks that are not listed: those beyond the limit, or all because none matches."""
    if listing.matched > len(listing.rows):
        return f"the first {len(listing.rows)} of {listing.matched} tasks; "
    if listing.rows or not listing.candidates:
        return ""
    labels = sorted({f"{key}={value}" for row in listing.candidates for key, value in row["labels"].items()})
    agents = sorted({row["agent"] for row in listing.candidates})
    known = f"agents here: {', '.join(map(one_line, agents[:8]))}"
    known += f"; labels here: {', '.join(one_line(label, 60) for label in labels[:8])}" if labels else ""
    return f"no task matches ({known}); "


def _summary(queries: Queries) -> str:
    counts = queries.counts()
    listed = ", ".join(f"{number} {state}" for state, number in sorted(counts.items())) or "no tasks"
    running = queries.supervisor()
    state = f"supervisor pid {running['pid']}" if running else "no supervisor is running (`holdfast up`)"
    if running and running["held"]:
        state += f"; nothing new starts: {clean_text(running['held'])}"
    held = queries.held_names()
    if held:
        state += f"; held back: {clean_text(', '.join(held))} (`holdfast dispatch`)"
    alerts, worst = queries.open_alerts()
    noted = f"; {alerts} alert(s), the worst {worst}: `holdfast alerts`" if alerts else ""
    return f"{listed}; {state}{noted}"


def _watch(queries: Queries, reader: ListingReader, columns: Sequence[str] | None, *, wide: bool) -> int:
    if not is_terminal():
        raise UsageError("--watch needs a terminal; in a script use `holdfast ps --json --watch`.")
    from rich.live import Live
    from rich.text import Text

    from holdfast.cli.output.task_columns import find_room, listing_lines

    def screen() -> Any:
        listing = reader.read(queries)
        lines = listing_lines(queries, listing, columns, find_room(wide=wide), wide=wide) if listing.rows else []
        return Text.from_ansi("\n".join([*lines, paint(_summary(queries), "dim")]), no_wrap=True, overflow="ellipsis")

    with Live(screen(), refresh_per_second=4, screen=False) as live:
        while True:
            time.sleep(0.25)
            live.update(screen())


# -- show, why ---------------------------------------------------------------------------------------------------------


def configure_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", help="a task's id, or the beginning of it")
    parser.add_argument("--prompt", action="store_true", help="the complete prompt of the agent, with the hand-over")
    parser.add_argument(
        "--run", type=number(1), metavar="N", help="with --prompt: the prompt of the N-th run (default: the last run)"
    )
    parser.add_argument("--results", action="store_true", help="the answer and changed files of each stage")
    _json_flag(parser)


def run_show(arguments: argparse.Namespace) -> int:
    from holdfast.api.fleet.alerts import crash_lines
    from holdfast.api.tasks.explain import complete, facts
    from holdfast.api.tasks.messages import message_lines
    from holdfast.api.tasks.usage import manual_command_lines, run_details
    from holdfast.api.tasks.why.outcome import state_words, truth_lines
    from holdfast.api.work.checkpoints import checkpoint_lines as checkpoint_lines

    queries = Queries(home_directory())
    if arguments.results:
        from holdfast.cli.commands.report import show_results

        return show_results(queries, queries.resolve(arguments.id), as_json=arguments.json)
    if arguments.prompt or arguments.run is not None:
        return _show_prompt(queries, arguments)
    task = queries.task(queries.resolve(arguments.id))
    complete(queries, task)
    if arguments.json:
        del task["spends"]
        print_json(task)
        return 0
    print(f"{paint('task', 'bold')} {task['id']}  {state_words(task)}  {one_line(task['reason'] or '', 90)}")
    for name, words in facts(task).items():
        print(f"  {name:<10}{indent_text(words, ' ' * 12)}")
    for line in (*truth_lines(task), *message_lines(task)):
        print(f"  {indent_text(line, ' ' * 4)}")
    for run in task["runs"]:
        ended = f"{run['outcome']}: {indent_text(run['reason'], ' ' * 6)}" if run["outcome"] else "…"
        worker = f"worker {run['worker']}  " if run["worker"] else ""
        worker += f"stage {'/'.join(filter(None, (run['stage'], run['member'])))}  " if run["stage"] else ""
        print(f"  run {run['number']}  {run['id']}  {run['state']}  pid {run['pid'] or '-'}  {worker}{ended}")
        for line in run_details(run):
            print(f"      {paint(indent_text(line, ' ' * 8), 'dim')}")
    for child in task["children"]:
        print(f"  subtask {child['id']}  {child['state']}  {one_line(child['prompt'], 60)}")
    for line in (*crash_lines(task["crashes"]), *checkpoint_lines(task)):
        print(f"  {indent_text(line, ' ' * 4)}")
    for salvage in task["salvages"]:
        continued = "; the task's next workspace began with these files" if salvage["taken_up"] else ""
        age = format_age(salvage["created_at"])
        print(f"  saved {salvage['files']} file(s) as {salvage['commit'][:12]} ({age} ago){continued}")
    for line in manual_command_lines(task):
        print(indent_text(line))
    return 0


def _show_prompt(queries: Queries, arguments: argparse.Namespace) -> int:
    from holdfast.api.tasks.prompts import read_prompt, refuse_without_prompt

    if not arguments.prompt:
        refuse_without_prompt(arguments.run)
    told = read_prompt(queries, queries.resolve(arguments.id), arguments.run)
    if arguments.json:
        print_json(told)
    else:
        print(clean_text(told["prompt"]))
    return 0


def configure_why(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", help="a task's id, or the beginning of it")
    parser.add_argument("--verbose", "-v", action="store_true", help="also show budgets of which nothing is spent")
    _json_flag(parser)


_TRUTH = ("changed_files", "refused_calls", "refused_first", "gate")


def run_why(arguments: argparse.Namespace) -> int:
    from holdfast.api.tasks.explain import complete, explain, list_wait_reasons
    from holdfast.api.tasks.spending import budget_lines
    from holdfast.api.tasks.why.outcome import state_words
    from holdfast.api.tasks.why.text import as_json

    queries = Queries(home_directory())
    task = queries.task(queries.resolve(arguments.id))
    complete(queries, task)
    waits = list_wait_reasons(queries, task)
    lines, used, in_all = explain(queries, task, waits), task["budgets"], task["spent_in_all"]
    events = queries.last_events(task_id=task["id"], limit=12)
    if arguments.json:
        found = {"id": task["id"], "state": task["state"], "why": lines, "budgets": used, "spent_in_all": in_all}
        truth = {name: value for name, value in task.items() if name in _TRUTH}
        print_json({**found, **truth, "events": events, "waits": [as_json(reason) for reason in waits]})
        return 0
    print(f"Task {task['id']} is {paint(state_words(task), 'bold')}.")
    for line in (*lines, *budget_lines(used, in_all, everything=arguments.verbose)):
        print(indent_text(line))
    print("What happened last:")
    for event in events:
        if event["kind"] != "alert.raised":  # an open alert stands above
            print("  " + _event_line(event))
    return 0


# -- events ------------------------------------------------------------------------------------------------------------


def configure_events(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", nargs="?", help="only events of this task")
    parser.add_argument("--follow", "-f", action="store_true", help="follow new events")
    parser.add_argument(
        "--last", "-n", type=number(0), default=50, metavar="N", help="the number of past events to show (50)"
    )
    parser.add_argument("--after", type=number(0), metavar="SEQ", help="all events after this number instead")
    _json_flag(parser)


def run_events(arguments: argparse.Namespace) -> int:
    queries = Queries(home_directory())
    task_id = None if arguments.id is None else queries.resolve(arguments.id)
    if arguments.after is not None:
        after = _print_after(queries, arguments.after, task_id, as_json=arguments.json)
    else:
        highest = queries.last_seq()  # read first: events that come meanwhile are printed below, once
        events = queries.last_events(task_id=task_id, limit=arguments.last)
        after = events[-1]["seq"] if events else highest
        _print_events(events, as_json=arguments.json)
    if arguments.follow:
        from holdfast.api.queries import follow_events

        for batch in follow_events(queries, after=after, task_id=task_id):
            _print_events(batch, as_json=arguments.json)
    return 0


def _print_after(queries: Queries, after: int, task_id: str | None, *, as_json: bool) -> int:
    while events := queries.events(after=after, task_id=task_id):
        _print_events(events, as_json=as_json)
        after = events[-1]["seq"]
    return after


def _print_events(events: list[EventRow], *, as_json: bool) -> None:
    for event in events:
        if as_json:
            print_json(event)
        else:
            print(_event_line(event))
    if events:
        sys.stdout.flush()


def _event_line(event: EventRow) -> str:
    colour = {"warning": "yellow", "critical": "red"}.get(event["level"], "dim")
    at = time.strftime("%H:%M:%S", time.localtime(event["at"]))
    return f"{at} {paint(event['kind'].ljust(20), colour)} {clean_text(event['message'])}"
