"""An agent's events as lines for the screen, in the words of `holdfast logs`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.cli.output.agent_events import Teller
from holdfast.tui.widgets.text_view import Line, printable

Row = dict[str, Any]


class _Utf8:
    """Teller asks what it writes to."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return False


class Scribe(Teller):
    """`take` gives the lines that were told since; `begun` is one that goes on."""

    def __init__(self) -> None:
        super().__init__(lambda _text: None, _Utf8())
        self._told: list[Line] = []
        self._begun, self._style = "", ""

    @property
    def begun(self) -> Line | None:
        return Line(printable(self._begun), self._style) if self._begun else None

    def take(self) -> list[Line]:
        told, self._told = self._told, []
        return told

    def _put(self, text: str, colour: str = "", end: str = "") -> None:
        *whole, rest = (text + end).split("\n")
        for piece in whole:
            self._told.append(Line(printable(self._begun + piece), colour or self._style))
            self._begun = ""
        self._begun += rest
        self._style = colour if self._begun else ""

    def transcribe(self, rows: Iterable[Row], at: float | None) -> list[Line]:
        """`at`: when they were seen to happen, of what is read as it is written."""
        for row in rows:
            if row["event"] == "line":
                self._line(_last_state(row["text"]))
            else:
                self.tell(row, at)
        self.catch_up()
        return self.take()


def _last_state(text: str) -> str:
    """What a terminal would show of a line that was written over again and again: a progress bar."""
    return text.rstrip("\r").rpartition("\r")[2]
