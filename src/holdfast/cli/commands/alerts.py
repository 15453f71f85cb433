"""Commands about trouble: `alerts` (what needs a person) and `crashes` (runs that died)."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from holdfast.api.queries import Queries
from holdfast.base.errors import UsageError
from holdfast.base.home import home_directory
from holdfast.base.platform import refuse_unsupported
from holdfast.base.text import is_text
from holdfast.cli.output.options import add_json_option
from holdfast.cli.output.render import clean_text, format_age, number, paint, paint_level, print_json

if TYPE_CHECKING:
    from holdfast.api.fleet.models import AlertRow

LEVELS = ("debug", "info", "warning", "critical")


def configure_alerts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", nargs="?", choices=["ack", "test"], help="ack: acknowledge alerts. test: send a test alert"
    )
    parser.add_argument("number", nargs="?", type=number(1), help="the number of the alert")
    parser.add_argument("--all", "-a", action="store_true", help="also acknowledged alerts; with ack: every open alert")
    parser.add_argument("--level", choices=LEVELS, help="only alerts of at least this level")
    parser.add_argument("--why", default="", metavar="TEXT", help="with ack: your reason, which is recorded")
    add_json_option(parser)


def run_alerts(arguments: argparse.Namespace) -> int:
    if arguments.action == "ack":
        return _ack(arguments)
    if arguments.action == "test":
        return _test(as_json=arguments.json)
    if arguments.why:
        raise UsageError("--why belongs to `holdfast alerts ack`.")
    queries = Queries(home_directory())
    least = _rank(arguments.level or LEVELS[0])
    alerts = [row for row in queries.alerts(everything=arguments.all) if _rank(row["level"]) >= least]
    for alert in alerts:
        if arguments.json:
            print_json(alert)
        else:
            _print_alert(alert)
    if not alerts and not arguments.json:
        print("No alerts.")
    return 0


def _rank(level: str) -> int:
    """Return the rank of a level. An unknown level ranks highest, so that a person sees it."""
    return LEVELS.index(level) if level in LEVELS else len(LEVELS)


def _print_alert(alert: AlertRow) -> None:
    again = f" ({alert['count']} times)" if alert["count"] > 1 else ""
    level = paint_level(alert["level"], alert["level"])
    print(f"{alert['id']}  {level}  {format_age(alert['at'])} ago{again}  {clean_text(alert['message'])}")
    said = str(alert["details"].get("error_text") or "")
    for line in said.splitlines()[-5:]:
        print(f"      {paint(clean_text(line), 'dim')}")
    if alert["acked_at"] is None:
        print(f"    {clean_text(alert['remedy'])} Then: `holdfast alerts ack {alert['id']}`.")
    else:
        why = f": {alert['acked_why']}" if alert["acked_why"] else ""
        print(
            f"    Over since {format_age(alert['acked_at'])}, by {clean_text(alert['acked_by'] or '')}"
            f"{clean_text(why)}."
        )


def _ack(arguments: argparse.Namespace) -> int:
    from holdfast.api.commands import Commands

    if not is_text(arguments.why):
        raise UsageError("--why is not text (it has NUL or undecodable bytes).")
    if (arguments.number is None) != arguments.all:
        raise UsageError("Name the alert: `holdfast alerts ack NUMBER`, or --all for every open alert.")
    commands = Commands(home_directory(), create=False)
    if arguments.all:
        done = commands.ack_all_alerts(arguments.why, level=arguments.level)
    else:
        commands.ack_alert(arguments.number, arguments.why)
        done = [arguments.number]
    if arguments.json:
        print_json({"acknowledged": done})
    elif len(done) == 1:
        print(f"Alert {done[0]} acknowledged.")
    else:
        print(f"{len(done)} alerts acknowledged." if done else "No alert is open; nothing was changed.")
    return 0


def _test(*, as_json: bool) -> int:
    """Send a test alert to every target. Return exit code 1 if a target did not accept it."""
    from holdfast.api.commands import operator_name
    from holdfast.api.fleet.alerts import send_test

    refuse_unsupported("`holdfast alerts test`")  # everything that a command starts is ended with it
    answers = send_test(operator_name())
    for answer in answers:
        if as_json:
            print_json(answer)
        else:
            print(
                f"{answer['target']}: {paint('accepted', 'green') if answer['ok'] else paint('not accepted', 'red')}"
                f" ({clean_text(answer['told'])})"
            )
    if not answers and not as_json:
        print("Alerts are sent nowhere: set `notify.command`, `webhook` or `urls` in your own config file.")
    return 0 if all(answer["ok"] for answer in answers) else 1


# -- crashes -----------------------------------------------------------------------------------------------------------


def configure_crashes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", nargs="?", help="only crashes of this task")
    parser.add_argument("--since", metavar="AGE", help="only crashes of this period, like 24h or 7d")
    add_json_option(parser)


def run_crashes(arguments: argparse.Namespace) -> int:
    from holdfast.api.fleet.alerts import crash_line
    from holdfast.api.format import parse_duration_option

    queries = Queries(home_directory())
    age = parse_duration_option("--since", arguments.since)
    found = queries.crashes(
        task_id=None if arguments.id is None else _task_of(queries, arguments.id),
        since=0.0 if age is None else time.time() - age,
    )
    for crash in found:
        if arguments.json:
            print_json(crash)
            continue
        print(f"{clean_text(crash_line(crash))}  task {crash['task']}, run {crash['run']}")
        if crash["workspace"]:
            print(f"      workspace {clean_text(crash['workspace'])}")
        for line in crash["error_text"].splitlines()[-5:]:
            print(f"      {paint(clean_text(line), 'dim')}")
    if not found and not arguments.json:
        print("No crashes.")
    return 0


def _task_of(queries: Queries, word: str) -> str:
    """Return the task's id. A deleted task still has its crashes, under its full id."""
    from holdfast.base.errors import NotFound

    try:
        return queries.resolve(word)
    except NotFound:
        if queries.crashes(task_id=word):
            return word
        raise
