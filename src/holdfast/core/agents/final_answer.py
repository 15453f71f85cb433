"""What an agent answered in the end, read from what it wrote: pure, bounded, however much that was.

Its own word of the result, where it has one; else the last text that it said; and of an agent that tells no events, the
end of its standard output. An answer is never evidence of anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from holdfast.core.agents.events import AgentEvent, Failure, Result, Retry, StepStarted, Text, ToolFinished, ToolStarted
from holdfast.core.workflows.result import MOST_TEXT

Parse = Callable[[str], Sequence[AgentEvent]]


class _End:
    """The end of a text that comes in pieces: each is copied a few times at most, whatever their number."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._pieces: list[str] = []
        self._length = 0
        self.left_out = 0  # characters at the beginning that are not kept

    def add(self, piece: str) -> None:
        self._pieces.append(piece)
        self._length += len(piece)
        if self._length > 4 * self._most:
            self._cut()

    @property
    def has_some(self) -> bool:
        return self._length > 0

    def _cut(self) -> None:
        whole = "".join(self._pieces)
        kept = whole[-self._most :]
        self.left_out += len(whole) - len(kept)
        self._pieces, self._length = [kept], len(kept)

    def __str__(self) -> str:
        if self._length > self._most:
            self._cut()
        return "".join(self._pieces)


class Answer:
    """Fed with every event of one run, in order."""

    def __init__(self, most: int = MOST_TEXT) -> None:
        self._most = most
        self._said = _End(most)  # the text that is being said
        self._is_open = False  # its last piece may go on on the same line
        self._last = ""  # the text that was said before it
        self._concluded = ""  # what it said of the result, or just before
        self._in_words = ""  # a result that is none: only where nothing else was said

    def add(self, event: AgentEvent) -> None:
        match event:
            case Text(is_thought=False):
                self._say(event)
            case Result(ok=True, text=text) if text.strip():
                self._end_of_text()
                self._concluded = self._bounded(text)
            case Result():
                self._end_of_text()
                self._concluded = self._last or self._concluded
                self._in_words = self._bounded(event.text) or self._in_words
            case Text() | StepStarted() | ToolStarted() | ToolFinished() | Failure() | Retry():
                self._end_of_text()

    def line_between(self) -> None:
        """An empty line, of an agent whose words are plain text."""
        if self._said.has_some:
            self._said.add("\n")

    def anew(self) -> None:
        """All that was said so far was no answer: a banner."""
        self._said, self._last, self._is_open = _End(self._most), "", False

    @property
    def text(self) -> str:
        self._end_of_text()
        return storable(self._concluded or self._last or self._in_words)

    def _say(self, event: Text) -> None:
        goes_on = self._is_open and event.is_delta
        if not goes_on and self._said.has_some:
            self._said.add("\n")
        self._said.add(event.text)
        self._is_open = event.is_delta

    def _end_of_text(self) -> None:
        text = _marked(str(self._said), self._said.left_out)
        self._said, self._is_open = _End(self._most), False
        self._last = text if text.strip() else self._last

    def _bounded(self, text: str) -> str:
        kept = text.strip()[-self._most :]
        return _marked(kept, len(text.strip()) - len(kept))


def answer_of(lines: Iterable[str], parse: Parse | None, is_banner: Callable[[str], bool] = lambda _line: False) -> str:
    """`parse`: None for an agent whose output is only bytes to us. Never raises for what the lines are."""
    if parse is None:
        return _end_of(lines)
    answer = Answer()
    for line in lines:
        if is_banner(line):
            answer.anew()
            continue
        events = parse(line)
        if not events and not line.strip():
            answer.line_between()
        for event in events:
            answer.add(event)
    return answer.text


def _end_of(lines: Iterable[str]) -> str:
    end = _End(MOST_TEXT)
    for line in lines:
        end.add(f"{line}\n")
    return storable(_marked(str(end), end.left_out))


def _marked(text: str, left_out: int) -> str:
    return f"[… {left_out} characters before this are not kept]\n{text}" if left_out else text


def storable(text: str) -> str:
    """As a store and a terminal's reader can take it: an agent's JSON may hold halves of characters, and NULs."""
    return text.strip().replace("\0", "�").encode(errors="replace").decode()
