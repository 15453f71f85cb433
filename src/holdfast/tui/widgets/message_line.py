"""The line of messages, above the line of keys. It shows the result of the last action for some seconds.

Textual's toasts cover what is below them: at 42 columns that is most of the list.
"""

from __future__ import annotations

from rich.text import Text
from textual.widgets import Static

SHOWN_FOR = 6.0  # seconds
LONGEST = 600  # characters


class MessageLine(Static):
    """The last message. It takes no room while there is none."""

    DEFAULT_CSS = """
    MessageLine { display: none; height: auto; max-height: 3; background: $boost; text-style: bold; }
    MessageLine.-shown { display: block; }
    """

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._said = ""

    def show(self, words: str) -> None:
        if words != self._said:
            self._said = words
            self.set_class(bool(words), "-shown")
            self.update(Text(words, overflow="fold"))
