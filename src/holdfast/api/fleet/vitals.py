"""How the whole is: the supervisor, what holds the fleet up, the machine. For the header of `holdfast top`.

A `Vitals` is kept by who looks again and again: what costs more than it changes is read less often.
"""

from __future__ import annotations

import math
import os
import time
from typing import Any

from holdfast import __version__, config
from holdfast.api.fleet.counting import Counts
from holdfast.api.fleet.dispatch import holds
from holdfast.api.queries import Queries
from holdfast.base import clock
from holdfast.processes.groupbases import Bases
from holdfast.processes.observe.machine import Machine

Row = dict[str, Any]
LEASE = 30.0  # seconds after its last beat; supervisor/context.Settings.lease_ttl, a test compares them
SILENT = 15.0  # seconds without a beat (every 5 s) until a living supervisor is said not to answer
MACHINE_EVERY = 5.0


class Vitals:
    def __init__(self, home: str) -> None:
        self._home = home
        self._machine = Machine(home=home)
        self._machine_at = -math.inf
        self._counts = Counts()
        self._machine_row: Row = {}

    def read(self, queries: Queries) -> Row:
        alerts, worst = queries.open_alerts()
        return {
            "supervisor": supervisor(queries),
            "counts": self._counts.read(queries),
            "alerts": {"open": alerts, "worst": worst},
            "accounts": _shut(queries),
            "holds": holds(queries),
            "machine": self._look_at_machine(),
        }

    def _look_at_machine(self) -> Row:
        now = time.monotonic()
        if now >= self._machine_at + MACHINE_EVERY:
            seen = self._machine.pressure()
            floor = int(config.best_effort()["disk.floor"])
            self._machine_row = {
                "disk_free": seen.disk,
                "disk_floor": floor,
                "disk_low": seen.disk is not None and seen.disk < floor,
                "load": seen.load,
                "memory": seen.memory,
                "stall": seen.stall,
                "cgroups": any(os.path.isdir(base) for base in Bases(self._home).all()),
            }
            self._machine_at = now
        return self._machine_row


def supervisor(queries: Queries) -> Row:
    """`state`: none, up, silent (alive, but it has not beaten for a while: stopped, or stuck on a disk)."""
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


def _shut(queries: Queries) -> list[Row]:
    """Accounts that are parked or stopped. Imported only where there is one: it reads settings."""
    if not queries.view("accounts"):
        return []
    from holdfast.api.fleet.accounts import shut

    return shut(queries)
