"""The command `top`: the fleet on one screen. `top --once` prints the same as plain text or JSON, for scripts and plain
terminals."""

from __future__ import annotations

import argparse
import io
import os
import sys
import time
from typing import TYPE_CHECKING

from holdfast import config
from holdfast.api.fleet.filter import ListFilter
from holdfast.api.fleet.status import list_delays, status_line
from holdfast.api.fleet.view import FleetReader, FleetSnapshot, as_json
from holdfast.api.format import duration, moment, money
from holdfast.api.outcome import NoSupervisor, no_supervisor
from holdfast.api.queries import Queries
from holdfast.base.errors import UsageError
from holdfast.base.home import home_directory
from holdfast.cli.output.render import clean_text, format_age, is_terminal, one_line, paint, print_json, print_table

if TYPE_CHECKING:
    from holdfast.api.fleet.models import AlertRow, FleetRow, VitalsRow, WorkerRow
    from holdfast.api.fleet.schedule_models import ScheduleRow
    from holdfast.api.tasks.models import JsonObject

NEXT_FIRES = 5


def print_snapshot(home: str, *, everything: bool, as_object: bool) -> int:
    from holdfast.api.fleet.schedules import schedule_rows
    from holdfast.api.fleet.status import VitalsReader
    from holdfast.api.fleet.workers import list_workers

    queries, now = Queries(home), time.time()
    picture = FleetReader(ListFilter(everything=everything)).read(queries)
    vitals = VitalsReader(home).read(queries)
    found: JsonObject = {
        "at": now,
        **{name: vitals[name] for name in ("supervisor", "counts", "accounts", "holds", "machine")},
        "alerts": queries.alerts(),
        "workers": list_workers(home),
        "schedules": schedule_rows(home)[0],
    }
    if as_object:
        print_json({**found, "tasks": as_json(picture, now), "left_out": picture.left_out})
        return 0
    _header(vitals, now)
    _alerts(found["alerts"])
    _tasks(picture, now)
    _workers(found["workers"])
    _fires(found["schedules"])
    return 0


def _header(vitals: VitalsRow, now: float) -> None:
    """Print the top line of the screen, then what keeps the fleet from starting tasks."""
    pieces = [piece.text for piece in status_line(vitals, now)]
    if vitals["supervisor"]["state"] == "none":
        pieces[0] = no_supervisor(NoSupervisor.IN_STATUS, "`holdfast up`")  # plain output has no key to press
    print(clean_text(f"{moment(now)}  {'; '.join(pieces)}"))
    for words in list_delays(vitals):
        print(clean_text(words))


def _alerts(alerts: list[AlertRow]) -> None:
    """Print critical alerts in full, and the number of the others."""
    critical = [alert for alert in alerts if alert["level"] == "critical"]
    for alert in critical:
        print(
            paint(f"CRITICAL alert {alert['id']}, {format_age(alert['at'])} ago: {one_line(alert['message'])}", "red")
        )
        if alert["remedy"]:
            print(f"  {one_line(alert['remedy'])}")
    others = len(alerts) - len(critical)
    if others:
        print(f"{others} {'more ' if critical else ''}alert(s): `holdfast alerts`")


def _tasks(picture: FleetSnapshot, now: float) -> None:
    if not picture.rows:
        return
    print()
    headers, told = ["ID", "STATE", "AGENT", "AGE", "HEARD"], picture.told
    headers += [name.upper() for name in ("worker", "stage", "cost") if name in told]
    lines = [_line(picture, row, now) for row in picture.rows]
    print_table([*headers, "PROMPT", "WHY"], lines, state_column=1)
    if picture.left_out:
        print(f"and {picture.left_out} older task(s): `holdfast ps --all`")


def _line(picture: FleetSnapshot, row: FleetRow, now: float) -> list[str]:
    sign = picture.signs.get(row["id"])
    stage = row["stage"]
    cells = [row["id"], row["state"], row["agent"], format_age(row["created_at"])]
    cells.append("" if sign is None else duration(int(now - sign)))
    if "worker" in picture.told:
        cells.append(row["worker"] or "-")
    if "stage" in picture.told:
        cells.append("-" if stage is None else f"{stage['number']}/{stage['of']} {stage['name']}")
    if "cost" in picture.told:
        cells.append(_cost(row))
    return [*map(one_line, cells), one_line(row["prompt"], 40), one_line(picture.why(row, now), 120)]


def _cost(row: FleetRow) -> str:
    if row["cost_usd"] is not None:
        return money(row["cost_usd"])
    return f"{row['tokens']} tok" if row["tokens"] else "-"


def _workers(found: list[WorkerRow]) -> None:
    if not found:
        return
    print()
    lines = [
        [row["name"], row["state"], row["task"] or "-", str(row["recent_crashes"]), one_line(row["reason"] or "", 100)]
        for row in found
    ]
    print_table(["WORKER", "STATE", "TASK", "CRASHES", "WHY"], lines, state_column=1)


def _fires(found: list[ScheduleRow]) -> None:
    """Print the next fires, and every schedule that is in trouble."""
    coming = sorted((row for row in found if row["next_fire"]), key=lambda row: row["next_fire"] or 0.0)
    chosen = coming[:NEXT_FIRES] + [row for row in found if row["trouble"] and row not in coming[:NEXT_FIRES]]
    if not chosen:
        return
    print()
    lines = [
        [one_line(row["name"]), moment(row["next_fire"]) or "-", one_line(row["trouble"] or "", 100)] for row in chosen
    ]
    print_table(["SCHEDULE", "NEXT", "TROUBLE"], lines)
    if len(coming) > NEXT_FIRES:
        print(f"and {len(coming) - NEXT_FIRES} more: `holdfast schedule list`")


def configure_top(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bell", action="store_true", help="ring the terminal's bell once per critical alert")
    parser.add_argument("--once", action="store_true", help="print the screen once, as plain text")
    parser.add_argument("--all", "-a", action="store_true", help="with --once: finished tasks too (on screen: key e)")
    parser.add_argument("--json", action="store_true", help="with --once: as one JSON object (stable, documented)")


def run_top(arguments: argparse.Namespace) -> int:
    home = home_directory()
    if arguments.once:
        return print_snapshot(home, everything=arguments.all, as_object=arguments.json)
    if arguments.all or arguments.json:
        raise UsageError("`--all` and `--json` need `--once`; on screen the key e shows finished tasks too.")
    Queries(home)  # raises now, as one line, if the store has a defect: before the screen is taken
    if not all(is_terminal(stream) for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise UsageError("`top` needs a terminal; in a script use `holdfast top --once` (or with `--json`).")
    _prepare_terminal()
    from holdfast.tui.app import Top

    app = Top(home, bell=arguments.bell or bool(config.load_valid_values()["top.bell"]))
    app.leaving.catch()
    app.run()
    if not app.actions.threads.finish():
        print("holdfast: The last action has not ended yet. `holdfast events` shows its end.", file=sys.stderr)
    return app.return_code or 0


def _prepare_terminal() -> None:
    """Prepare the terminal for the screen.

    Only the terminal's real size counts: COLUMNS and LINES from a shell are wrong after the next resize. A character
    that the terminal's character set lacks becomes one question mark, not six letters that shift the rest of the line.
    """
    if all(os.get_terminal_size(1)):
        os.environ.pop("COLUMNS", None)
        os.environ.pop("LINES", None)
    screen = sys.__stderr__  # Textual's choice
    if isinstance(screen, io.TextIOWrapper) and screen.encoding.lower() != "utf-8":
        screen.reconfigure(errors="replace")
