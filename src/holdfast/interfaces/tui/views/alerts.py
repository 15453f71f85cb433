"""What needs a person: the critical first, what was recovered, and what to do."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple

from rich.text import Text
from textual.binding import Binding, BindingType

from holdfast.api.queries import Queries
from holdfast.interfaces.tui.details import Sheet
from holdfast.interfaces.tui.feed import NOTHING_NEW, Watch
from holdfast.interfaces.tui.grid import Cell, Column
from holdfast.interfaces.tui.listing import Listing, has_words
from holdfast.text import one_line
from holdfast.units import show_duration

Row = dict[str, Any]
MOST = 500  # rows; the rest is counted
MOST_LOOKED_AT = 5000  # for words
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
    left: int  # open ones that are not listed


def read(queries: Queries, *, everything: bool, words: str) -> Seen:
    rows = queries.view("pressing_alerts", all=int(everything), limit=MOST_LOOKED_AT if words else MOST)
    found = [row for row in rows if has_words(words, _text(row))][:MOST] if words else rows
    opened = 0 if words else queries.open_alerts()[0]
    return Seen([{**row, "details": json.loads(row["details"])} for row in found], max(0, opened - len(found)))


def _text(row: Row) -> str:
    over = "open" if row["acked_at"] is None else "over"
    return f"{row['id']} level:{row['level']} task:{row['task'] or '-'} {over} {row['message']} {row['details']}"


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


class AlertsView(Listing):
    ABOUT: ClassVar[str] = "alert"
    NAME: ClassVar[str] = "alerts"
    COLUMNS = COLUMNS
    EMPTY = "No alerts: nothing needs you. (e: those that are over)"
    NO_TASK = "This alert is about no task."
    DEFAULT_CSS = "AlertsView Banner #critical { max-height: 1; }"  # the whole of it stands below
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("e", "everything", "All", tooltip="alerts that are over too, or only those that are open")
    ]

    def __init__(self) -> None:
        self.everything = False
        self.shown: Seen | None = None
        super().__init__()

    def watches(self) -> Iterable[Watch]:
        self._watch = Watch("alerts", self.read, self.seen)
        yield self._watch

    def read(self, queries: Queries) -> object:
        """In the feed's thread. Compared with what was delivered: what was read may have been dropped since."""
        found = read(queries, everything=self.everything, words=self.words)
        return NOTHING_NEW if found == self.shown else found

    def read_again(self) -> None:
        self._watch.again()
        self.top.feed.look()

    def seen(self, seen: Seen) -> None:
        self.shown = seen
        self.list_rows(seen.rows)

    def sheet_of(self, row: Row) -> Text:
        return sheet(row, self.shown.left if self.shown is not None else 0)

    def action_everything(self) -> None:
        self.everything = not self.everything
        self.read_again()


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
    told = f"{alert['message']} {alert['remedy']}"
    for key, name in NAMES.items():
        value = _value(key, details)
        if value not in told:  # nobody reads a thing twice
            made.fact(name, value)
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
