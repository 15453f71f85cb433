"""A part of a run's output, read in pieces towards either end: logs are as long as agents like, and screens are not.

An adapter's `parse` has no memory, so a piece out of the middle says what it would have said in the whole. Pieces begin
and end where lines do.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from holdfast.agents.port import Stream
from holdfast.api.tasks.transcript import GrowingLines, Spoken, Transcript, adapter_of, speaks_events
from holdfast.base.files import extents, open_log_file
from holdfast.secrets.redact import RedactedStream, redact_text

if TYPE_CHECKING:
    from holdfast.api.tasks.models import AgentEventRow, OpenRun, RunRow

PIECE = 64 << 10  # bytes of one piece
LONGEST = 4 << 20  # bytes that are searched for the beginning of a line
TOO_FAR = 1 << 20  # bytes behind the end: who follows leaves them out
ERRORS = 16 << 10  # bytes of standard error to begin with, of agents that speak there too


class Piece(NamedTuple):
    """Events, or of an agent that writes plain text `{"event": "line", "text": …}`."""

    rows: list[AgentEventRow]
    start: int
    end: int
    begun: str = ""  # plain text: a last line whose end is not there yet
    is_new: bool = False  # not behind the piece before it: what was shown is not there any more, or left behind


class LogWindow:
    """`start` and `end` are where the next pieces are read from: earlier ones, and later ones."""

    def __init__(
        self, directory: str, agent: str, run: RunRow | OpenRun, zone: str | None = None, *, errors: bool = False
    ) -> None:
        self.start = self.end = 0
        self.is_plain = errors or not speaks_events(agent)
        self._path = os.path.join(directory, "err.log" if errors else "out.log")
        self._transcript = Transcript(directory, agent, run, zone)
        self._lines = GrowingLines(self._path)
        self._file: tuple[int, int] | None = None
        aside = not self.is_plain and getattr(adapter_of(agent), "reads_errors", False)
        self._errors_path = os.path.join(directory, "err.log") if aside else None
        self._errors: GrowingLines | None = None
        self._anew()

    def stamp(self) -> tuple[object, ...]:
        """The same as before: nothing was written since."""
        found = self._stat()
        if self._errors_path is None:
            return (found,)
        try:
            return found, os.lstat(self._errors_path).st_size
        except OSError:
            return found, None

    def size(self) -> int | None:
        """How long the log is; None: it is not there, or not any more."""
        found = self._stat()
        return None if found is None else found[1]

    @property
    def read_to(self) -> int:
        """With the beginning of a line whose end is not there yet."""
        return self._lines.at

    def newest(self, *, final: bool) -> Piece:
        """The end of the log, whatever was read before. `final`: nothing more will be written."""
        self._errors = None
        self._anew()
        try:
            fd = open_log_file(self._path)
        except OSError:
            self._file, self.start, self.end = None, 0, 0
            self._lines = GrowingLines(self._path)
            return Piece([], 0, 0, is_new=True)
        try:
            found = os.fstat(fd)
            self._file = (found.st_dev, found.st_ino)
            first, last = (extents(fd) or [(0, 0)])[-1]
            self.start = _line_start(fd, first, last)
        finally:
            os.close(fd)
        self._lines = GrowingLines(self._path, self.start)
        return self._read(last, final=final)._replace(is_new=True)

    def oldest(self, *, final: bool) -> Piece:
        """The beginning of the log."""
        found = self._stat()
        self._file = None if found is None else found[0]
        self.start = 0
        self.go_back_to(0)
        return self._read(self._until(), final=final and found is not None and found[1] <= PIECE)._replace(is_new=True)

    def later(self, *, final: bool, skips: bool = False) -> Piece | None:
        """Return the next piece. None: there is nothing more. `skips`: a reader that is far behind continues at the
        end."""
        found = self._stat()
        if found is None:
            return None
        file, size = found
        if file != self._file or size < self._lines.at or (skips and size - self._lines.at > TOO_FAR):
            return self.newest(final=final)
        if size == self._lines.at and not (final and self._lines.begun):
            return self._only_errors(final=final)
        return self._read(self._until(), final=final and size - self._lines.at <= PIECE)

    def earlier(self) -> Piece | None:
        """Return the piece before. None: there is none, or it is not kept."""
        end, rows = self.start, []
        if end == 0:
            return None
        try:
            fd = open_log_file(self._path)
        except OSError:
            return None
        try:
            before = [(first, last) for first, last in extents(fd) if first < end]
            if not before:
                self.start = 0
                return Piece(list(self._told(end)), 0, end)
            first, last = before[-1]
            if last < end:
                rows, end = list(self._told(end - last)), last
            start = _line_start(fd, first, end)
        finally:
            os.close(fd)
        lines, flow, spoken = GrowingLines(self._path, start).go_on(final=True, until=end), RedactedStream(), Spoken()
        before_gap = [row for line in lines for row in self._told(line, flow, spoken)]
        rows = [*before_gap, *self._transcript.rest(spoken), *rows]
        piece = Piece(rows, start, self.start)
        self.start = start
        return piece

    def go_back_to(self, end: int) -> None:
        """The next later piece begins there: where an earlier one ended."""
        self.end, self._lines, self._errors = end, GrowingLines(self._path, end), None
        self._anew()

    # -- how ---------------------------------------------------------------------------------------------------------

    def _stat(self) -> tuple[tuple[int, int], int] | None:
        try:
            found = os.lstat(self._path)
        except OSError:
            return None
        return (found.st_dev, found.st_ino), found.st_size

    def _read(self, until: int, *, final: bool) -> Piece:
        start = self._lines.line_at
        rows = [row for line in self._lines.go_on(final=final, until=until) for row in self._told(line)]
        if final:
            rows += self._transcript.rest(self._spoken)
        self.end = self._lines.line_at
        rows += self._from_errors(final=final)
        return Piece(rows, start, self.end, redact_text(self._lines.begun) if self.is_plain else "")

    def _until(self) -> int:
        """A piece further: what is not kept is not counted."""
        at = self._lines.at
        try:
            fd = open_log_file(self._path)
        except OSError:
            return at
        try:
            return next((max(first, at) for first, last in extents(fd) if last > at), at) + PIECE
        finally:
            os.close(fd)

    def _anew(self) -> None:
        """Not behind what was read before."""
        self._flow, self._spoken, self._spoken_aside = RedactedStream(), Spoken(), Spoken()

    def _told(
        self, line: str | int, flow: RedactedStream | None = None, spoken: Spoken | None = None
    ) -> Iterator[AgentEventRow]:
        if not self.is_plain:
            yield from self._transcript.rows_of(line, Stream.OUT, spoken or self._spoken)
        elif isinstance(line, int):
            yield {"event": "gap", "bytes": line}
        else:
            yield {"event": "line", "text": (flow or self._flow).line(line)}

    def _only_errors(self, *, final: bool) -> Piece | None:
        rows = [*(self._transcript.rest(self._spoken) if final else ()), *self._from_errors(final=final)]
        return Piece(rows, self.end, self.end) if rows else None

    def _from_errors(self, *, final: bool) -> list[AgentEventRow]:
        if self._errors_path is None:
            return []
        if self._errors is None:
            try:
                size = os.lstat(self._errors_path).st_size
            except OSError:
                return []
            self._errors = GrowingLines(self._errors_path, max(0, size - ERRORS))
        lines = self._errors.go_on(final=final)
        rows = [row for line in lines for row in self._transcript.rows_of(line, Stream.ERR, self._spoken_aside)]
        return [*rows, *self._transcript.rest(self._spoken_aside)]


def _line_start(fd: int, first: int, end: int) -> int:
    """Where a line begins, about one piece before `end`; `first` is as far as the log is kept there. In the midst of a
    line only if that is endless."""
    length = PIECE
    while True:
        at = max(first, end - length)
        if at == 0:
            return 0
        newline = os.pread(fd, end - at, at).find(b"\n", 0, end - at - 1)
        if newline >= 0:
            return at + newline + 1
        if at == first or length >= LONGEST:
            return at
        length *= 4
