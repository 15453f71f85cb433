"""The command about reliability: stats."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, cast

from holdfast.api.queries import Queries
from holdfast.base.errors import UsageError
from holdfast.base.home import home_directory
from holdfast.base.text import is_text
from holdfast.cli.output.options import add_json_option
from holdfast.cli.output.render import clean_text, one_line, print_json, print_table

if TYPE_CHECKING:
    from holdfast.api.fleet.schedule_models import StatsRow, TaskSumsRow
    from holdfast.api.tasks.models import UsageRow

_SUMS = ("agent", "repo", "model")
_FORMATS = {"day": ("DAY (UTC)", "%Y-%m-%d"), "hour": ("HOUR (UTC)", "%Y-%m-%d %H:00")}


def configure_stats(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--agent", metavar="A", help="only this agent")
    parser.add_argument("--since", metavar="T", help="only runs that ended within this period, e.g. 7d")
    parser.add_argument("--by", type=_grouping, metavar="WHAT", help="day, hour, agent, repo, model or label:KEY")
    add_json_option(parser)


def _grouping(word: str) -> str:
    if word in (*_FORMATS, *_SUMS) or (word.startswith("label:") and len(word) > len("label:")):
        return word
    raise argparse.ArgumentTypeError(
        f"'{one_line(word, 40)}' is not one of: {', '.join((*_FORMATS, *_SUMS))} or label:KEY, as in label:area"
    )


def run_stats(arguments: argparse.Namespace) -> int:
    from holdfast.api.fleet.stats import read_reliability, read_task_sums
    from holdfast.api.format import parse_duration_option

    if arguments.agent is not None and not is_text(arguments.agent):
        raise UsageError("--agent is not text (it has NUL or undecodable bytes).")
    within = parse_duration_option("--since", arguments.since)
    after = 0.0 if within is None else time.time() - within
    queries = Queries(home_directory())
    if arguments.by is not None and arguments.by not in _FORMATS:
        return _show_sums(read_task_sums(queries, arguments.by, agent=arguments.agent, after=after), arguments)
    rows = read_reliability(queries, agent=arguments.agent, after=after, by=arguments.by)
    if arguments.json:
        for row in rows:
            print_json(row)
        return 0
    if not rows:
        print("No such run has ended yet.")
        return 0
    _print(rows, arguments.by)
    return 0


def _print(rows: list[StatsRow], by: str | None) -> None:
    from holdfast.api.format import took

    heads = ["AGENT", "RUNS", "UNEXPECTED", "MEAN", "P50", "P95", "RESTARTS", "ENDS"]
    lines = [_line(row) for row in rows]
    if any(row["tokens"] for row in rows):
        heads.insert(-1, "TOOK")
        for row, line in zip(rows, lines, strict=True):
            line.insert(-1, took(cast("UsageRow", row)) or "-")
    if by is not None:
        head, form = _FORMATS[by]
        heads = [head, heads[0], "TASKS", "SUCCESS", *heads[1:]]
        lines = [
            [
                time.strftime(form, time.gmtime(row["since"])), line[0], str(row["tasks"]),
                _share(row["completed"], row["tasks"]), *line[1:],
            ]
            for row, line in zip(rows, lines, strict=True)
        ]  # fmt: skip
    print_table(heads, lines)
    forgotten = sum(row["forgotten"] for row in rows)
    if forgotten:
        print(
            f"{forgotten} of these runs belong to forgotten tasks: they count, but not in P50 and P95.", file=sys.stderr
        )


def _line(row: StatsRow) -> list[str]:
    from holdfast.api.format import duration

    times = (row["duration"]["mean"], row["duration"]["p50"], row["duration"]["p95"])
    return [
        clean_text(row["agent"]),
        str(row["runs"]),
        f"{row['unexpected']} ({row['unexpected_share']:.0%})",
        *("-" if seconds is None else duration(seconds) for seconds in times),
        str(row["restarts"]),
        ", ".join(f"{outcome} {count}" for outcome, count in row["ends"].items()),
    ]


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "-"


def _show_sums(rows: list[TaskSumsRow], arguments: argparse.Namespace) -> int:
    from holdfast.api.format import money

    if arguments.json:
        for row in rows:
            print_json(row)
        return 0
    if not rows:
        print("No such task has ended yet.")
        return 0
    lines = [
        [
            one_line(row["name"]) if row["name"] is not None else "-",
            str(row["tasks"]),
            _share(row["completed"], row["completed"] + row["failed"]),
            str(row["runs"]),
            "-" if row["tokens"] is None else f"{row['tokens']:,}".replace(",", " "),
            "-" if row["cost_usd"] is None else money(row["cost_usd"]),
        ]
        for row in rows
    ]
    print_table([one_line(arguments.by, 60).upper(), "TASKS", "SUCCESS", "RUNS", "TOKENS", "COST"], lines)
    print("Only tasks that have ended. SUCCESS: completed, of those that completed or failed.", file=sys.stderr)
    return 0
