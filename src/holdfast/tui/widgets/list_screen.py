"""Screens with a list, and the details of the row with the cursor below the list.

`OrderedListing` is for lists of some hundred rows: it filters and sorts them itself, below a line that sums them up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.timer import Timer
from textual.widgets import Static

from holdfast.base.text import one_line
from holdfast.tui.widgets.details import Details
from holdfast.tui.widgets.filter_bar import FilterBar
from holdfast.tui.widgets.grid import Column, Grid
from holdfast.tui.widgets.screen import View

TICK = 5.0  # seconds between two drawings of ages and times


def has_words(words: str, text: str) -> bool:
    """True if the text has every word, and no word that is marked by an exclamation mark."""
    # A lone "!" is ignored: the user is about to type its word.
    flat, wanted = text.lower(), [word for word in words.lower().split() if word != "!"]
    return all((word[1:] not in flat) if word[0] == "!" else word in flat for word in wanted)


class Listing(View):
    """Base of screens with a list.

    A subclass has columns, passes rows to `list_rows`, returns the details of a row from `sheet_of`, and reads again
    when the filter (`words`) changes.
    """

    AUTO_FOCUS = "Grid"
    DEFAULT_CSS = """
    Listing Grid { min-height: 3; }
    Listing.-short Details { max-height: 40%; }
    """
    COLUMNS: ClassVar[tuple[Column[Any], ...]] = ()
    KEY: ClassVar[str] = "id"
    EMPTY: ClassVar[str] = "Nothing here."
    NO_TASK: ClassVar[str] = "It has no task."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "slash",
            "filter",
            "Filter",
            key_display="/",
            priority=True,
            tooltip="list only what has some words",
            show=False,
        ),
        Binding("space", "read_on", "Read on", tooltip="scroll what stands below the list", show=False),
        Binding("escape", "drop_filter", "No filter", show=False),
    ]

    def __init__(self) -> None:
        self.words = ""
        self._clock: Timer | None = None
        super().__init__()

    def body(self) -> ComposeResult:
        yield FilterBar()
        yield Grid(self.COLUMNS, key=self.KEY, empty="Reading …")
        yield Details()

    def sheet_of(self, row: Any) -> Text:
        raise NotImplementedError

    def read_again(self) -> None:
        """Read again after a change of the filter."""
        raise NotImplementedError

    def subject(self) -> Any:
        return self.query_one(Grid).row

    # -- showing -------------------------------------------------------------------------------------------------------

    def list_rows(self, rows: Sequence[Any], empty: str = "") -> None:
        """Show the rows. `empty` is the text for an empty list, if it differs from `EMPTY`."""
        grid, none = self.query_one(Grid), "Nothing has all these words: Escape drops the filter."
        grid.say_when_empty(none if self.words else empty or self.EMPTY)
        grid.show(rows)
        self.tell()

    def tell(self) -> None:
        row, details = self.subject(), self.query_one(Details)
        details.display = row is not None
        if row is not None:
            details.show(row[self.KEY], self.sheet_of(row))

    def on_mount(self) -> None:
        self.query_one(Grid).focus()
        self._clock = self.set_interval(TICK, self._tick)

    def on_screen_resume(self) -> None:
        if self._clock is not None:
            self._tick()
            self._clock.resume()

    def on_screen_suspend(self) -> None:
        if self._clock is not None:
            self._clock.pause()

    def _tick(self) -> None:
        if self.subject() is not None:
            self.query_one(Grid).redraw()
            self.tell()

    # -- keys ----------------------------------------------------------------------------------------------------------

    def on_grid_moved(self, _message: Grid.Moved) -> None:
        self.tell()

    def on_grid_chosen(self, message: Grid.Chosen) -> None:
        if message.row["task"]:
            self.top.open_task(message.row["task"])
        else:
            self.notify(self.NO_TASK)

    def action_read_on(self) -> None:
        self.query_one(Details).read_on()

    def action_filter(self) -> None:
        self.query_one(FilterBar).open()

    def action_drop_filter(self) -> None:
        self.query_one(FilterBar).action_drop()

    def on_filter_bar_filtered(self, message: FilterBar.Filtered) -> None:
        self.words = message.words
        self.read_again()

    def on_filter_bar_left(self, _message: FilterBar.Left) -> None:
        self.query_one(Grid).focus()


READING = "Reading …"


class OrderedListing(Listing):
    """A list that filters and sorts its rows on screen.

    A subclass passes all its rows to `take`, each with a `key`, and returns the line above the list from `summary`.
    """

    KEY: ClassVar[str] = "key"
    ORDERS: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}  # words → the key to sort by
    DEFAULT_CSS = """
    OrderedListing #listed { height: 1; color: $text-muted; text-wrap: nowrap; text-overflow: ellipsis; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("s", "sort", "Sort", show=False, tooltip="the next order")]

    def __init__(self) -> None:
        self.rows: list[Any] | None = None  # None: not read yet
        self.order = next(iter(self.ORDERS))
        self._listed = ""
        super().__init__()

    def body(self) -> ComposeResult:
        yield FilterBar()
        yield Static(id="listed", markup=False)
        yield Grid(self.COLUMNS, key=self.KEY, empty=READING)
        yield Details()

    def summary(self, shown: Sequence[Any]) -> str:
        raise NotImplementedError

    def take(self, rows: Sequence[Any]) -> None:
        self.rows = list(rows)
        self.read_again()

    def read_again(self) -> None:
        if self.rows is None:
            return
        shown = [row for row in self.rows if not self.words or has_words(self.words, self._text(row))]
        shown.sort(key=self.ORDERS[self.order])
        same = self.query_one(Grid).rows
        self.list_rows(same if shown == same else shown)

    def _text(self, row: Any) -> str:
        """Return the text that the filter searches: the cells of the row, and its texts and dicts."""
        seen = (column.cell(row) for column in self.COLUMNS)
        made = (str(value) for value in row.values() if isinstance(value, (str, dict)))
        return " ".join((*(cell if isinstance(cell, str) else cell.text for cell in seen), *made))

    def tell(self) -> None:
        words = "" if self.rows is None else f"{self.summary(self.query_one(Grid).rows)}; {self.order} first"
        if words != self._listed:
            self._listed = words
            self.query_one("#listed", Static).update(Text(one_line(words, 1000)))
        super().tell()

    def action_sort(self) -> None:
        names = list(self.ORDERS)
        self.order = names[(names.index(self.order) + 1) % len(names)]
        self.read_again()
