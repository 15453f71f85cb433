"""The alerts screen: alerts that need the user, critical ones first, what was recovered, and what to do."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, NamedTuple, cast

from rich.text import Text
from textual.binding import Binding, BindingType

from holdfast.api.queries import Queries
from holdfast.base.text import one_line
from holdfast.base.units import show_duration
from holdfast.tui.colours import LEVELS
from holdfast.tui.feed import NOTHING_NEW, Watch
from holdfast.tui.widgets.details import Sheet
from holdfast.tui.widgets.grid import Cell, Column
from holdfast.tui.widgets.list_screen import Listing, has_words

if TYPE_CHECKING:
    from holdfast.api.fleet.models import AlertLine
    from holdfast.api.tasks.models import JsonObject

MOST = 500  # rows; the rest is counted
MOST_LOOKED_AT = 5000  # rows that a filter searches
CRASH = "crash"  # the level of a crash that was recovered
LATE = 3600.0  # seconds for which recovered crashes are counted
EVERY = 60.0  # seconds: crashes leave the last hour without an event
STYLES = {**LEVELS, CRASH: "yellow"}
NAMES = {
    "reason": "Reason",
    "worker": "Worker",
    "recovered": "Recovered",
    "crashes": "Recent crashes",
    "restart": "By hand",
}
SHOWN_KEYS = frozenset({*NAMES, "error_text", "window"})


class AlertsContent(NamedTuple):
    """The content of the screen, as the feed read it."""

    rows: list[AlertLine]
    left: int = 0  # open alerts that are not listed
    recovered: int = 0  # crashes of the last hour that need no person


def read_alerts(queries: Queries, *, everything: bool, words: str) -> AlertsContent:
    limit = MOST_LOOKED_AT if words else MOST
    rows = [_from_alert(row) for row in queries.view("pressing_alerts", all=int(everything), limit=limit)]
    if everything:
        rows += [_from_crash(crash) for crash in queries.view("newest_crashes", limit=limit)]
        rows.sort(key=lambda row: -math.inf if row["acked_at"] is None else -row["acked_at"])  # open alerts first
    found = [row for row in rows if has_words(words, _text(row))] if words else rows
    opened = 0 if words else queries.open_alerts()[0] - sum(row["acked_at"] is None for row in found[:MOST])
    [recovered] = queries.view("recovered_crashes", since=time.time() - LATE)
    return AlertsContent(found[:MOST], max(0, opened), int(recovered["n"]))


def _from_alert(row: JsonObject) -> AlertLine:
    return cast("AlertLine", {**row, "details": json.loads(row["details"])})


def _from_crash(crash: JsonObject) -> AlertLine:
    """Return a crash as an alert that is over, because the supervisor has dealt with the crash."""
    released = "its claim was released" if crash["claim_released"] else "its claim was not released"
    return {
        "id": f"c{crash['id']}",
        "key": f"crash:run:{crash['run']}",
        "at": crash["at"],
        "level": CRASH,
        "task": crash["task"],
        "message": f"The agent of task {crash['task']} crashed: {crash['reason']}. {crash['decision']}.",
        "remedy": "",
        "count": 1,
        "details": {
            "worker": crash["worker"],
            "recovered": {"": released, "workspace": crash["workspace"], "branch": crash["branch"]},
            "error_text": crash["error_text"],
        },
        "acked_at": crash["recorded_at"],
        "acked_by": "Holdfast",
        "acked_why": crash["decision"],
    }


def _text(row: AlertLine) -> str:
    over = "open" if row["acked_at"] is None else "over"
    return f"{row['id']} level:{row['level']} task:{row['task'] or '-'} {over} {row['message']} {row['details']}"


def _level(row: AlertLine) -> Cell:
    if row["level"] == CRASH:
        return Cell(CRASH, STYLES[CRASH])
    return Cell("over", "dim") if row["acked_at"] is not None else Cell(row["level"], STYLES.get(row["level"], ""))


def _age(row: AlertLine) -> str:
    return show_duration(int(time.time() - row["at"])).split(" ")[0]


COLUMNS: tuple[Column[AlertLine], ...] = (
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
    NO_TASK = "This alert does not concern a task."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("e", "everything", "All", tooltip="show closed alerts and every crash too, or only open alerts")
    ]

    def __init__(self) -> None:
        self.everything = False
        self.shown: AlertsContent | None = None
        super().__init__()

    def watches(self) -> Iterable[Watch]:
        self._watch = Watch("alerts", self.read, self.seen, every=EVERY)
        yield self._watch

    def read(self, queries: Queries) -> object:
        """Read the alerts in the feed's thread.

        Compare with the delivered value, not with the last reading: a reading may have been dropped before delivery.
        """
        found = read_alerts(queries, everything=self.everything, words=self.words)
        return NOTHING_NEW if found == self.shown else found

    def read_again(self) -> None:
        self._watch.again()
        self.top.feed.look()

    def seen(self, seen: AlertsContent) -> None:
        self.shown = seen
        more = f" {describe_recovered(seen.recovered)}" if seen.recovered else ""
        self.list_rows(seen.rows, f"No alerts: nothing needs you.{more} (e: all)")

    def sheet_of(self, row: AlertLine) -> Text:
        return alert_details(row, self.shown or AlertsContent([]))

    def action_everything(self) -> None:
        self.everything = not self.everything
        self.read_again()


def describe_recovered(number: int) -> str:
    return f"{number} crash{'es' if number > 1 else ''} of the last hour {'were' if number > 1 else 'was'} recovered."


def alert_details(alert: AlertLine, seen: AlertsContent) -> Text:
    """Return the details of one alert as text."""
    made, details = Sheet(), alert["details"]
    what = "number" if alert["level"] == CRASH else "alert"
    times = f", {alert['count']} times" if alert["count"] > 1 else ""
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(alert["at"]))
    made.line(f"{alert['level'].upper()}: {what} {alert['id']}, {at}{times}", STYLES.get(alert["level"], "bold"))
    made.line(alert["message"])
    if alert["acked_at"] is None:
        made.line(alert["remedy"], "bold")
    elif alert["level"] != CRASH:  # the message of a crash already has the decision
        why = f": {alert['acked_why']}" if alert["acked_why"] else ""
        ended = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(alert["acked_at"]))
        made.line(f"Over since {ended}, by {alert['acked_by']}{why}.", "dim")
    told = f"{alert['message']} {alert['remedy']}"
    for key, name in NAMES.items():
        value = _value(key, details)
        if value not in told:  # nothing is shown twice
            made.fact(name, value)
    if details.get("error_text"):
        made.line("Last words:", "bold").quote(details["error_text"])
    for key, value in details.items():
        if key not in SHOWN_KEYS:
            made.fact(one_line(key, 40), _json_text(value))
    if seen.left:
        made.line(f"And {seen.left} more open alerts: `holdfast alerts`.", "dim")
    if seen.recovered and alert["level"] != CRASH:
        made.line(f"{describe_recovered(seen.recovered)} (e: all)", "dim")
    return made.text


def _value(key: str, details: JsonObject) -> str:
    value = details.get(key)
    if value is None:
        return ""
    if key == "crashes" and details.get("window"):
        return f"{value} within {show_duration(float(details['window']))}"
    return f"`{value}`" if key == "restart" else _json_text(value)


def _json_text(value: object) -> str:
    """Return a JSON value of the store as text. Empty fields are left out."""
    if isinstance(value, dict):
        return (
            ", ".join(f"{key} {_json_text(each)}" for key, each in value.items() if each) or "there was nothing to keep"
        )
    return ", ".join(map(_json_text, value)) if isinstance(value, list) else str(value)
