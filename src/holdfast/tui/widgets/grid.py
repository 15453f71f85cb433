"""The grid: a table of any length. Only lines on screen are rendered. Rows are read models of the api with a key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size, Spacing
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from holdfast.base.text import one_line

R = TypeVar("R", bound=Mapping[str, Any])  # a read model of the api
_REVERSE = Style(reverse=True)
_BELOW_TITLE = Spacing(1, 0, 0, 0)  # the title covers the first line


class Cell(NamedTuple):
    text: str
    style: str = ""


class Column(NamedTuple, Generic[R]):
    """A column of a grid.

    Columns with `grow` share the room that is left. If there is too little room, the column with the highest `spare` is
    left out first. A column with `spare` 0 is never left out.
    """

    title: str
    width: int
    cell: Callable[[R], str | Cell]
    grow: bool = False
    spare: int = 0
    right: bool = False


class Grid(ScrollView, Generic[R], can_focus=True):
    """A table with a cursor. When the rows change, the cursor follows its row."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"grid--title", "grid--cursor"}
    DEFAULT_CSS = """
    Grid { height: 1fr; overflow-x: hidden; }
    Grid > .grid--title { text-style: bold; background: $panel; }
    Grid > .grid--cursor { background: $primary 40%; text-style: bold; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home,g", "go(0)", "First", show=False),
        Binding("end,G", "go(-1)", "Last", show=False),
        Binding("enter", "choose", "Open", show=False),
    ]

    class Chosen(Message):
        """The message that the user pressed Enter, or clicked again on the row with the cursor."""

        def __init__(self, grid: Grid[Any], row: Any) -> None:
            super().__init__()
            self.grid, self.row = grid, row

    class Moved(Message):
        """The message that the cursor is on another row, or on a newer version of its row."""

        def __init__(self, grid: Grid[Any], row: Any) -> None:
            super().__init__()
            self.grid, self.row = grid, row

    def __init__(
        self,
        columns: Sequence[Column[R]],
        *,
        key: str = "id",
        empty: str = "Nothing here.",
        stamp: Callable[[R], object] | None = None,
        id: str | None = None,
    ) -> None:
        """Set up an empty grid. `stamp` returns what a line depends on besides its row, such as its age. `tick` redraws
        lines whose stamp changed."""
        super().__init__(id=id)
        self.columns, self._key, self._empty = tuple(columns), key, empty
        self._stamp = stamp or (lambda _row: None)
        self.rows: Sequence[R] = ()
        self._cursor = 0
        self._fitted = -1  # the width that the columns were made for
        self._widths: list[tuple[Column[R], int]] = []
        self._lines: dict[int, tuple[R, object, Strip]] = {}

    # -- rows ----------------------------------------------------------------------------------------------------------

    def show(self, rows: Sequence[R]) -> None:
        """Show these rows in this order. A row that changed must be a new dict."""
        if rows is self.rows:
            self.tick()
            return
        before = self.row
        self.rows = rows
        if before is not None:
            self._follow(before)
        self.virtual_size = Size(self.size.width, len(rows) + 1)
        self._cursor = max(0, min(self._cursor, len(rows) - 1))
        self.refresh()
        now = self.row
        if now is not before:
            self.post_message(self.Moved(self, now))

    def retitle(self, columns: Sequence[Column[R]]) -> None:
        self.columns = tuple(columns)
        self._measure()

    def say_when_empty(self, words: str) -> None:
        if words != self._empty:
            self._empty = words
            if not self.rows:
                self.refresh()

    def tick(self) -> None:
        """Redraw only the lines whose content has changed, so that a tick costs nothing when nothing changed."""
        top = self.scroll_offset.y
        for y, row in enumerate(self.on_screen()):
            known = self._lines.get(top + y)
            if known is None or known[0] is not row or known[1] != self._stamp(row):
                self.refresh(Region(0, y + 1, self.size.width, 1))

    def redraw(self) -> None:
        """Redraw all lines, because some cells depend on the time of day."""
        self._lines.clear()
        self.refresh()

    def on_screen(self) -> Sequence[R]:
        top = self.scroll_offset.y
        return self.rows[top : top + max(0, self.size.height - 1)]

    def _follow(self, before: R) -> None:
        """Move the cursor along with its row. Search from the old position to both sides: most rows move little."""
        wanted, key, rows, at = before[self._key], self._key, self.rows, self._cursor
        for away in range(max(at, len(rows) - at) + 1):
            for index in (at + away, at - away):
                if 0 <= index < len(rows) and rows[index][key] == wanted:
                    if index != at:
                        self._cursor = index
                        self._keep_in_sight()
                    return

    @property
    def row(self) -> R | None:
        """The row with the cursor."""
        return self.rows[self._cursor] if 0 <= self._cursor < len(self.rows) else None

    def point_at(self, key: object) -> bool:
        """Move the cursor to the row with that key. True if there is such a row."""
        for index, row in enumerate(self.rows):
            if row[self._key] == key:
                self._set_cursor(index)
                return True
        return False

    # -- drawing -------------------------------------------------------------------------------------------------------

    def on_resize(self, _event: events.Resize) -> None:
        self._measure()
        self.call_after_refresh(self._keep_in_sight)

    def _measure(self) -> None:
        self._fit()
        self.virtual_size = Size(self.size.width, len(self.rows) + 1)
        self.redraw()

    def _fit(self) -> None:
        self._fitted = self.size.width
        self._widths = fit_columns(self.columns, self._fitted)
        self._lines.clear()

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if width != self._fitted:  # a scroll bar appeared or vanished, for which there is no event
            self._fit()
        if y == 0:
            return self._title(width)
        index = self.scroll_offset.y + y - 1
        if index >= len(self.rows):
            words = self._empty if index == 0 and not self.rows else ""
            return Strip([Segment(set_cell_size(words, width), self.rich_style)], width)
        row = self.rows[index]
        known, stamp = self._lines.get(index), self._stamp(row)
        if known is not None and known[0] is row and known[1] == stamp:
            line = known[2]
        else:
            if len(self._lines) > 4 * max(1, self.size.height):
                self._lines.clear()
            line = self._line(row, width)
            self._lines[index] = (row, stamp, line)
        if index != self._cursor:
            return line
        return self._marked(line)

    def _marked(self, line: Strip) -> Strip:
        """Return the line with the cursor's background. It replaces the background of cells but keeps their colours."""
        mark = _REVERSE
        if not self.app.no_color:
            style = self.get_component_rich_style("grid--cursor")
            mark = Style(bgcolor=style.bgcolor, bold=style.bold, reverse=style.reverse)
        return Strip(Segment.apply_style(line, post_style=mark), line.cell_length)

    def _title(self, width: int) -> Strip:
        style = self.get_component_rich_style("grid--title")
        words = " ".join(_align(column.title, room, right=column.right) for column, room in self._widths)
        return Strip([Segment(set_cell_size(words, width), style)], width)

    def _line(self, row: R, width: int) -> Strip:
        base, segments = self.rich_style, []
        for column, room in self._widths:
            made = column.cell(row)
            cell = Cell(made) if isinstance(made, str) else made
            words = _align(one_line(cell.text[: 8 * room + 64], 2 * room + 2), room, right=column.right)
            segments.append(Segment(words, base + Style.parse(cell.style) if cell.style else base))
            segments.append(Segment(" ", base))
        return Strip(segments).adjust_cell_length(width, base)

    # -- moving --------------------------------------------------------------------------------------------------------

    def action_move(self, by: int) -> None:
        self._set_cursor(self._cursor + by)

    def action_page(self, by: int) -> None:
        self._set_cursor(self._cursor + by * max(1, self.size.height - 2))

    def action_go(self, to: int) -> None:
        self._set_cursor(to if to >= 0 else len(self.rows) + to)

    def action_choose(self) -> None:
        if (row := self.row) is not None:
            self.post_message(self.Chosen(self, row))

    def on_click(self, event: events.Click) -> None:
        index = self.scroll_offset.y + event.y - 1
        if event.y == 0 or index >= len(self.rows):
            return
        if index == self._cursor and event.chain > 1:
            self.action_choose()
        self._set_cursor(index)

    def _set_cursor(self, index: int) -> None:
        index = max(0, min(index, len(self.rows) - 1))
        if index != self._cursor:
            for moved in (self._cursor, index):
                self.refresh(Region(0, moved - self.scroll_offset.y + 1, self.size.width, 1))
            self._cursor = index
            self.post_message(self.Moved(self, self.row))
        self._keep_in_sight()

    def _keep_in_sight(self) -> None:
        self.scroll_to_region(
            Region(0, self._cursor + 1, 1, 1), animate=False, force=True, top=False, spacing=_BELOW_TITLE
        )


def fit_columns(columns: Sequence[Column[R]], width: int) -> list[tuple[Column[R], int]]:
    """Return the columns that there is room for, each with its width."""
    chosen = list(columns)
    while sum(column.width + 1 for column in chosen) > width and any(column.spare for column in chosen):
        chosen.remove(max(chosen, key=lambda column: column.spare))
    left = width - sum(column.width + 1 for column in chosen)
    growing = [column for column in chosen if column.grow]
    share, rest = divmod(max(0, left), len(growing)) if growing else (0, 0)
    return [
        (column, column.width + (share + (rest if column is growing[-1] else 0) if column.grow else 0))
        for column in chosen
    ]


def _align(text: str, room: int, *, right: bool) -> str:
    length = cell_len(text)
    if length > room:
        return set_cell_size(text, room - 1) + "…" if room > 0 else ""
    return " " * (room - length) + text if right else text + " " * (room - length)
