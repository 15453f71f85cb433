"""A window on a run's output, read in pieces towards either end, because a log can be far longer than a screen.

An adapter's `parse` has no memory, so a piece out of the middle yields the same events as in the whole log. Pieces
begin and end at the ends of lines.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from holdfast.agents.port import Stream
from holdfast.api.tasks.transcript import GrowingLines, RedactedEvents, Transcript, adapter_of, has_event_output
from holdfast.base.files import extents, open_log_file
from holdfast.secrets.redact import RedactedStream, redact_text

if TYPE_CHECKING:
    from holdfast.api.tasks.models import AgentEventRow, OpenRun, RunRow

PIECE = 64 << 10  # bytes of one piece
LONGEST = 4 << 20  # bytes that are searched for the start of a line
TOO_FAR = 1 << 20  # bytes behind the end; a reader that follows the log skips more than that
ERRORS = 16 << 10  # bytes of standard error to begin with, for agents whose adapter reads it too


class LogPiece(NamedTuple):
    """The events of one part of a log. Plain text comes as `{"event": "line", "text": …}`."""

    rows: list[AgentEventRow]
    start: int
    end: int
    begun: str = ""  # plain text: a last line that has not ended yet
    is_new: bool = False  # does not continue the piece before: the log was replaced, or a part was skipped


class LogWindow:
    """A window on one log. Earlier pieces are read from offset `start`, later pieces from offset `end`."""

    def __init__(
        self, directory: str, agent: str, run: RunRow | OpenRun, zone: str | None = None, *, errors: bool = False
    ) -> None:
        self.start = self.end = 0
        self.is_plain = errors or not has_event_output(agent)
        self._path = os.path.join(directory, "err.log" if errors else "out.log")
        self._transcript = Transcript(directory, agent, run, zone)
        self._lines = GrowingLines(self._path)
        self._file: tuple[int, int] | None = None
        aside = not self.is_plain and getattr(adapter_of(agent), "reads_errors", False)
        self._errors_path = os.path.join(directory, "err.log") if aside else None
        self._errors: GrowingLines | None = None
        self._anew()

    def stamp(self) -> tuple[object, ...]:
        """Return a stamp that does not change while nothing is written."""
        found = self._stat()
        if self._errors_path is None:
            return (found,)
        try:
            return found, os.lstat(self._errors_path).st_size
        except OSError:
            return found, None

    def size(self) -> int | None:
        """Return the length of the log in bytes. None: the log is not there yet, or no longer."""
        found = self._stat()
        return None if found is None else found[1]

    @property
    def read_to(self) -> int:
        """Return the offset up to which the log was read, including a last line that has not ended yet."""
        return self._lines.at

    def newest(self, *, final: bool) -> LogPiece:
        """Return the end of the log, independent of what was read before. `final`: nothing more will be written."""
        self._errors = None
        self._anew()
        try:
            fd = open_log_file(self._path)
        except OSError:
            self._file, self.start, self.end = None, 0, 0
            self._lines = GrowingLines(self._path)
            return LogPiece([], 0, 0, is_new=True)
        try:
            found = os.fstat(fd)
            self._file = (found.st_dev, found.st_ino)
            first, last = (extents(fd) or [(0, 0)])[-1]
            self.start = _line_start(fd, first, last)
        finally:
            os.close(fd)
        self._lines = GrowingLines(self._path, self.start)
        return self._read(last, final=final)._replace(is_new=True)

    def oldest(self, *, final: bool) -> LogPiece:
        """Return the beginning of the log."""
        found = self._stat()
        self._file = None if found is None else found[0]
        self.start = 0
        self.go_back_to(0)
        return self._read(self._until(), final=final and found is not None and found[1] <= PIECE)._replace(is_new=True)

    def later(self, *, final: bool, skips: bool = False) -> LogPiece | None:
        """Return the next piece. None: there is nothing more.

        `skips`: a reader that is far behind jumps to the end.
        """
        found = self._stat()
        if found is None:
            return None
        file, size = found
        if file != self._file or size < self._lines.at or (skips and size - self._lines.at > TOO_FAR):
            return self.newest(final=final)
        if size == self._lines.at and not (final and self._lines.begun):
            return self._only_errors(final=final)
        return self._read(self._until(), final=final and size - self._lines.at <= PIECE)

    def earlier(self) -> LogPiece | None:
        """Return the piece before `start`. None: there is no such piece, or it is no longer kept."""
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
                return LogPiece(list(self._told(end)), 0, end)
            first, last = before[-1]
            if last < end:
                rows, end = list(self._told(end - last)), last
            start = _line_start(fd, first, end)
        finally:
            os.close(fd)
        lines, flow, spoken = (
            GrowingLines(self._path, start).go_on(final=True, until=end),
            RedactedStream(),
            RedactedEvents(),
        )
        before_gap = [row for line in lines for row in self._told(line, flow, spoken)]
        rows = [*before_gap, *self._transcript.rest(spoken), *rows]
        piece = LogPiece(rows, start, self.start)
        self.start = start
        return piece

    def go_back_to(self, end: int) -> None:
        """Let the next later piece begin at offset `end`, where an earlier piece ended."""
        self.end, self._lines, self._errors = end, GrowingLines(self._path, end), None
        self._anew()

    # -- how ---------------------------------------------------------------------------------------------------------

    def _stat(self) -> tuple[tuple[int, int], int] | None:
        try:
            found = os.lstat(self._path)
        except OSError:
            return None
        return (found.st_dev, found.st_ino), found.st_size

    def _read(self, until: int, *, final: bool) -> LogPiece:
        start = self._lines.line_at
        rows = [row for line in self._lines.go_on(final=final, until=until) for row in self._told(line)]
        if final:
            rows += self._transcript.rest(self._spoken)
        self.end = self._lines.line_at
        rows += self._from_errors(final=final)
        return LogPiece(rows, start, self.end, redact_text(self._lines.begun) if self.is_plain else "")

    def _until(self) -> int:
        """Return the offset one piece further. Bytes that are no longer in the log are not counted."""
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
        """Reset the state of texts and secrets: the next line does not continue what was read before."""
        self._flow, self._spoken, self._spoken_aside = RedactedStream(), RedactedEvents(), RedactedEvents()

    def _told(
        self, line: str | int, flow: RedactedStream | None = None, spoken: RedactedEvents | None = None
    ) -> Iterator[AgentEventRow]:
        if not self.is_plain:
            yield from self._transcript.rows_of(line, Stream.OUT, spoken or self._spoken)
        elif isinstance(line, int):
            yield {"event": "gap", "bytes": line}
        else:
            yield {"event": "line", "text": (flow or self._flow).line(line)}

    def _only_errors(self, *, final: bool) -> LogPiece | None:
        rows = [*(self._transcript.rest(self._spoken) if final else ()), *self._from_errors(final=final)]
        return LogPiece(rows, self.end, self.end) if rows else None

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
    """Return the offset at which a line begins, about one piece before `end`.

    `first`: the first byte that is still in the log. The offset is in the middle of a line only if that line is
    endless.
    """
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
