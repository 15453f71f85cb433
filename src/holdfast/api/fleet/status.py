"""The vitals in words: one line about the supervisor, the work and the machine, and what holds the fleet up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from holdfast import __version__
from holdfast.base.units import show_duration, show_size

Row = dict[str, Any]
ORDER = ("running", "queued", "paused", "failed", "completed", "cancelled")
BUSY_MACHINE = 2.0  # load per core that is worth a colour


class Piece(NamedTuple):
    """`level`: "", good, warn or bad. Of what does not fit on a line, the highest `spare` goes first (0: never)."""

    text: str
    level: str = ""
    spare: int = 0


def line(vitals: Row, now: float) -> list[Piece]:
    """In the order in which they are shown."""
    return [*_supervisor(vitals, now), *_work(vitals), *_alerts(vitals), *_machine(vitals)]


def held_up(vitals: Row) -> list[str]:
    """Why less starts than could: one clause each, the widest first."""
    words = []
    held = vitals["supervisor"]["held"]
    if held:
        words.append(f"nothing new starts: {held}")
    for row in sorted(vitals["holds"], key=lambda row: ("fleet", "provider").index(row["scope"]) if _wide(row) else 9):
        words.append(_hold(row))
    for account in vitals["accounts"]:
        until = "stopped until its login is mended" if account["until"] is None else f"parked {_until(account)}"
        words.append(f"account {account['account']} is {until}")
    return words


def _supervisor(vitals: Row, now: float) -> Iterator[Piece]:
    found = vitals["supervisor"]
    if found["state"] == "none":
        waiting = sum(vitals["counts"].get(state, 0) for state in ("running", "queued"))
        yield Piece("no supervisor is running (U starts one)", "bad" if waiting else "warn")
        return
    if found["state"] == "silent":
        since = show_duration(int(found["silent"]))
        yield Piece(f"supervisor pid {found['pid']} has not answered for {since}: stopped, or stuck", "bad")
    else:
        yield Piece(f"supervisor up {_roughly(max(0.0, now - found['since']))}", "good")
        yield Piece(f"pid {found['pid']}, {found['agents']} at once", spare=8)
    if found["other_version"] is not None:
        yield Piece(f"it is version {found['other_version']}, this is {__version__}", "warn", spare=1)


def _roughly(seconds: float) -> str:
    """Without the seconds: a line that changes every second is drawn every second."""
    whole = int(seconds)
    if whole < 60:
        return "for less than 1m"
    return f"{whole // 60}m" if whole < 3600 else show_duration(whole)


def _work(vitals: Row) -> Iterator[Piece]:
    counts = vitals["counts"]
    found = [f"{counts[state]} {state}" for state in ORDER[:4] if counts.get(state)]
    yield Piece(", ".join(found) or "nothing to do", spare=2)
    over = [f"{counts[state]} {state}" for state in ORDER[4:] if counts.get(state)]
    if over:
        yield Piece(", ".join(over), spare=9)


def _alerts(vitals: Row) -> Iterator[Piece]:
    number, worst = vitals["alerts"]["open"], vitals["alerts"]["worst"]
    if number:
        word = "alert" if number == 1 else "alerts"
        how = f" ({worst})" if worst == "critical" else ""
        yield Piece(f"{number} {word}{how}", "bad" if worst == "critical" else "warn", spare=1)


def _machine(vitals: Row) -> Iterator[Piece]:
    found = vitals["machine"]
    if found["disk_free"] is not None:
        free = show_size(found["disk_free"])
        if found["disk_low"]:
            yield Piece(f"disk low: {free} free, {show_size(found['disk_floor'])} wanted", "bad", spare=1)
        else:
            yield Piece(f"disk {free} free", spare=4)
    if found["load"] is not None:
        yield Piece(f"load {found['load']:.1f}", "warn" if found["load"] > BUSY_MACHINE else "", spare=5)
    if found["memory"] is not None:
        yield Piece(f"memory {show_size(found['memory'])}", spare=7)
    if vitals["supervisor"]["state"] != "none":
        yield Piece("cgroups" if found["cgroups"] else "no cgroups", "" if found["cgroups"] else "warn", spare=6)


def _wide(row: Row) -> bool:
    return row["scope"] in ("fleet", "provider")


def _hold(row: Row) -> str:
    what = {"fleet": "everything", "provider": f"provider {row['name']}"}.get(row["scope"], f"account {row['name']}")
    if row["scope"] == "near":
        return f"{what} is near its limit: one agent at a time"
    if row["probe"] is not None:
        return f"{what} is held, task {row['probe']} goes first"
    if row["until"] is None:
        return f"{what} is held until `holdfast dispatch release`"
    return f"{what} is held, the next task goes first" if row["is_due"] else f"{what} is held {_until(row)}"


def _until(row: Row) -> str:
    """A clock's time today, a day too where it is another one."""
    at = time.localtime(row["until"])
    is_today = time.strftime("%F", at) == time.strftime("%F", time.localtime())
    return f"until {time.strftime('%H:%M' if is_today else '%a %d %b %H:%M', at)}"
