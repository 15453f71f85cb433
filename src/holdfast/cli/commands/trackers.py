"""The command about outside trackers: list trackers with the issues that this home has claimed, and read trackers
now."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from holdfast.api.fleet.trackers import list_issue_links, list_trackers, request_sync
from holdfast.api.format import moment
from holdfast.base.home import home_directory
from holdfast.cli.output.options import add_json_option
from holdfast.cli.output.render import clean_text, one_line, print_json, print_table

if TYPE_CHECKING:
    from holdfast.api.fleet.schedule_models import TrackerRow

_HEADERS = ("ISSUE", "STATE", "TASK", "SINCE", "WHY")


def configure_tracker(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=["list", "sync"], default="list", help="list (the default)")
    parser.add_argument("--all", action="store_true", help="also settled issues")
    add_json_option(parser)


def run_tracker(arguments: argparse.Namespace) -> int:
    home = home_directory()
    if arguments.action == "sync":
        is_heard = request_sync(home)
        if arguments.json:
            print_json({"asked": True, "supervisor": is_heard})
        else:
            print("All trackers are being read now." if is_heard else "The next `holdfast up` reads all trackers.")
        return 0
    found, held = list_trackers(home), list_issue_links(home, everything=arguments.all or arguments.json)
    if arguments.json:
        for row in found:
            print_json({"record": "tracker", **row})
        for link in held:
            print_json({"record": "link", **link})
        return 0
    for row in found:
        print(_how(row))
    if held:
        cells = [
            [
                clean_text(link["issue"]),
                link["state"],
                link["task"] or "",
                moment(link["at"]) or "",
                _why(link["reason"]),
            ]
            for link in held
        ]
        print_table(_HEADERS, cells, state_column=1)
    elif found:
        print("No issue is claimed now; --all shows earlier ones.")
    else:
        print("No tracker has been read yet. `tracker.kind` selects one: `holdfast help trackers`.")
    return 0


def _why(reason: str) -> str:
    return one_line(clean_text(reason), 60)


def _how(row: TrackerRow) -> str:
    where = f"{clean_text(row['repo'])} ({row['kind']}, as {clean_text(row['name'] or 'nobody yet')})"
    if row["trouble"] is None:
        return f"{where}: answers."
    since, again = row["since"], row["next_at"]
    when = f" since {moment(since)}" if since is not None else ""
    then = f"read again at {moment(again)}" if again is not None else "read again at once"
    return f"{where}: trouble{when}, {then}: {one_line(clean_text(row['trouble']), 200)}."
