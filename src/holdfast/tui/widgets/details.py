"""What there is to say about the row with the cursor, below a grid; scrolls where it is long (Space reads on)."""

from __future__ import annotations

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from holdfast.base.text import clean_text, one_line

LONGEST_LINE = 2000
MOST_LINES = 40  # of somebody's error text


class Details(VerticalScroll):
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
        """About what `key` names; from its top when that is something else than before."""
        if self._shown is not None and self._shown == (key, words):
            return
        is_other = self._shown is None or self._shown[0] != key
        self._shown = (key, words)
        self.query_one(Static).update(words)
        if is_other:
            self.scroll_home(animate=False)

    def read_on(self) -> None:
        """A page further; from the top again behind the end."""
        if self.scroll_offset.y >= self.max_scroll_y:
            self.scroll_home(animate=False)
        else:
            self.scroll_page_down(animate=False)


class Sheet:
    """Puts such a text together. Whatever comes in is cleaned here."""

    def __init__(self) -> None:
        self.text = Text()

    def line(self, words: object, style: str = "") -> Sheet:
        return self._begin(one_line(words, LONGEST_LINE), style)

    def fact(self, name: str, words: object, style: str = "") -> Sheet:
        """A line with a name in front; nothing where there is nothing to say."""
        if words:
            self._begin(f"{name}: ", "bold").text.append(one_line(words, LONGEST_LINE), style)
        return self

    def quote(self, words: object) -> Sheet:
        """Somebody's own lines, the last of them, each marked."""
        lines = clean_text(words).expandtabs().splitlines()[-MOST_LINES:]
        for line in lines:
            self._begin("│ ", "dim").text.append(line[:LONGEST_LINE])
        return self

    def _begin(self, words: str, style: str) -> Sheet:
        if self.text:
            self.text.append("\n")
        self.text.append(words, style)
        return self
