"""The fleet screen: every task with its state, its cost, its last sign of life, and why it waits.

Some parts of a line change with the time of day alone. `stamp` returns these parts, so that only changed lines are
redrawn.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Protocol

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.timer import Timer
from textual.widgets import Static

from holdfast.api.fleet.filter import ABOUT, ORDERS, ListFilter
from holdfast.api.fleet.view import SIGNS_EVERY, FleetReader, FleetSnapshot
from holdfast.api.format import money
from holdfast.api.queries import Queries
from holdfast.api.tasks.live_cost import LiveCost, LiveCosts
from holdfast.base.text import one_line
from holdfast.tui.colours import STATES
from holdfast.tui.feed import NOTHING_NEW, Watch
from holdfast.tui.screens.live_output import LiveOutput, output_height
from holdfast.tui.widgets.filter_bar import FilterBar
from holdfast.tui.widgets.grid import Cell, Column, Grid
from holdfast.tui.widgets.screen import View

if TYPE_CHECKING:
    from holdfast.api.fleet.models import FleetRow

STEP = 5  # seconds
QUIET = 300.0  # seconds without a sign of life after which the column HEARD is coloured


class Painter(Protocol):
    """The data from which columns and stamps are made, as a protocol. FleetView implements it."""

    picture: FleetSnapshot
    marks: set[str]  # ids
    live: Mapping[str, LiveCost]  # costs of tasks whose agents report costs while they work


def make_columns(view: Painter, told: frozenset[str]) -> tuple[Column[FleetRow], ...]:
    """Return the columns. Worker, stage, cost and repository have a column only if `told` names them.

    The state and the prompt are never left out: no task can be told from another without its prompt.
    """
    made: list[Column[FleetRow]] = [
        Column("ID", 10, lambda row: row["id"], spare=2),
        Column("STATE", 9, lambda row: Cell(row["state"], STATES[row["state"]])),
        Column("AGENT", 8, lambda row: row["agent"], spare=7),
        Column("AGE", 4, lambda row: age_text(row, time.time()), spare=6, right=True),
        Column("HEARD", 5, lambda row: last_sign_cell(view.picture, row, time.time()), spare=3, right=True),
    ]
    if "worker" in told:
        made.insert(3, Column("WORKER", 8, lambda row: row["worker"] or "-", spare=8))
    if "repo" in told:
        made.insert(2, Column("REPO", 10, lambda row: os.path.basename(row["repo"] or "-"), spare=5))
    if "stage" in told:
        made.append(Column("STAGE", 11, stage_text, spare=4))
    if "cost" in told:
        made.append(Column("COST", 8, lambda row: cost_text(view, row), spare=5, right=True))
    if view.marks:
        made.insert(0, Column("", 1, lambda row: Cell("*" if row["id"] in view.marks else " ", "bold")))
    made += [
        Column("PROMPT", 14, lambda row: prompt_text(view.picture, row), grow=True),
        Column("WHY", 12, lambda row: view.picture.why(row, time.time()), grow=True, spare=1),
    ]
    return tuple(made)


def line_stamp(view: Painter, row: FleetRow) -> tuple[object, ...]:
    """Return everything that a line depends on besides its row."""
    now = time.time()
    picture, task_id = view.picture, row["id"]
    return (
        age_text(row, now),
        last_sign_cell(picture, row, now),
        picture.why(row, now),
        picture.levels.get(task_id),
        view.live.get(task_id),
        task_id in view.marks,
    )


def age_text(row: FleetRow, now: float) -> str:
    return short_age(row["created_at"], now)


def last_sign_cell(picture: FleetSnapshot, row: FleetRow, now: float) -> Cell:
    """Return how long ago an agent of the task last printed something or reported."""
    at = picture.signs.get(row["id"]) if row["state"] == "running" else None
    if at is None:
        return Cell("")
    silent = now - at
    return Cell("now" if silent < 5 else short_age(at, now), "yellow" if silent > QUIET else "")


def stage_text(row: FleetRow) -> str:
    found = row["stage"]
    return "" if found is None else f"{found['number']}/{found['of']} {found['name']}"


def cost_text(view: Painter, row: FleetRow) -> str:
    """Return the cost in money if it is known, otherwise in tokens. For a running agent: the cost reported so far."""
    tokens, dollars = view.live.get(row["id"], LiveCost(row["tokens"] or 0, row["cost_usd"]))
    if dollars is not None:
        return money(dollars)
    return f"{tokens / 1000:.0f}k tok" if tokens >= 10_000 else f"{tokens} tok" if tokens else ""


def prompt_text(picture: FleetSnapshot, row: FleetRow) -> str:
    level = picture.levels.get(row["id"], 0)
    return f"└{'─' * (min(level, 4) - 1)} {row['prompt']}" if level else row["prompt"]


def short_age(moment: float, now: float) -> str:
    """Return an age in at most four letters: 12s, 3m, 2h, 41d.

    From ten seconds on, all lines change together, every five seconds: one more line adds little to a redraw.
    """
    whole = max(0, int(now - moment))
    if whole >= 10:
        whole = max(10, int(now - now % STEP - moment))
    if whole < 60:
        return f"{whole // STEP * STEP}s" if whole >= 10 else f"{whole}s"
    for unit, size, most in (("m", 60, 3600), ("h", 3600, 48 * 3600)):
        if whole < most:
            return f"{whole // size}{unit}"
    return f"{whole // 86400}d"


COSTS_EVERY = 5.0  # seconds between two looks at what running agents took
READING = "Reading the tasks …"
NONE = "No tasks are unfinished: + adds one; e shows the finished ones too."
NONE_AT_ALL = "No tasks. + adds one."
NONE_MATCHES = "No task has all these words: Escape drops the filter."


class FleetView(View):
    ABOUT: ClassVar[str] = "task"
    NAME: ClassVar[str] = "fleet"
    DEFAULT_CSS = """
    FleetView #listed { height: 1; color: $text-muted; text-wrap: nowrap; text-overflow: ellipsis; }
    FleetView #about { height: 3; background: $panel; }
    FleetView.-short #about { display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "Filter", key_display="/", priority=True, tooltip="list only tasks with some words"),
        Binding("s", "sort", "Sort", show=False, tooltip=f"the next order: {', '.join(ORDERS)}"),
        Binding("S", "turn_round", "Backwards", show=False, tooltip="the same order backwards"),
        Binding("e", "everything", "All", show=False, tooltip="finished tasks too, or not"),
        Binding("space", "mark", "Mark", show=False, tooltip="mark the task, or not; actions work on all marked ones"),
        Binding("asterisk", "mark_all", "Mark all", key_display="*", show=False, tooltip="mark all listed, or none"),
        Binding("escape", "drop_filter", "No filter", show=False, tooltip="drop the filter, then the marks"),
    ]

    def __init__(self) -> None:
        self.reader = FleetReader()
        self.picture = FleetSnapshot()
        self.marks: set[str] = set()
        self._watch = Watch("fleet", self._read, self.seen, every=SIGNS_EVERY)
        self.live: Mapping[str, LiveCost] = {}
        self._costs = LiveCosts()
        self._output = LiveOutput()
        self._clock: Timer | None = None
        self._told = ""
        super().__init__()

    def body(self) -> ComposeResult:
        yield FilterBar()
        yield Static(READING, id="listed", markup=False)
        yield Grid(make_columns(self, frozenset()), empty=READING, stamp=lambda row: line_stamp(self, row))
        yield self._output
        yield Static(id="about", markup=False)

    def watches(self) -> Iterable[Watch]:
        yield self._watch
        yield self._output.reading
        yield Watch("costs", self._read_costs, self._seen_costs, every=COSTS_EVERY, on_change=False, apart=True)

    def on_mount(self) -> None:
        self.query_one(Grid).focus()
        self._clock = self.set_interval(1.0, self._tick)

    def on_screen_resume(self) -> None:
        if self._clock is not None:
            self._clock.resume()

    def on_screen_suspend(self) -> None:
        if self._clock is not None:
            self._clock.pause()

    def _tick(self) -> None:
        grid = self.query_one(Grid)
        grid.tick()
        self.reader.in_sight = frozenset(row["id"] for row in grid.on_screen())
        self._tell_about()

    def _read(self, queries: Queries) -> object:
        """Read the tasks in the feed's thread.

        Compare with the delivered value, not with the last reading: a reading may have been dropped before delivery.
        """
        picture = self.reader.read(queries)
        return NOTHING_NEW if picture.is_like(self.picture) else picture

    def _read_costs(self, queries: Queries) -> object:
        """Read the costs. This runs in a thread of its own, because it reads the output of agents."""
        in_sight = self.reader.in_sight or frozenset()
        rows = [row for row in self.picture.rows if row["state"] == "running" and row["id"] in in_sight]
        found = self._costs.look(queries, rows)
        return NOTHING_NEW if found == self.live else found

    # -- values from the feed ------------------------------------------------------------------------------------------

    def seen(self, picture: FleetSnapshot) -> None:
        before, self.picture = self.picture, picture
        grid = self.query_one(Grid)
        if picture.told != before.told:
            self._title(grid)
        grid.say_when_empty(NONE_MATCHES if picture.wish.words else NONE_AT_ALL if picture.wish.everything else NONE)
        grid.show(picture.rows)
        self._tell_listed()
        self._tell_about()

    def _tell_listed(self) -> None:
        marks = describe_marks(len(self.marks), len(self.marked()))
        self.query_one("#listed", Static).update(Text(marks + describe_list(self.picture)), layout=False)

    def _seen_costs(self, live: Mapping[str, LiveCost]) -> None:
        is_first, self.live = bool(live) != bool(self.live), live
        grid = self.query_one(Grid)
        if is_first:
            self._title(grid)
        grid.tick()

    def _title(self, grid: Grid[FleetRow]) -> None:
        grid.retitle(make_columns(self, self.picture.told | {"cost"} if self.live else self.picture.told))

    def _tell_about(self) -> None:
        """Show the task under the cursor in at most three lines."""
        row = self.subject()
        words = "" if row is None else about(row, self.picture.why(row, time.time()))
        if words != self._told:
            self._told = words
            self.query_one("#about", Static).update(Text(words), layout=False)
        lines = self.query_one(Grid).size.height + self._output.size.height
        if self._output.fit(output_height(lines, len(self.picture.rows)), row):
            self.top.feed.look()

    def on_resize(self, _event: events.Resize) -> None:
        self.call_after_refresh(self._tell_about)

    def on_grid_moved(self, _message: Grid.Moved) -> None:
        self._tell_about()

    def subject(self) -> FleetRow | None:
        row: FleetRow | None = self.query_one(Grid).row
        return row

    # -- marks ---------------------------------------------------------------------------------------------------------

    def marked(self) -> Sequence[FleetRow]:
        """Return the marked rows that are listed. What the user does not see is not acted on."""
        return [row for row in self.picture.rows if row["id"] in self.marks] if self.marks else ()

    def unmark(self) -> None:
        self._mark(frozenset())

    def action_mark(self) -> None:
        if (row := self.subject()) is not None:
            self._mark(self.marks ^ {row["id"]})
            self.query_one(Grid).action_move(1)

    def action_mark_all(self) -> None:
        listed = {row["id"] for row in self.picture.rows}
        self._mark(self.marks - listed if listed <= self.marks else self.marks | listed)

    def _mark(self, marks: Set[str]) -> None:
        is_other, self.marks = bool(marks) != bool(self.marks), set(marks)
        grid = self.query_one(Grid)
        if is_other:
            self._title(grid)
        grid.tick()
        self._tell_listed()
        self.show_keys()

    def on_grid_chosen(self, message: Grid.Chosen) -> None:
        self.top.open_task(message.row["id"])

    # -- filter and order ----------------------------------------------------------------------------------------------

    def _want(self, wish: ListFilter) -> None:
        self.reader.wish = wish
        self._watch.again()
        self.top.feed.look()

    def action_filter(self) -> None:
        self.query_one(FilterBar).open()

    def action_drop_filter(self) -> None:
        if self.reader.wish.words or not self.marks:
            self.query_one(FilterBar).action_drop()
        else:
            self.unmark()

    def on_filter_bar_filtered(self, message: FilterBar.Filtered) -> None:
        self._want(replace(self.reader.wish, words=message.words))

    def on_filter_bar_left(self, _message: FilterBar.Left) -> None:
        self.query_one(Grid).focus()

    def action_sort(self) -> None:
        names = list(ORDERS)
        following = names[(names.index(self.reader.wish.order) + 1) % len(names)]
        self._want(replace(self.reader.wish, order=following, backwards=False))

    def action_turn_round(self) -> None:
        self._want(replace(self.reader.wish, backwards=not self.reader.wish.backwards))

    def action_everything(self) -> None:
        self._want(replace(self.reader.wish, everything=not self.reader.wish.everything))


