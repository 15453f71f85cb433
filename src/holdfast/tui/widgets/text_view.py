"""Text of any length on a screen. Lines are folded when they are added, and only visible lines are drawn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import ClassVar, NamedTuple

from rich.cells import get_character_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from holdfast.base.text import clean_text

_FOUND = Style(reverse=True, bold=True)
LONGEST = 4000  # characters of one line; the rest of the line is counted, not shown


class TextLine(NamedTuple):
    text: str
    style: str = ""


def make_printable(text: str) -> str:
    """Return a foreign line in a form that is safe to show: nothing in it moves the cursor, colours or hides text."""
    longer = len(text) - LONGEST
    shown = clean_text(text[:LONGEST]).replace("\n", " ").expandtabs(4)
    return f"{shown} … [{longer} more characters]" if longer > 0 else shown


def split_lines(text: str, style: str = "", indent: str = "") -> list[TextLine]:
    """Return the lines of a text, made printable."""
    return [TextLine(indent + make_printable(line), style) for line in text.split("\n")]


def fold(text: str, width: int, *, exact: bool = False) -> list[str]:
    """Cut the text into pieces of at most `width` cells, between words where possible.

    Later pieces keep the indent of the text. With `exact`, text is cut at the edge and no space changes.
    """
    is_plain = text.isascii()
    pieces: list[str] = []
    indent = 0 if exact else min(len(text) - len(text.lstrip(" ")), width // 4)
    while True:
        room = width if is_plain else _count_fitting(text, width)
        if len(text) <= room:
            return [*pieces, text]
        cut = room
        if not exact:
            space = text.rfind(" ", room // 2, room + 1)
            cut = space if space > 0 and text[:space].strip() else room
        pieces.append(text[:cut])
        text = text[cut:] if exact else " " * indent + text[cut:].lstrip(" ")


def _count_fitting(text: str, width: int) -> int:
    """Return the number of characters that fit into the width, at least one."""
    cells = 0
    for index, character in enumerate(text):
        cells += get_character_cell_size(character)
        if cells > width:
            return max(1, index)
    return len(text)


@lru_cache(maxsize=64)
def _style(name: str) -> Style:
    return Style.parse(name)


class Paper(ScrollView, can_focus=True, inherit_bindings=False):
    """A text that scrolls. While `follows` is true, the view stays at the end of the text.

    Lines that are added before or after do not move the visible lines.
    """

    DEFAULT_CSS = """
    Paper {
        height: 1fr; overflow-x: hidden; overflow-y: auto; scrollbar-gutter: stable; scrollbar-size-vertical: 1;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup,b", "page(-1)", "Page up", show=False),
        Binding("pagedown,space", "page(1)", "Page down", show=False),
        Binding("home,g", "first", "First line", show=False),
        Binding("end,G", "last", "Last line", show=False),
        Binding("n", "match(1)", "Next match", tooltip="the next line that has the words", show=False),
        Binding("N", "match(-1)", "Match before", tooltip="the line before that has the words", show=False),
    ]

    class Found(Message):
        """The number of lines that have the words of the search, and which one of them is shown."""

        def __init__(self, paper: Paper, words: str, number: int, of: int) -> None:
            super().__init__()
            self.paper, self.words, self.number, self.of = paper, words, number, of

    class Scrolled(Message):
        """The message that the user scrolled.

        `at_first`: the user scrolled up to the first line or tried to go further.
        `at_last`: the user scrolled down to the last line or tried to go further.
        If all lines are visible, scrolling up sets `at_last` too.
        """

        def __init__(self, paper: Paper, *, at_first: bool, at_last: bool, jumped: bool = False) -> None:
            super().__init__()
            self.paper, self.at_first, self.at_last, self.jumped = paper, at_first, at_last, jumped

    def __init__(self, *, exact: bool = False, follows: bool = False, id: str | None = None) -> None:
        super().__init__(id=id)
        self.follows = follows
        self._exact = exact
        self._lines: list[TextLine] = []
        self._open: TextLine | None = None  # an unfinished last line
        self._rows: list[TextLine] = []  # all lines, folded …
        self._open_rows: list[TextLine] = []  # … and the unfinished line, folded
        self._folded: list[int] = []  # the number of rows of each line
        self._width = 0
        self.words = ""  # of the search
        self._wanted = ""  # the same in lower case
        self._match: int | None = None  # the line of the search that is shown

    # -- content -------------------------------------------------------------------------------------------------------

    def write(self, lines: Sequence[TextLine]) -> None:
        """Replace all lines. The scroll position stays."""
        if list(lines) == self._lines and self._open is None:
            return
        self._lines, self._open, self._match = list(lines), None, None
        self._fold_all()

    def append(self, lines: Sequence[TextLine], begun: TextLine | None = None) -> None:
        self._lines.extend(lines)
        self._put(lines, at_end=True)
        self._open = begun
        self._open_rows = self._fold(begun) if begun is not None else []
        self._measure()

    def prepend(self, lines: Sequence[TextLine]) -> None:
        self._lines[:0] = lines
        self._shift_match(len(lines))
        moved = self._put(lines, at_end=False)
        self._measure(moved)

    def drop_first(self, number: int) -> None:
        rows = sum(self._folded[:number])
        self._shift_match(-number)
        del self._lines[:number], self._folded[:number], self._rows[:rows]
        self._measure(-rows)

    def drop_last(self, number: int) -> None:
        if number:
            rows = sum(self._folded[-number:])
            del self._lines[-number:], self._folded[-number:], self._rows[len(self._rows) - rows :]
        self._open, self._open_rows = None, []
        self._measure()

    @property
    def length(self) -> int:
        """The length in rows of the screen."""
        return len(self._rows) + len(self._open_rows)

    def text(self) -> str:
        return "\n".join(line.text for line in (*self._lines, *([self._open] if self._open else ())))

    # -- search --------------------------------------------------------------------------------------------------------

    @property
    def line(self) -> str:
        """The line of the search that is shown, else the first visible line."""
        if self._match is not None and self._match < len(self._lines):
            return self._lines[self._match].text
        at = self._line_at(self.scroll_offset.y)
        return self._lines[at].text if at < len(self._lines) else ""

    def search(self, words: str) -> None:
        """Show the first line with the words, from the visible ones on. No words end the search."""
        start = self._line_at(self.scroll_offset.y) if self._match is None else self._match
        self.words, self._wanted, self._match = words, words.lower(), None
        self.refresh()
        if self._wanted:
            self._show_match(start, 1)
        else:
            self.post_message(self.Found(self, "", 0, 0))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "match" or bool(self._wanted)  # without a search, `n` is a key of the screen

    def action_match(self, by: int) -> None:
        self._show_match(self._line_at(self.scroll_offset.y) if self._match is None else self._match + by, by)

    def _show_match(self, start: int, by: int) -> None:
        """Show the next line with the words in this direction, and continue at the other end."""
        found = [index for index, line in enumerate(self._lines) if self._wanted in line.text.lower()]
        if found:
            ahead = [index for index in found if (index >= start if by > 0 else index <= start)]
            self._match = (ahead or found)[0 if by > 0 else -1]
            y = sum(self._folded[: self._match]) - self.size.height // 3
            self.scroll_to(y=max(0, min(y, self.max_scroll_y)), animate=False, force=True)
            self.post_message(self.Scrolled(self, at_first=False, at_last=False))
        self.refresh()
        number = found.index(self._match) + 1 if self._match in found else 0
        self.post_message(self.Found(self, self.words, number, len(found)))

    def _line_at(self, row: int) -> int:
        """Return the index of the line that the row of the screen belongs to."""
        rows = 0
        for index, folded in enumerate(self._folded):
            rows += folded
            if rows > row:
                return index
        return len(self._folded)

    def _shift_match(self, by: int) -> None:
        if self._match is not None:
            self._match = self._match + by if self._match + by >= 0 else None

    # -- folding -------------------------------------------------------------------------------------------------------

    def on_resize(self, _event: events.Resize) -> None:
        if self.scrollable_content_region.width != self._width:
            self._fold_all()
        else:
            self._measure()

    def _fold(self, line: TextLine) -> list[TextLine]:
        if self._width <= 0 or (len(line.text) <= self._width and line.text.isascii()):
            return [line]
        return [TextLine(piece, line.style) for piece in fold(line.text, self._width, exact=self._exact)]

    def _put(self, lines: Iterable[TextLine], *, at_end: bool) -> int:
        folded = [self._fold(line) for line in lines]
        rows = [row for piece in folded for row in piece]
        counts = [len(piece) for piece in folded]
        if at_end:
            self._rows.extend(rows)
            self._folded.extend(counts)
        else:
            self._rows[:0] = rows
            self._folded[:0] = counts
        return len(rows)

    def _fold_all(self) -> None:
        self._width = self.scrollable_content_region.width
        self._rows, self._folded = [], []
        self._put(self._lines, at_end=True)
        self._open_rows = self._fold(self._open) if self._open is not None else []
        self._measure()

    def _measure(self, moved: int = 0) -> None:
        """Set the size and the scroll position. `moved` is the number of rows added above the visible rows."""
        y = self.scroll_offset.y + moved
        self.virtual_size = Size(self._width, self.length)
        if self.follows:
            y = self.max_scroll_y
        self.scroll_to(y=max(0, min(y, self.max_scroll_y)), animate=False, force=True)
        self.refresh()

    # -- drawing -------------------------------------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        width, index, base = self.size.width, self.scroll_offset.y + y, self.rich_style
        if index < len(self._rows):
            row = self._rows[index]
        elif index < self.length:
            row = self._open_rows[index - len(self._rows)]
        else:
            return Strip.blank(width, base)
        style = base + _style(row.style) if row.style else base
        return Strip(list(self._highlighted(row.text, style))).adjust_cell_length(width, base)

    def _highlighted(self, text: str, style: Style) -> Iterator[Segment]:
        """Yield the pieces of a row. The words of the search are in reverse."""
        flat, at = text.lower(), 0
        while self._wanted and len(flat) == len(text) and (found := flat.find(self._wanted, at)) >= 0:
            end = found + len(self._wanted)
            yield Segment(text[at:found], style)
            yield Segment(text[found:end], style + _FOUND)
            at = end
        yield Segment(text[at:], style)

    # -- moving --------------------------------------------------------------------------------------------------------

    def action_move(self, by: int) -> None:
        self._go(self.scroll_offset.y + by, by)

    def action_page(self, by: int) -> None:
        self._go(self.scroll_offset.y + by * max(1, self.size.height - 1), by)

    def action_first(self) -> None:
        self._go(0, -1, jumped=True)

    def action_last(self) -> None:
        self._go(self.max_scroll_y, 1, jumped=True)

    def _on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self._go(self.scroll_offset.y - 3, -1)

    def _on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self._go(self.scroll_offset.y + 3, 1)

    def _go(self, y: int, by: int, *, jumped: bool = False) -> None:
        at_first, at_last = by < 0 and y <= 0, y >= self.max_scroll_y if by > 0 else self.max_scroll_y <= 0
        self.scroll_to(y=max(0, min(y, self.max_scroll_y)), animate=False, force=True)
        self.post_message(self.Scrolled(self, at_first=at_first, at_last=at_last, jumped=jumped))
