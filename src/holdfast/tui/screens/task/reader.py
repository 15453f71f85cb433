"""Reading a run's output for the screen: in the feed's thread, one piece at a time, and no more than a screen can use.

What the page wishes it says in plain attributes; what was read goes to the page as a batch, which says how the paper
changes. Reader and paper so have the same lines, and only the reader knows where in the file they stand.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Any, NamedTuple

from holdfast.api.queries import Queries
from holdfast.api.tasks.log_window import LogWindow, Piece
from holdfast.tui.feed import NOTHING_NEW
from holdfast.tui.screens.task.scribe import Scribe
from holdfast.tui.widgets.text_view import Line, printable

Row = dict[str, Any]
MOST_LINES = 10_000  # on the paper at once
NOT_SO_OFTEN = 1.0  # seconds between two words about what is below


class Choice(NamedTuple):
    """Whose output: a run's, or what it wrote to its standard error."""

    run_id: str
    agent: str
    number: int
    is_over: bool
    errors: bool
    zone: str | None

    @property
    def source(self) -> tuple[str, bool]:
        return self.run_id, self.errors


class _Chunk(NamedTuple):
    start: int
    end: int
    lines: int


@dataclass(frozen=True)
class Batch:
    choice: Choice
    lines: tuple[Line, ...] = ()
    how: str = "append"  # or prepend, or write: anew
    begun: Line | None = None
    drop_first: int = 0
    drop_last: int = 0
    is_first: bool = False  # nothing comes before
    below: int = 0  # bytes that are not read yet
    is_gone: bool = False


class Reader:
    def __init__(self) -> None:
        self.choice: Choice | None = None  # set by the page; the rest too
        self.follows = True
        self.wish: str | None = None  # earlier, later, oldest or newest
        self._current: Choice | None = None
        self._window: LogWindow | None = None
        self._scribe = Scribe()
        self._plain = ""  # the beginning of a line of plain text
        self._chunks: deque[_Chunk] = deque()
        self._last: Batch | None = None
        self._known: tuple[object, ...] = ()  # when there was nothing more to read
        self._told_at = 0.0

    def read(self, queries: Queries) -> object:
        """A batch, or NOTHING_NEW. In the feed's thread."""
        choice, wish = self.choice, self.wish
        self.wish = None
        if choice is None:
            return NOTHING_NEW
        window = self._window
        if window is None or self._current is None or self._current.source != choice.source:
            directory = queries.run_directory(choice.run_id)
            run = {"id": choice.run_id, "number": choice.number}
            window = LogWindow(directory, choice.agent, run, choice.zone, errors=choice.errors)
            self._window, self._last, wish = window, None, wish or "newest"
        known = (choice, self.follows, window.stamp())
        if wish is None and (known == self._known or not (self.follows or self._is_time())):
            return NOTHING_NEW
        self._current, self._told_at = choice, time.monotonic()
        batch = self._batch(choice, window, wish)
        same = self._last is not None and batch == self._last and not (batch.lines or batch.drop_first)
        self._last, self._known = batch, known if same or not self.follows else ()
        return NOTHING_NEW if same else batch

    def _is_time(self) -> bool:
        """Who does not follow wants to know how much more there is, not every byte of it."""
        return time.monotonic() >= self._told_at + NOT_SO_OFTEN

    def _batch(self, choice: Choice, window: LogWindow, wish: str | None) -> Batch:
        if wish in ("newest", "oldest"):
            piece = window.newest(final=choice.is_over) if wish == "newest" else window.oldest(final=choice.is_over)
            return self._anew(choice, window, piece)
        if wish == "earlier":
            return self._before(choice, window)
        if self.follows or wish == "later":
            live = time.monotonic() if not choice.is_over else None
            found = window.later(final=choice.is_over, skips=wish is None)
            if found is not None and found.is_new:
                return self._anew(choice, window, found)
            return self._behind(choice, window, found, live)
        return self._told(choice, window, begun=self._begun(None))

    def _anew(self, choice: Choice, window: LogWindow, piece: Piece) -> Batch:
        self._scribe = Scribe()
        lines = self._scribe.transcribe(piece.rows, None)
        self._chunks = deque([_Chunk(piece.start, piece.end, len(lines))])
        return self._told(choice, window, lines, "write", begun=self._begun(piece))

    def _behind(self, choice: Choice, window: LogWindow, piece: Piece | None, live: float | None) -> Batch:
        lines = [] if piece is None else self._scribe.transcribe(piece.rows, live)
        if choice.is_over and piece is None:
            self._scribe.end()
            lines = self._scribe.take()
        if piece is not None and lines:
            self._chunks.append(_Chunk(piece.start, piece.end, len(lines)))
        elif lines:
            self._chunks.append(_Chunk(window.end, window.end, len(lines)))
        dropped = 0
        while len(self._chunks) > 1 and self._lines() - self._chunks[0].lines >= MOST_LINES:
            dropped += self._chunks.popleft().lines
            window.start = self._chunks[0].start
        return self._told(choice, window, lines, begun=self._begun(piece), drop_first=dropped)

    def _before(self, choice: Choice, window: LogWindow) -> Batch:
        piece = window.earlier()
        if piece is None:
            return self._told(choice, window, begun=self._begun(None))
        scribe = Scribe()
        lines = scribe.transcribe(piece.rows, None)
        scribe.end()
        lines += scribe.take()
        self._chunks.appendleft(_Chunk(piece.start, piece.end, len(lines)))
        dropped = 0
        while len(self._chunks) > 1 and self._lines() - self._chunks[-1].lines >= MOST_LINES:
            dropped += self._chunks.pop().lines
        if dropped:
            window.go_back_to(self._chunks[-1].end)
            self._scribe, self._plain = Scribe(), ""
        begun = None if dropped else self._begun(None)
        return self._told(choice, window, lines, "prepend", begun=begun, drop_last=dropped)

    def _lines(self) -> int:
        return sum(chunk.lines for chunk in self._chunks)

    def _begun(self, piece: Piece | None) -> Line | None:
        if piece is not None:
            self._plain = piece.begun
        return Line(printable(self._plain)) if self._plain else self._scribe.begun

    def _told(self, choice: Choice, window: LogWindow, lines: Any = (), how: str = "append", **more: Any) -> Batch:
        size = window.size()
        return Batch(
            choice,
            tuple(lines),
            how,
            is_first=window.start == 0,
            below=0 if size is None else max(0, size - window.read_to),
            is_gone=size is None,
            **more,
        )
