"""Agent events as lines for people: text, tools, troubles and usage. `logs` and `run` print the same lines."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from holdfast.api.format import duration, moment, took
from holdfast.cli.output.render import clean_text, is_terminal, one_line, paint

if TYPE_CHECKING:
    from holdfast.api.tasks.models import AgentEventRow, UsageRow

WIDE = 160  # columns of one line that is not for a terminal
_UNPRINTED_EVENTS = ("raw", "usage", "step", "session")
LONGEST = 20_000  # characters of one text. Longer text is cut, and a note gives the number of missing characters
LONGEST_MESSAGE = 300  # characters of an error's message
OUTPUT_LINES = 3  # last lines that are printed of the output of a failed tool
_MARKS = {"open": "▸", "ok": "✓", "bad": "✗", "warn": "!", "wait": "…", "unknown": "·"}
_PLAIN_MARKS = {"open": ">", "ok": "+", "bad": "x", "warn": "!", "wait": "~", "unknown": "-"}


class Teller:
    """A printer of agent events, one call of `tell` per event.

    `at` is the time at which the event was seen, to measure how long a tool took. None: the event is read later.
    `plain`: every line is output of a command. `hints`: name options of `logs` for what is left out.
    """

    def __init__(
        self, write: Callable[[str], object], stream: Any = None, *, plain: bool = False, hints: bool = True
    ) -> None:
        self._plain = plain
        self._hints = hints
        self._write = write
        self._stream = stream or sys.stdout
        is_utf8 = "utf" in (getattr(self._stream, "encoding", None) or "").lower()
        self._marks = _MARKS if is_utf8 else _PLAIN_MARKS
        self._width = shutil.get_terminal_size((WIDE, 24)).columns if is_terminal(self._stream) else WIDE
        self._is_inside = False  # the last piece of text has not ended its line
        self._tools: dict[str, tuple[str, float | None]] = {}  # open tools by id: description, start time
        self._held: str | None = None  # the newest tool, not printed yet: its end may follow at once
        self._aside = False  # events of standard error are being printed, after all others
        self._in: tuple[str, str] = ("", "")  # session and model
        self._last_text = ""
        self._unread_errors = 0  # lines of standard error that the adapter does not know
        self.last_line = ""

    def tell(self, event: AgentEventRow, at: float | None = None) -> None:
        if at is None and event["event"] == "tool_started" and not event["id"]:
            return  # an early announcement for live output. A later event repeats the tool with its id, and has its end
        if at is None and event.get("stream") == "err" and event["event"] not in _UNPRINTED_EVENTS and not self._aside:
            self._aside = True  # the order relative to standard output is unknown
            self._line("on its standard error:", "dim")
        getattr(self, f"_{event['event']}", self._silent)(event, at)

    def catch_up(self) -> None:
        """Print the tool that was held back to share one line with its end. Call this when there are no more events."""
        if self._held is not None:
            held, self._held = self._held, None
            self._line(f"{self._marks['open']} {self._tools[held][0]}", "cyan")

    # -- one method per event ------------------------------------------------------------------------------------

    def _session(self, event: AgentEventRow, _at: float | None) -> None:
        """Print session and model if they changed. Some CLIs repeat them on every line."""
        known, self._in = self._in, (event["id"] or self._in[0], event["model"] or self._in[1])
        if self._in != known:
            words = [f"session {one_line(self._in[0], 80)}"] if self._in[0] else []
            words += [f"model {one_line(self._in[1], 60)}"] if self._in[1] else []
            self._line(", ".join(words), "dim")

    def _text(self, event: AgentEventRow, _at: float | None) -> None:
        words = clean_text(event["text"])
        if not words.strip() and not event["is_delta"]:
            return
        if len(words) > LONGEST:
            words = f"{words[:LONGEST]}… [{len(words) - LONGEST} more characters: add --raw]"
        colour = "dim" if event["is_thought"] else ""
        if event["is_delta"]:
            self.catch_up()
            self._put(words, colour)
            self._is_inside = not words.endswith("\n")
            self.last_line = words.strip() or self.last_line
            return
        self._last_text = words.strip()
        for line in words.strip("\n").split("\n"):
            self._line(line, colour)

    def _tool_started(self, event: AgentEventRow, at: float | None) -> None:
        self.catch_up()
        what = one_line(event["input"], max(20, self._width - len(event["name"]) - 16))
        self._tools[event["id"]] = (f"{one_line(event['name'], 60)}  {what}".rstrip(), at)
        self._held = event["id"]

    def _tool_finished(self, event: AgentEventRow, at: float | None) -> None:
        if self._held == event["id"]:
            self._held = None  # its start and its end share one line
        name = one_line(event["name"], 60) or "tool"
        what, since = self._tools.pop(event["id"], (name, None))
        took = f"  ({_seconds(at - since)})" if at is not None and since is not None else ""
        mark = {True: "ok", False: "bad", None: "unknown"}[event["ok"]]
        self._line(f"{self._marks[mark]} {what}{took}", "red" if event["ok"] is False else "cyan")
        if event["ok"] is False:
            said = [line for line in clean_text(event["output"]).splitlines() if line.strip()]
            for line in said[-OUTPUT_LINES:]:
                self._line(f"    {one_line(line, self._width - 4)}", "dim")

    def _tool_refused(self, event: AgentEventRow, _at: float | None) -> None:
        what = f"{one_line(event['name'], 60)}  {one_line(event['input'], max(20, self._width - 40))}".rstrip()
        self._line(f"{self._marks['warn']} not permitted, so the agent did without it: {what}", "yellow")

    def _retry(self, event: AgentEventRow, _at: float | None) -> None:
        number = f" {event['attempt']}" if event["attempt"] is not None else ""
        number += f" of {event['most']}" if number and event["most"] is not None else ""
        delay = f" in {_seconds(event['delay'])}" if event["delay"] is not None else ""
        why = f"{_words(event['trouble'])}{_status(event)}{_new_message(event)}"
        self._line(f"{self._marks['wait']} tries again{number and ','}{number}{delay}: {why}", "yellow")

    def _limit(self, event: AgentEventRow, _at: float | None) -> None:
        used = f" {event['utilization']:.0%} used" if event["utilization"] is not None else ""
        scope = f" ({_words(event['scope'])})" if event["scope"] else ""
        if event["rejected"]:
            self._line(f"{self._marks['bad']} usage limit reached{scope}{_until(event)}", "red")
        else:
            self._line(f"{self._marks['warn']} usage limit near{scope}{used and ':'}{used}{_until(event)}", "yellow")

    def _error(self, event: AgentEventRow, _at: float | None) -> None:
        mark, colour = ("bad", "red") if event["is_fatal"] else ("warn", "yellow")
        kind = "" if event["trouble"] == "other" else f" ({_words(event['trouble'])})"
        said = one_line(event["message"], LONGEST_MESSAGE)
        if said and said == self._last_text:
            return  # some CLIs write an error two or three times
        self._last_text = said
        until = _until(event) if event["trouble"] == "usage_limit" else ""
        self._line(f"{self._marks[mark]} error{kind}{_status(event)}{said and ': '}{said}{until}", colour)

    def _result(self, event: AgentEventRow, _at: float | None) -> None:
        said = clean_text(event["text"]).strip()
        is_news = said and self._last_text not in (said, one_line(said, LONGEST_MESSAGE))
        if is_news:
            self._text({"text": said, "is_delta": False, "is_thought": False}, None)
        mark, word, colour = ("ok", "done", "green") if event["ok"] else ("bad", "ended with an error", "red")
        self._line(f"{self._marks[mark]} {word}", colour)

    def _total(self, event: AgentEventRow, _at: float | None) -> None:
        if event["input"] or event["output"] or event["cost_usd"]:
            self._line(f"it took {took(cast('UsageRow', event))}", "dim")
        self._tell_unread()

    def _raw(self, event: AgentEventRow, _at: float | None) -> None:
        text = event["text"]
        if self._plain:
            self._line(clean_text(text.rpartition("\r")[2])[:LONGEST])  # of a progress bar, what a terminal would show
        elif event["stream"] == "err":
            self._unread_errors += 1
        elif text.strip() and not text[:64].lstrip().startswith("{"):  # JSON that the CLI writes for other programs
            self._line(one_line(text, self._width), "dim")

    def _gap(self, event: AgentEventRow, _at: float | None) -> None:
        self._line(f"[{event['bytes']} bytes are not kept]", "dim")

    def _silent(self, event: AgentEventRow, at: float | None) -> None:
        """Print nothing. Of the `usage` events only the sum is printed, at the end."""

    def _step(self, event: AgentEventRow, at: float | None) -> None:
        """Print nothing. A step only shows that the model was called. Text and tools have their own events."""

    def end(self) -> None:
        """Print what is still held back. Call this when the run is over."""
        self.catch_up()
        if self._is_inside:
            self._put("\n")
            self._is_inside = False
        self._tell_unread()

    def _tell_unread(self) -> None:
        if self._unread_errors and self._hints:
            lines = "1 line" if self._unread_errors == 1 else f"{self._unread_errors} lines"
            self._line(f"[{lines} on its standard error: add --err]", "dim")
        self._unread_errors = 0

    # -- output --------------------------------------------------------------------------------------------------

    def _line(self, text: str, colour: str = "") -> None:
        self.catch_up()
        if self._is_inside:
            self._put("\n")
            self._is_inside = False
        self.last_line = text.strip() or self.last_line
        self._put(text, colour, "\n")

    def _put(self, text: str, colour: str = "", end: str = "") -> None:
        """Write one piece of text. All output goes through this method, and the TUI overrides it."""
        self._write(f"{paint(text, colour, self._stream) if colour else text}{end}")


def _seconds(seconds: float) -> str:
    return f"{max(0.0, seconds):.1f}s" if seconds < 10 else duration(seconds)


def _words(name: str) -> str:
    return one_line(name).replace("_", " ")


def _status(event: AgentEventRow) -> str:
    return f", HTTP {event['status']}" if event["status"] is not None else ""


def _new_message(event: AgentEventRow) -> str:
    """Return the message of the event, or nothing if the message only repeats trouble and status."""
    said = one_line(event["message"], LONGEST_MESSAGE)
    known = {*_words(event["trouble"]).split(), str(event["status"])}
    return f": {said}" if set(_words(said.lower()).split()) - known else ""


def _until(event: AgentEventRow) -> str:
    return f"; it resets {moment(event['resets_at'])}" if event["resets_at"] is not None else ""
