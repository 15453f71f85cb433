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
from holdfast.cli.output.render import clean_text, print_json, print_table

if TYPE_CHECKING:
    from holdfast.api.fleet.schedule_models import StatsRow
    from holdfast.api.tasks.models import UsageRow

_FORMATS = {"day": ("DAY (UTC)", "%Y-%m-%d"), "hour": ("HOUR (UTC)", "%Y-%m-%d %H:00")}


def configure_stats(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--agent", metavar="A", help="only this agent")
    parser.add_argument("--since", metavar="T", help="only runs that ended within this long, e.g. 7d")
    parser.add_argument("--by", choices=["day", "hour"], help="over time: one line per agent and day, or hour")
    add_json_option(parser)


def run_stats(arguments: argparse.Namespace) -> int:
    from holdfast.api.fleet.stats import read_reliability
    from holdfast.api.format import parse_duration_option

    if arguments.agent is not None and not is_text(arguments.agent):
        raise UsageError("--agent is not text (it has NUL or undecodable bytes).")
    within = parse_duration_option("--since", arguments.since)
    after = 0.0 if within is None else time.time() - within
    rows = read_reliability(Queries(home_directory()), agent=arguments.agent, after=after, by=arguments.by)
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
        heads = [head, *heads]
        lines = [[time.strftime(form, time.gmtime(row["since"])), *line] for row, line in zip(rows, lines, strict=True)]
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
