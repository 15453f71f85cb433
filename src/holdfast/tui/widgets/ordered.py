"""A list of some hundreds that is filtered and put in order on screen, with a line above it that sums it up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from holdfast.base.text import one_line
from holdfast.tui.widgets.details import Details
from holdfast.tui.widgets.filter_bar import FilterBar
from holdfast.tui.widgets.grid import Grid
from holdfast.tui.widgets.list_screen import Listing, has_words

Row = dict[str, Any]
READING = "Reading …"


class OrderedListing(Listing):
    """A subclass hands all its rows to `take`, each with a `key`, and says what they add up to."""

    KEY: ClassVar[str] = "key"
    ORDERS: ClassVar[Mapping[str, Callable[[Row], Any]]] = {}  # words → the key to sort by
    DEFAULT_CSS = """
    OrderedListing #listed { height: 1; color: $text-muted; text-wrap: nowrap; text-overflow: ellipsis; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("s", "sort", "Sort", show=False, tooltip="the next order")]

    def __init__(self) -> None:
        self.rows: list[Row] | None = None  # None: not read yet
        self.order = next(iter(self.ORDERS))
        self._listed = ""
        super().__init__()

    def body(self) -> ComposeResult:
        yield FilterBar()
        yield Static(id="listed", markup=False)
        yield Grid(self.COLUMNS, key=self.KEY, empty=READING)
        yield Details()

    def summary(self, shown: Sequence[Row]) -> str:
        raise NotImplementedError

    def take(self, rows: Sequence[Row]) -> None:
        self.rows = list(rows)
        self.read_again()

    def read_again(self) -> None:
        if self.rows is None:
            return
        shown = [row for row in self.rows if not self.words or has_words(self.words, self._text(row))]
        shown.sort(key=self.ORDERS[self.order])
        same = self.query_one(Grid).rows
        self.list_rows(same if shown == same else shown)

    def _text(self, row: Row) -> str:
        """Whatever a person sees of it, and what it is made of."""
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
