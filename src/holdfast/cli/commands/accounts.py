"""The commands `agents`, `accounts` and `dispatch`: agents, their accounts, and the holds."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from holdfast.api.fleet.accounts import list_accounts, resume_account
from holdfast.api.fleet.dispatch import describe_release, list_holds, release
from holdfast.api.format import moment
from holdfast.api.queries import Queries
from holdfast.base.errors import UsageError
from holdfast.base.home import home_directory
from holdfast.cli.output.options import add_json_option
from holdfast.cli.output.render import clean_text, one_line, print_json, print_table

if TYPE_CHECKING:
    from holdfast.api.fleet.models import AccountRow, HoldRow
    from holdfast.api.home.models import AgentCliRow

_HEADERS = ("ACCOUNT", "STATE", "UNTIL", "WHY")
_HOLD_HEADERS = ("HOLD", "SINCE", "UNTIL", "GOES FIRST", "WHY")


def configure_accounts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=["list", "resume"], default="list", help="list (the default)")
    parser.add_argument("account", nargs="?", metavar="AGENT/NAME", help="the account that works again")
    add_json_option(parser)


def run_accounts(arguments: argparse.Namespace) -> int:
    home = home_directory()
    if arguments.action == "resume":
        return _resume(home, arguments)
    if arguments.account is not None:
        raise UsageError("`holdfast accounts list` takes no name; it lists all accounts.")
    found = list_accounts(home)
    if arguments.json:
        for row in found:
            print_json(row)
    elif found:
        print_table(_HEADERS, [_cells(row) for row in found], state_column=1)
    else:
        print("There are only your own logins, and all are open. More: `holdfast help accounts`.")
    return 0


def _cells(row: AccountRow) -> list[str]:
    until = row["until"]
    why = str(row["reason"] or ("" if row["auto"] else "only for tasks that name this account"))
    if not row["configured"]:
        why = f"no longer in the settings; {why}"
    return [
        str(row["account"]),
        str(row["state"]),
        moment(until) or "",
        one_line(clean_text(why), 70),
    ]


def _resume(home: str, arguments: argparse.Namespace) -> int:
    if arguments.account is None:
        raise UsageError("Name the account: `holdfast accounts resume AGENT/NAME`. `holdfast accounts` lists them.")
    freed = resume_account(home, arguments.account)
    if arguments.json:
        print_json({"account": arguments.account, "resumed": freed})
    else:
        print(f"{arguments.account} is open again.{f' Resumed: {chr(32).join(freed)}.' if freed else ''}")
    return 0


def configure_agents(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=["list"], default="list", help="list (the default)")
    add_json_option(parser)


def run_agents(arguments: argparse.Namespace) -> int:
    from holdfast import config
    from holdfast.api.home.doctor_agents import list_agent_clis

    settings = config.load_valid_values()
    rows = list_agent_clis(home_directory(), settings)
    if arguments.json:
        for row in rows:
            print_json(row)
        return 0
    print_table(("AGENT", "VERSION", "LOGIN", "PROGRAM"), [_agent_cells(row) for row in rows])
    print('Any other command can be an agent: `holdfast run "PROMPT" -- COMMAND`.')
    if not any(row["is_default"] for row in rows):
        print("No default agent yet. `holdfast init` chooses one; `--agent NAME` names one for a task.")
    return 0


def _agent_cells(row: AgentCliRow) -> list[str]:
    name = f"{row['agent']} (default)" if row["is_default"] else row["agent"]
    if row["path"] is None:
        return [name, "", "", f"{row['binary']} is not installed"]
    login = "; ".join(one_line(clean_text(state["text"]), 40) for state in row["logins"])
    return [name, row["version"] or "unknown", login, row["path"]]


def configure_dispatch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=["list", "release"], default="list", help="list (the default)")
    parser.add_argument("hold", nargs="?", metavar="HOLD", help="a hold, such as provider:anthropic (default: all)")
    add_json_option(parser)


def run_dispatch(arguments: argparse.Namespace) -> int:
    home = home_directory()
    if arguments.action == "release":
        return _release(home, arguments)
    if arguments.hold is not None:
        raise UsageError("`holdfast dispatch list` takes no name; it lists all holds.")
    found = list_holds(Queries(home))
    if arguments.json:
        for row in found:
            print_json(row)
    elif found:
        print_table(_HOLD_HEADERS, [_hold_cells(row) for row in found], state_column=0)
    else:
        print("There are no holds.")
    return 0


def _hold_cells(row: HoldRow) -> list[str]:
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
