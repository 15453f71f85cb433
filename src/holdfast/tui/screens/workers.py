"""The workers screen: what each named worker does, which workers are benched and why, and how to start them again."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text

from holdfast.api.fleet.alerts import crash_line
from holdfast.api.queries import Queries
from holdfast.base.units import show_duration
from holdfast.tui.feed import NOTHING_NEW, Watch
from holdfast.tui.widgets.details import Sheet
from holdfast.tui.widgets.grid import Cell, Column
from holdfast.tui.widgets.list_screen import Listing, has_words

if TYPE_CHECKING:
    from holdfast.api.fleet.models import CrashRow, WorkerLine
    from holdfast.api.tasks.models import JsonObject

EVERY = 10.0  # seconds: crashes leave their window without an event
CRASHES = 3  # how many crashes the details of a worker list
STYLES = {"working": "blue", "stopping": "yellow", "stopped": "yellow", "benched": "bold red", "new": "cyan"}


def read_workers(queries: Queries) -> list[WorkerLine]:
    from holdfast.api.fleet.workers import workers_of

    rows = workers_of(queries)
    shut = {f"{row['agent']}/{row['name']}": row for row in queries.view("accounts")} if rows else {}
    return [{**row, "rests": _describe_account(shut.get(f"{row['agent']}/{row['account']}"))} for row in rows]


def _describe_account(shut: JsonObject | None) -> str | None:
    """Return why a healthy worker takes no tasks: its account is parked or stopped. None if the account is usable."""
    if shut is None or (shut["until"] is not None and shut["until"] <= time.time()):
        return None
    until = "stopped until an operator opens it" if shut["until"] is None else f"parked until {_clock(shut['until'])}"
    return f"its account {shut['agent']}/{shut['name']} is {until} ({shut['outcome']})"


def _crashes(row: WorkerLine) -> Cell:
    number, limit = row["recent_crashes"], row["crash_limit"]
    return Cell(f"{number}/{limit}", "bold red" if number >= limit else "yellow" if number else "")


def _restart(row: WorkerLine) -> str:
    return "-" if row["restart"] is None else "by itself" if row["restart"] else "by hand"


def _since(row: WorkerLine) -> str:
    return "-" if row["since"] is None else show_duration(int(time.time() - row["since"])).split(" ")[0]


def _why(row: WorkerLine) -> str:
    """Return what happens next, if that is known, and then the reason."""
    return "; ".join(word for word in (describe_next(row), row["rests"], row["reason"]) if word)


COLUMNS: tuple[Column[WorkerLine], ...] = (
    Column("WORKER", 12, lambda row: row["name"]),
    Column("STATE", 8, lambda row: Cell(row["state"], STYLES.get(row["state"], ""))),
    Column("TASK", 10, lambda row: row["task"] or "-", spare=2),
    Column("CRASHES", 7, _crashes, right=True),
    Column("RESTART", 9, _restart, spare=3),
    Column("SINCE", 5, _since, right=True, spare=4),
    Column("WHY", 12, _why, grow=True, spare=1),
)


class WorkersView(Listing):
    ABOUT: ClassVar[str] = "worker"
    NAME: ClassVar[str] = "workers"
    COLUMNS = COLUMNS
    KEY = "name"
    EMPTY = "No named workers; agents are anonymous. More: `holdfast help workers`."
    NO_TASK = "This worker has no task at the moment."

    def __init__(self) -> None:
        self.rows: list[WorkerLine] | None = None
        self.crashes: tuple[str, list[CrashRow]] = ("", [])  # a worker's name and its crashes, as they were read last
        self.chosen = ""
        super().__init__()

    def watches(self) -> Iterable[Watch]:
        self._watch = Watch("workers", self.read, self.seen, every=EVERY)
        self._crash_watch = Watch("worker-crashes", self.read_crashes, self.seen_crashes)
        return (self._watch, self._crash_watch)

    # In the feed's thread. Values are compared with the delivered value, not with the last reading: a reading may have
    # been dropped before delivery.

    def read(self, queries: Queries) -> object:
        rows = [row for row in read_workers(queries) if has_words(self.words, _text(row))]
        return NOTHING_NEW if rows == self.rows else rows

    def read_crashes(self, queries: Queries) -> object:
        from holdfast.api.fleet.workers import crashes_of

        name = self.chosen
        crashes = (name, crashes_of(queries, name, CRASHES) if name else [])
        return NOTHING_NEW if crashes == self.crashes else crashes

    # In the app's thread.

    def read_again(self) -> None:
        self._watch.again()
        self.top.feed.look()

    def seen(self, rows: list[WorkerLine]) -> None:
        self.rows = rows
        self.list_rows(rows)

    def seen_crashes(self, crashes: tuple[str, list[CrashRow]]) -> None:
        self.crashes = crashes
        self.tell()

    def sheet_of(self, row: WorkerLine) -> Text:
        if row["name"] != self.chosen:
            self.chosen = row["name"]
            self._crash_watch.again()
            self.top.feed.look()
        name, crashes = self.crashes
        return worker_details(row, crashes if name == row["name"] else [])


def _text(row: WorkerLine) -> str:
    labels = " ".join(f"label:{key}={value}" for key, value in row["labels"].items())
    return f"{row['name']} state:{row['state']} task:{row['task'] or '-'} agent:{row['agent']} {labels} {row['reason']}"


def describe_next(row: WorkerLine) -> str:
    """Return when a worker that does not work continues, or an empty text."""
    if row["goes_on_at"] is not None:
        left = row["goes_on_at"] - time.time()
        when = (
            f"in {show_duration(left)} ({_clock(row['goes_on_at'])})" if left >= 1 else "at the supervisor's next look"
        )
        return f"continues by itself {when} if it stays quiet, or at once with r"
    return "continues when it is restarted (r)" if row["state"] == "stopped" else ""


def worker_details(row: WorkerLine, crashes: list[CrashRow]) -> Text:
    """Return the details of one worker as text."""
    made = Sheet()
    since = "" if row["since"] is None else f" since {_clock(row['since'])}"
    made.line(f"{row['name']} is {row['state']}{since}: {row['reason']}", STYLES.get(row["state"], "bold"))
    made.fact("Then", describe_next(row)).fact("Account", row["rests"])
    labels = " ".join(f"{key}={value}" for key, value in row["labels"].items())
    account = f"/{row['account']}" if row["account"] else ""
    takes = f"{row['agent'] or 'any agent'}{account} {labels}"
    made.fact("Takes", takes if row["configured"] else "nothing more: it is no longer in the settings")
    window = show_duration(row["crash_window"])
    counted = f"{row['recent_crashes']} of {row['crash_limit']} within {window}"
    after = {
        True: "it continues by itself after a crash (auto_restart), and is benched when these are used up",
        False: "a crash stops it until you restart it (auto_restart is off)",
        None: "",
    }[row["restart"]]
    made.fact("Crashes", f"{counted}; {after}" if after else counted)
    for crash in crashes:
        made.line(f"{crash_line(crash)}  task {crash['task']}").quote("\n".join(crash["error_text"].splitlines()[-5:]))
    return made.text


def _clock(at: float) -> str:
    day = "%H:%M:%S" if abs(time.time() - at) < 43200 else "%Y-%m-%d %H:%M"
    return time.strftime(day, time.localtime(at))
