"""The facts for the header of `holdfast top`: the supervisor, the tasks, the machine, and the holds and accounts that
delay tasks."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from holdfast import __version__, config
from holdfast.api.fleet.dispatch import list_holds
from holdfast.api.fleet.view import TaskCounter
from holdfast.api.outcome import NoSupervisor, no_supervisor
from holdfast.api.queries import Queries
from holdfast.base import clock
from holdfast.base.units import show_duration, show_size
from holdfast.processes.cgroups import CgroupRecord
from holdfast.processes.observe.machine import Machine

if TYPE_CHECKING:
    from holdfast.api.fleet.models import ClosedAccountRow, HoldRow, MachineRow, SupervisorStatus, VitalsRow

ORDER = ("running", "queued", "paused", "failed", "completed", "cancelled")
BUSY_MACHINE = 2.0  # load per core that is worth a colour


class StatusPiece(NamedTuple):
    """A piece of the status line. `level`: "", good, warn or bad.

    If the line is too long, the piece with the highest `spare` is left out first (0: never).
    """

    text: str
    level: str = ""
    spare: int = 0


def status_line(vitals: VitalsRow, now: float) -> list[StatusPiece]:
    """Return the pieces of the line, in the order in which they are shown."""
    return [*_supervisor(vitals, now), *_work(vitals), *_alerts(vitals), *_machine(vitals)]


def list_delays(vitals: VitalsRow) -> list[str]:
    """Return one clause for each hold and for each parked or stopped account, the widest first."""
    words = []
    held = vitals["supervisor"]["held"]
    if held:
        words.append(f"nothing new starts: {held}")
    for row in sorted(vitals["holds"], key=lambda row: ("fleet", "provider").index(row["scope"]) if _wide(row) else 9):
        words.append(_hold(row))
    for account in vitals["accounts"]:
        until = "stopped until its login is fixed" if account["until"] is None else f"parked {_until(account['until'])}"
        words.append(f"account {account['account']} is {until}")
    return words


def _supervisor(vitals: VitalsRow, now: float) -> Iterator[StatusPiece]:
    found = vitals["supervisor"]
    if found["state"] == "none":
        waiting = sum(vitals["counts"].get(state, 0) for state in ("running", "queued"))
        yield StatusPiece(no_supervisor(NoSupervisor.IN_STATUS, "U starts one"), "bad" if waiting else "warn")
        return
    if found["state"] == "silent":
        since = show_duration(int(found["silent"]))
        yield StatusPiece(f"supervisor pid {found['pid']} has not answered for {since}: stopped, or stuck", "bad")
    else:
        yield StatusPiece(f"supervisor up {_roughly(max(0.0, now - found['since']))}", "good")
        yield StatusPiece(f"pid {found['pid']}, {found['agents']} at once", spare=8)
    if found["other_version"] is not None:
        yield StatusPiece(f"it is version {found['other_version']}, this is {__version__}", "warn", spare=1)


def _roughly(seconds: float) -> str:
    """Return a duration without seconds. A line that shows seconds would have to be drawn every second."""
    whole = int(seconds)
    if whole < 60:
        return "for less than 1m"
    return f"{whole // 60}m" if whole < 3600 else show_duration(whole)


def _work(vitals: VitalsRow) -> Iterator[StatusPiece]:
    counts = vitals["counts"]
    found = [f"{counts[state]} {state}" for state in ORDER[:4] if counts.get(state)]
    yield StatusPiece(", ".join(found) or "nothing to do", spare=2)
    over = [f"{counts[state]} {state}" for state in ORDER[4:] if counts.get(state)]
    if over:
        yield StatusPiece(", ".join(over), spare=9)


def _alerts(vitals: VitalsRow) -> Iterator[StatusPiece]:
    number, worst = vitals["alerts"]["open"], vitals["alerts"]["worst"]
    if number:
        word = "alert" if number == 1 else "alerts"
        how = f" ({worst})" if worst == "critical" else ""
        yield StatusPiece(f"{number} {word}{how}", "bad" if worst == "critical" else "warn", spare=1)


def _machine(vitals: VitalsRow) -> Iterator[StatusPiece]:
    found = vitals["machine"]
    if found["disk_free"] is not None:
        free = show_size(found["disk_free"])
        if found["disk_low"]:
            yield StatusPiece(f"disk low: {free} free, {show_size(found['disk_floor'])} wanted", "bad", spare=1)
        else:
            yield StatusPiece(f"disk {free} free", spare=4)
    if found["load"] is not None:
        yield StatusPiece(f"load {found['load']:.1f}", "warn" if found["load"] > BUSY_MACHINE else "", spare=5)
    if found["memory"] is not None:
        yield StatusPiece(f"memory {show_size(found['memory'])}", spare=7)
    if vitals["supervisor"]["state"] != "none":
        yield StatusPiece("cgroups" if found["cgroups"] else "no cgroups", "" if found["cgroups"] else "warn", spare=6)


def _wide(row: HoldRow) -> bool:
    return row["scope"] in ("fleet", "provider")


def _hold(row: HoldRow) -> str:
    what = {"fleet": "everything", "provider": f"provider {row['name']}"}.get(row["scope"], f"account {row['name']}")
    if row["scope"] == "near":
        return f"{what} is near its limit: one agent at a time"
    if row["probe"] is not None:
        return f"{what} is held, task {row['probe']} starts first"
    if row["until"] is None:
        return f"{what} is held until `holdfast dispatch release`"
    return f"{what} is held, one task starts first" if row["is_due"] else f"{what} is held {_until(row['until'])}"


def _until(moment: float | None) -> str:
    """Return the time if the moment is today, otherwise the day and the time."""
    at = time.localtime(moment)
    is_today = time.strftime("%F", at) == time.strftime("%F", time.localtime())
    return f"until {time.strftime('%H:%M' if is_today else '%a %d %b %H:%M', at)}"


LEASE = 30.0  # seconds after its last heartbeat; supervisor/context.Settings.lease_ttl, a test compares them
SILENT = 15.0  # seconds without a heartbeat (one every 5 s) until a living supervisor counts as silent
MACHINE_EVERY = 5.0


class VitalsReader:
    """A reader of vitals, the facts of the header. A caller that reads repeatedly keeps the reader.

    Values that are slow to read and change rarely (the machine, finished tasks) are read less often.
    """

    def __init__(self, home: str) -> None:
        self._home = home
        self._machine = Machine(home=home)
        self._machine_at = -math.inf
        self._counts = TaskCounter()
        self._machine_row: MachineRow | None = None

    def read(self, queries: Queries) -> VitalsRow:
        alerts, worst = queries.open_alerts()
        return {
            "supervisor": supervisor_status(queries),
            "counts": self._counts.read(queries),
            "alerts": {"open": alerts, "worst": worst},
            "accounts": _closed_accounts(queries),
            "holds": list_holds(queries),
            "machine": self._look_at_machine(),
        }

    def _look_at_machine(self) -> MachineRow:
        now = time.monotonic()
        if self._machine_row is None or now >= self._machine_at + MACHINE_EVERY:
            seen = self._machine.pressure()
            floor = int(config.load_valid_values()["disk.floor"])
            self._machine_row = {
                "disk_free": seen.disk,
                "disk_floor": floor,
                "disk_low": seen.disk is not None and seen.disk < floor,
                "load": seen.load,
                "memory": seen.memory,
                "stall": seen.stall,
                "cgroups": any(os.path.isdir(base) for base in CgroupRecord(self._home).all()),
            }
            self._machine_at = now
        return self._machine_row


def supervisor_status(queries: Queries) -> SupervisorStatus:
    """Return the status of the supervisor. `silent`: its process lives, but has not sent a heartbeat for a while."""
    running = queries.supervisor()
    if running is None:
        return {"state": "none", "held": None, "other_version": None}
    silent = max(0.0, clock.boottime() - (running["lease_until"] - LEASE))
    return {
        "state": "silent" if silent > SILENT else "up",
        "silent": silent,
        "pid": running["pid"],
        "agents": running["agents"],
        "since": running["started_at"],
        "held": running["held"],
        "version": running["version"],
        "other_version": running["version"] if running["version"] != __version__ else None,
    }


def _closed_accounts(queries: Queries) -> list[ClosedAccountRow]:
    """Return accounts that are parked or stopped. Import their module only if needed: it reads settings."""
    if not queries.view("accounts"):
        return []
    from holdfast.api.fleet.accounts import shut

    return shut(queries)