def describe_marks(marked: int, listed: int) -> str:
    if not marked:
        return ""
    hidden = f" ({marked - listed} of them not listed, so actions leave them out)" if listed < marked else ""
    return f"{marked} marked{hidden}; "


def describe_list(picture: FleetSnapshot) -> str:
    """Return one line about the tasks that are listed, and the tasks that are left out."""
    wish, number = picture.wish, len(picture.rows)
    many = f"{number} of {picture.of} tasks have '{one_line(wish.words, 40)}'" if wish.words else _tasks(number)
    order = f"{ABOUT[wish.order]}{', backwards' if wish.backwards else ''}"
    scope = "finished ones too" if wish.everything else "unfinished or ended lately"
    left = f" (and {picture.left_out} older ones: `holdfast ps --all`)" if picture.left_out else ""
    return f"{many}, {scope}, {order}{left}"


def _tasks(number: int) -> str:
    return "1 task" if number == 1 else f"{number} tasks"


def about(row: FleetRow, why: str) -> str:
    labels = " ".join(f"{key}={value}" for key, value in row["labels"].items())
    said = f"{row['id']} {row['state']}: {why}" if why else f"{row['id']} {row['state']}"
    more = [one_line(part, 200) for part in (labels, f"in {row['repo']}" if row["repo"] else "") if part]
    return f"{one_line(said, 500)}\n{' '.join([one_line(row['prompt'], 300), *more])}"
