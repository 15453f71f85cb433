"""The details of the row with the cursor, below a grid. Long details scroll: Space shows the next page."""

from __future__ import annotations

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from holdfast.base.text import clean_text, one_line

LONGEST_LINE = 2000
MOST_LINES = 40  # of a quoted error text


class Details(VerticalScroll):
    """The area below a grid that shows the details of one row."""

    DEFAULT_CSS = """
    Details { height: auto; max-height: 60%; border-top: solid $primary; padding: 0 1; }
    Details Static { height: auto; width: 100%; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._shown: tuple[object, Text] | None = None

    def compose(self) -> ComposeResult:
        yield Static()

    def show(self, key: object, words: Text) -> None:
        """Show the details of the row with this key. Scroll to the top if the key differs from before."""
        if self._shown is not None and self._shown == (key, words):
            return
        is_other = self._shown is None or self._shown[0] != key
        self._shown = (key, words)
        self.query_one(Static).update(words)
        if is_other:
            self.scroll_home(animate=False)

    def read_on(self) -> None:
        """Scroll one page down. At the end, go back to the top."""
        if self.scroll_offset.y >= self.max_scroll_y:
            self.scroll_home(animate=False)
        else:
            self.scroll_page_down(animate=False)


class Sheet:
    """A builder for the text of details. It cleans every text that is added."""

    def __init__(self) -> None:
        self.text = Text()

    def line(self, words: object, style: str = "") -> Sheet:
        return self._begin(one_line(words, LONGEST_LINE), style)

    def fact(self, name: str, words: object, style: str = "") -> Sheet:
        """Add a line with a name in front. Add nothing if there are no words."""
        if words:
            self._begin(f"{name}: ", "bold").text.append(one_line(words, LONGEST_LINE), style)
        return self

    def quote(self, words: object) -> Sheet:
        """Add the last lines of a foreign text, each with a mark in front."""
        lines = clean_text(words).expandtabs().splitlines()[-MOST_LINES:]
        for line in lines:
            self._begin("│ ", "dim").text.append(line[:LONGEST_LINE])
        return self

    def _begin(self, words: str, style: str) -> Sheet:
        if self.text:
            self.text.append("\n")
        self.text.append(words, style)
        return self
