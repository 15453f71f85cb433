"""A screen with one list that is filtered and put in order here, and what there is to say about its row below."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from holdfast.interfaces.tui.details import Details
from holdfast.interfaces.tui.filterbar import FilterBar
from holdfast.interfaces.tui.frame import View
from holdfast.interfaces.tui.grid import Column, Grid
from holdfast.text import one_line

Row = dict[str, Any]


class Listing(View):
    """For lists of hundreds; a row has a `key`. What depends on the time of day is drawn again each second."""

    COLUMNS: ClassVar[Sequence[Column]] = ()
    ORDERS: ClassVar[Mapping[str, Callable[[Row], Any]]] = {}  # words → the key to sort by
    EMPTY: ClassVar[str] = "Nothing here."
    DEFAULT_CSS = """
    Listing #listed { height: 1; color: $text-muted; text-wrap: nowrap; text-overflow: ellipsis; }
    Listing.-short Details { display: none; }
    """
    VERTICAL_BREAKPOINTS = [(0, "-short"), (16, "-tall")]  # noqa: RUF012 - as Textual declares it
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "Filter", key_display="/", tooltip="list only what has some words"),
        Binding("s", "sort", "Sort", show=False, tooltip="the next order"),
        Binding("escape", "drop_filter", "No filter", show=False),
    ]

    def __init__(self) -> None:
        self.rows: list[Row] | None = None  # None: not read yet
        self.words = ""
        self.order = next(iter(self.ORDERS))
        self._listed = ""
        super().__init__()

    def body(self) -> ComposeResult:
        yield FilterBar()
        yield Static(id="listed", markup=False)
        yield Grid(self.COLUMNS, key="key", empty="Reading …", stamp=self.stamp)
        yield Details()

    def on_mount(self) -> None:
        self.query_one(Grid).focus()
        self.query_one(Details).display = False
        self.set_interval(1.0, self._tick)

    # -- what a subclass says ------------------------------------------------------------------------------------------

    def stamp(self, row: Row) -> object:
        """What else its line depends on: the time."""
        return None

    def about(self, row: Row) -> Text:
        """What there is to say about it below the list."""
        raise NotImplementedError

    def summary(self, shown: Sequence[Row]) -> str:
        """One line above the list."""
        raise NotImplementedError

    # -- showing -------------------------------------------------------------------------------------------------------

    def list_rows(self, rows: Sequence[Row]) -> None:
        """Those that were not there before or changed must be other dicts."""
        self.rows = list(rows)
        self.relist()

    def relist(self) -> None:
        grid, rows = self.query_one(Grid), self.rows or []
        words = self.words.lower().split()
        shown = [row for row in rows if _has(row, words)] if words else list(rows)
        shown.sort(key=self.ORDERS[self.order])
        empty = "Nothing has all these words: Escape drops the filter." if words and rows else self.EMPTY
        grid.say_when_empty(empty if self.rows is not None else "Reading …")
        if shown != grid.rows:
            grid.show(shown)
        self.tell()

    def tell(self) -> None:
        grid, details = self.query_one(Grid), self.query_one(Details)
        words = "" if self.rows is None else f"{self.summary(grid.rows)}; {self.order} first"
        if words != self._listed:
            self._listed = words
            self.query_one("#listed", Static).update(Text(one_line(words, 1000)))
        row = grid.row
        details.display = row is not None and not self.has_class("-short")
        if row is not None:
            details.show(row["key"], self.about(row))

    def _tick(self) -> None:
        if self.is_current:
            self.query_one(Grid).tick()
            self.tell()

    def on_grid_moved(self, _message: Grid.Moved) -> None:
        self.tell()

    def subject(self) -> Row | None:
        return self.query_one(Grid).row

    # -- what is wanted ------------------------------------------------------------------------------------------------

    def action_sort(self) -> None:
        names = list(self.ORDERS)
        self.order = names[(names.index(self.order) + 1) % len(names)]
        self.relist()

    def action_filter(self) -> None:
        self.query_one(FilterBar).open()

    def action_drop_filter(self) -> None:
        self.query_one(FilterBar).action_drop()

    def on_filter_bar_filtered(self, message: FilterBar.Filtered) -> None:
        self.words = message.words
        self.relist()

    def on_filter_bar_left(self, _message: FilterBar.Left) -> None:
        self.query_one(Grid).focus()


def _has(row: Row, words: Sequence[str]) -> bool:
    text = " ".join(str(value) for value in row.values()).lower()
    return all((word[1:] not in text) if word.startswith("!") and len(word) > 1 else word in text for word in words)
