"""A run's output as events, with the same names for every agent. `logs`, `run` and `show` read them.

Events are plain dicts with stable names (docs/reference/json.md). Nothing is dropped. A line that an adapter does not
understand becomes `raw`. Bytes that are no longer on disk become `gap`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from holdfast.agents.port import AgentAdapter, Stream
from holdfast.base.errors import NotFound
from holdfast.base.files import data_blocks, open_log_file
from holdfast.config.known_secrets import register_supervisor_secrets
from holdfast.core.agents.digest import RunDigest
from holdfast.core.agents.events import (
    AgentEvent,
    AgentFailure,
    AgentResult,
    AgentText,
    LimitNotice,
    RawLine,
    Retry,
    SessionStarted,
    StepStarted,
    ToolFinished,
    ToolRefused,
    ToolStarted,
    Usage,
)
from holdfast.core.agents.limit_reset import parse_reset_time
from holdfast.secrets.redact import RedactedStream, redact_values

if TYPE_CHECKING:
    from holdfast.api.queries import Queries
    from holdfast.api.tasks.models import AgentEventRow, OpenRun, RunRow, TotalsRow

LONGEST_LINE = 16 << 20  # bytes; of a longer line, only the length is reported
MOST_CHARACTERS = 64 * 1024  # characters of one text; a longer text is clipped, and marked as clipped
_RETURN = ord("\r")

NAMES: dict[type, str] = {
    SessionStarted: "session",
    StepStarted: "step",
    AgentText: "text",
    ToolStarted: "tool_started",
    ToolFinished: "tool_finished",
    ToolRefused: "tool_refused",
    Usage: "usage",
    Retry: "retry",
    LimitNotice: "limit",
    AgentFailure: "error",
    AgentResult: "result",
    RawLine: "raw",
}


def adapter_of(agent: str) -> AgentAdapter | None:
    """Return the adapter of an agent. None: another version added the task, and this one does not know its agent."""
    from holdfast.agents.registry import AGENTS

    return AGENTS.get(agent)


def has_event_output(agent: str) -> bool:
    """True if the adapter reads events from the agent's output. Otherwise the output is plain text."""
    adapter = adapter_of(agent)
    return adapter is not None and adapter.reads_events


class Transcript:
    """The events of one run, from its beginning. Each call of `go_on` yields the events written since the last call.

    `with_errors`: also the lines of standard error of an agent whose events do not come from there.
    """

    def __init__(
        self,
        directory: str,
        agent: str,
        run: RunRow | OpenRun,
        zone: str | None = None,
        *,
        with_errors: bool = False,
    ) -> None:
        self.run_id = str(run["id"])
        self.digest = RunDigest()
        self._number = run["number"]
        self._zone = zone
        self._ended_at = run.get("ended_at")
        adapter = adapter_of(agent)
        self._parse: Callable[[str, Stream], Sequence[AgentEvent]] = _raw if adapter is None else adapter.parse
        self._streams = [(Stream.OUT, GrowingLines(os.path.join(directory, "out.log")))]
        if getattr(adapter, "reads_errors", False) or with_errors:
            self._streams.append((Stream.ERR, GrowingLines(os.path.join(directory, "err.log"))))
        self._is_over = False
        self._spoken = RedactedEvents()
        register_supervisor_secrets(os.path.dirname(os.path.dirname(directory)))

    def go_on(self, *, final: bool) -> Iterator[AgentEventRow]:
        """Yield the events that were written since the last call.

        `final`: nothing more will be written. Then a last line without an end counts, and a total closes the run.
        """
        for stream, lines in self._streams:
            for line in lines.go_on(final=final):
                yield from self.rows_of(line, stream)
        if final and not self._is_over:
            self._is_over = True
            yield from self.rest()
            total = totals(self.digest)
            if total is not None:
                yield self._row("total", Stream.OUT, **total)

    def measure(self) -> Iterator[bool]:
        """Read on for the digest alone, without events.

        Yield True for each line, so that the caller can stop at any line.
        """
        for stream, lines in self._streams:
            for line in lines.go_on(final=False):
                if isinstance(line, str):
                    for event in self._parse(line, stream):
                        self.digest.add(event) if stream is Stream.OUT else self.digest.add_from_stderr(event)
                yield True

    def rows_of(self, line: str | int, stream: Stream, spoken: RedactedEvents | None = None) -> Iterator[AgentEventRow]:
        """Yield the events of one line. A number stands for bytes that are not kept.

        `spoken`: the state of a reader that reads in another order.
        """
        if isinstance(line, int):
            yield self._row("gap", stream, bytes=line)
            return
        for event in self._parse(line, stream):
            self.digest.add(event) if stream is Stream.OUT else self.digest.add_from_stderr(event)
            for said in (spoken or self._spoken).without_secrets(event):
                yield self._told(said, stream)

    def rest(self, spoken: RedactedEvents | None = None) -> Iterator[AgentEventRow]:
        """Yield the last word of a text that comes in pieces, once the word is complete."""
        for said in (spoken or self._spoken).end():
            yield self._told(said, Stream.OUT)

    def _told(self, event: AgentEvent, stream: Stream) -> AgentEventRow:
        found = redact_values({field.name: getattr(event, field.name) for field in fields(event)})
        if "reset" in found:
            hint, now = found.pop("reset"), self._ended_at or time.time()
            if not isinstance(event, Retry):  # "in 2 s" from when? A retry has its own delay
                found["resets_at"] = None if hint is None else parse_reset_time(hint, now, self._zone)
        clipped = {name: value[:MOST_CHARACTERS] for name, value in found.items() if _is_long(value)}
        if clipped:
            found |= clipped
            found["clipped"] = True
        return self._row(NAMES[type(event)], stream, **found)

    def _row(self, name: str, stream: Stream, /, **more: object) -> AgentEventRow:
        return {"event": name, "run": self._number, "stream": str(stream), **more}


