"""What needs a person: the critical first, what was recovered, and what to do."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from holdfast.api.queries import Queries
from holdfast.interfaces.tui.details import Details, Sheet
from holdfast.interfaces.tui.feed import Watch
from holdfast.interfaces.tui.frame import View
from holdfast.interfaces.tui.grid import Cell, Column, Grid
from holdfast.text import one_line
from holdfast.units import show_duration

Row = dict[str, Any]
MOST = 500  # rows; the rest is counted
TICK = 10.0  # seconds between two drawings of the ages
STYLES = {"critical": "bold red", "warning": "yellow"}
NAMES = {
    "reason": "Reason",
    "worker": "Worker",
    "recovered": "Recovered",
    "crashes": "Recent crashes",
    "restart": "By hand",
}
TOLD = frozenset({*NAMES, "error_text", "window"})


class Seen(NamedTuple):
    rows: list[Row]
    open: int  # alerts, of all levels


def read(queries: Queries, *, everything: bool) -> Seen:
    rows = queries.view("pressing_alerts", all=int(everything), limit=MOST)
    return Seen([{**row, "details": json.loads(row["details"])} for row in rows], queries.open_alerts()[0])


def _level(row: Row) -> Cell:
    return Cell("over", "dim") if row["acked_at"] is not None else Cell(row["level"], STYLES.get(row["level"], ""))


def _age(row: Row) -> str:
    return show_duration(max(0.0, time.time() - row["at"])).split(" ")[0]


COLUMNS = (
    Column("ID", 4, lambda row: str(row["id"]), right=True, spare=2),
    Column("LEVEL", 8, _level),
    Column("AGE", 4, _age, right=True, spare=1),
    Column("TASK", 10, lambda row: row["task"] or "-", spare=3),
    Column("WHAT", 12, lambda row: row["message"], grow=True),
)


class AlertsView(View):
    ABOUT: ClassVar[str] = "alert"
    NAME: ClassVar[str] = "alerts"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("o", "over", "Over too", tooltip="show alerts that are over as well, or only those that are open")
    ]

    def __init__(self) -> None:
        self.everything = False
        self.seen_last: Seen | None = None
        super().__init__()

    def body(self) -> ComposeResult:
        yield Grid(COLUMNS, empty="No alerts: nothing needs you. (o: those that are over)")
        yield Details()

    def watches(self) -> Iterable[Watch]:
        self.watch_alerts = Watch("alerts", lambda queries: read(queries, everything=self.everything), self.seen)
        yield self.watch_alerts

    def on_mount(self) -> None:
        self.set_interval(TICK, self._tick)

    def _tick(self) -> None:
        if self.is_current:
            self.query_one(Grid).redraw()
            self._tell()

    def seen(self, seen: Seen) -> None:
        if seen == self.seen_last:
            return
        self.seen_last = seen
        self.query_one(Grid).show(seen.rows)
        self._tell()

    def on_grid_moved(self, _message: Grid.Moved) -> None:
        self._tell()

    def _tell(self) -> None:
        row, seen = self.query_one(Grid).row, self.seen_last
        details = self.query_one(Details)
        details.display = row is not None
        if row is not None and seen is not None:
            details.show(row["id"], sheet(row, max(0, seen.open - len(seen.rows))))

    def on_grid_chosen(self, message: Grid.Chosen) -> None:
        if message.row["task"]:
            self.top.open_task(message.row["task"])
        else:
            self.notify("This alert is about no task.", markup=False)

    def action_over(self) -> None:
        self.everything = not self.everything
        self.watch_alerts.again()
        self.top.feed.look()

    def subject(self) -> Row | None:
        return self.query_one(Grid).row


def sheet(alert: Row, left: int = 0) -> Text:
    """Everything about one alert, for people."""
    made, details = Sheet(), alert["details"]
    times = f", {alert['count']} times" if alert["count"] > 1 else ""
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(alert["at"]))
    made.line(f"{alert['level'].upper()}: alert {alert['id']}, {at}{times}", STYLES.get(alert["level"], "bold"))
    made.line(alert["message"])
    if alert["acked_at"] is None:
        made.line(alert["remedy"], "bold")
    else:
        why = f": {alert['acked_why']}" if alert["acked_why"] else ""
        ended = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(alert["acked_at"]))
        made.line(f"Over since {ended}, by {alert['acked_by']}{why}.", "dim")
    for key, name in NAMES.items():
        made.fact(name, _value(key, details))
    if details.get("error_text"):
        made.line("Last words:", "bold").quote(details["error_text"])
    for key, value in details.items():
        if key not in TOLD:
            made.fact(one_line(key, 40), _plain(value))
    if left:
        made.line(f"And {left} more open alerts: `holdfast alerts`.", "dim")
    return made.text


def _value(key: str, details: Row) -> str:
    value = details.get(key)
    if value is None:
        return ""
    if key == "crashes" and details.get("window"):
        return f"{value} within {show_duration(float(details['window'])).removesuffix(' 0s')}"
    return f"`{value}`" if key == "restart" else _plain(value)


def _plain(value: object) -> str:
    """JSON of the store in words; what is not there is not told."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(each)}" for key, each in value.items() if each) or "nothing was there to keep"
    return ", ".join(map(_plain, value)) if isinstance(value, list) else str(value)
