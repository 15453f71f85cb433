"""The command `dispatch`: list holds with their reasons, and release them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from holdfast.api.fleet.dispatch import describe_release, list_holds, release
from holdfast.api.format import moment
from holdfast.api.queries import Queries
from holdfast.base.errors import UsageError
from holdfast.base.home import home_directory
from holdfast.cli.output.options import add_json_option
from holdfast.cli.output.render import clean_text, one_line, print_json, print_table

if TYPE_CHECKING:
    from holdfast.api.fleet.models import HoldRow

_HEADERS = ("HOLD", "SINCE", "UNTIL", "GOES FIRST", "WHY")


def configure_dispatch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=["list", "release"], default="list", help="list (the default)")
    parser.add_argument("hold", nargs="?", metavar="HOLD", help="which, such as provider:anthropic; without it, all")
    add_json_option(parser)


def run_dispatch(arguments: argparse.Namespace) -> int:
    home = home_directory()
    if arguments.action == "release":
        return _release(home, arguments)
    if arguments.hold is not None:
        raise UsageError("`holdfast dispatch list` takes no name; it lists all that is held back.")
    found = list_holds(Queries(home))
    if arguments.json:
        for row in found:
            print_json(row)
    elif found:
        print_table(_HEADERS, [_cells(row) for row in found], state_column=0)
    else:
        print("Nothing is held back for a provider, an account or after a mass death.")
    return 0


def _cells(row: HoldRow) -> list[str]:
    return [
        row["hold"],
        moment(row["since"]) or "",
        "now" if row["is_due"] else moment(row["until"]) or "",
        str(row["probe"] or ("the next task" if row["is_due"] and row["scope"] != "near" else "")),
        one_line(clean_text(str(row["reason"])), 70),
    ]


def _release(home: str, arguments: argparse.Namespace) -> int:
    released, resumed = release(home, arguments.hold)
    if arguments.json:
        print_json({"released": released, "resumed": resumed})
    else:
        print(describe_release(released, resumed))
    return 0