def read_log(queries: Queries, task_id: str, number: int | None = None) -> Iterator[AgentEventRow]:
    """Yield the events of run `number`, as far as they are written. Without `number`, yield those of the newest run."""
    task = queries.task(task_id)
    runs = [run for run in task["runs"] if number in (None, run["number"])]
    if not runs:
        which = "no run yet" if number is None else f"no run {number}; it had {len(task['runs'])}"
        raise NotFound(f"Task {task_id} has {which}; see `holdfast why {task_id}`.")
    run = runs[-1]
    directory = queries.run_directory(run["id"])
    yield from Transcript(directory, run["agent"] or task["agent"], run, task["time_zone"]).go_on(
        final=run["ended_at"] is not None
    )


class RedactedEvents:
    """Redaction of events in the order of output. A secret may span pieces of one text, or lines of raw output."""

    def __init__(self) -> None:
        self._flow = RedactedStream()
        self._open: AgentText | None = None  # the last piece of the text whose end is held back

    def without_secrets(self, event: AgentEvent) -> Iterator[AgentEvent]:
        if isinstance(event, AgentText) and event.is_delta:
            if self._open is not None and self._open.is_thought != event.is_thought:
                yield from self.end()
            self._open = event
            text = self._flow.add(event.text)
            if text or not event.text:
                yield replace(event, text=text)
            return
        yield from self.end()
        yield replace(event, text=self._flow.line(event.text)) if isinstance(event, RawLine) else event

    def end(self) -> Iterator[AgentEvent]:
        piece, self._open = self._open, None
        text = self._flow.end()
        if piece is not None and text:
            yield replace(piece, text=text)


def totals(digest: RunDigest) -> TotalsRow | None:
    """Return the usage that a run's agent reported. None: it reported none."""
    usage = digest.usage
    if usage is None:
        return None
    return {
        "session_id": digest.session_id,
        "model": usage.model or None,
        "input": usage.input,
        "output": usage.output,
        "cached": usage.cached,
        "reasoning": usage.reasoning,
        "cost_usd": usage.cost_usd,
        "turns": usage.turns,
    }


def _raw(line: str, _stream: Stream) -> Sequence[AgentEvent]:
    return (RawLine(text=line),)


def _is_long(value: object) -> bool:
    return isinstance(value, str) and len(value) > MOST_CHARACTERS


class GrowingLines:
    """A growing file, line by line. A number takes the place of lines that cannot be read: it counts the bytes that
    were deleted or skipped."""

    def __init__(self, path: str, at: int = 0) -> None:
        self._path = path
        self._at = at
        self._rest = bytearray()  # the beginning of a line whose end is not there yet
        self._overlong = 0  # bytes of a line that is too long to be read

    @property
    def begun(self) -> str:
        """Return the last line if it has not ended yet, as far as it was written and is not too long.

        For a line that is overwritten again and again (a progress bar), return what a terminal would show.
        """
        end = len(self._rest)
        while end and self._rest[end - 1] == _RETURN:
            end -= 1
        start = self._rest.rfind(b"\r", 0, end) + 1
        return self._rest[start : min(end, start + MOST_CHARACTERS)].decode(errors="replace")

    @property
    def at(self) -> int:
        """Return the offset up to which the file was read."""
        return self._at

    @property
    def line_at(self) -> int:
        """Return the offset of the line that has begun, or of the next line."""
        return self._at - len(self._rest) - self._overlong

    def go_on(self, *, final: bool, until: int | None = None) -> Iterator[str | int]:
        """Yield the lines that were written since the last call, but nothing beyond the byte `until`."""
        try:
            fd = open_log_file(self._path)
        except OSError:
            return  # not there yet, or gone: the agent can remove it
        try:
            for offset, found in data_blocks(fd, self._at):
                if until is not None and offset >= until:
                    break
                block = found if until is None else found[: until - offset]
                missing, self._at = offset - self._at, offset + len(block)
                if missing > 0:
                    yield from self._end_of_line()
                    yield missing
                yield from self._lines(block)
        finally:
            os.close(fd)
        if final:
            yield from self._end_of_line()

    def _lines(self, block: bytes) -> Iterator[str | int]:
        *whole, rest = block.split(b"\n")
        for piece in whole:
            self._add(piece)
            if not self._rest and not self._overlong:
                yield ""
            yield from self._end_of_line()
        self._add(rest)

    def _add(self, piece: bytes) -> None:
        if self._overlong or len(self._rest) + len(piece) > LONGEST_LINE:
            self._overlong += len(self._rest) + len(piece)
            self._rest.clear()
        else:
            self._rest += piece

    def _end_of_line(self) -> Iterator[str | int]:
        if self._overlong:
            yield self._overlong
        elif self._rest:
            yield self._rest.decode(errors="replace").rstrip("\r")
        self._rest.clear()
        self._overlong = 0
