"""The final answer of an agent, read from its output. Pure, and bounded however much the agent wrote.

The answer is the text of the agent's result, if it has one. Otherwise it is the last text of the model. For an agent
without events, it is the end of the standard output. An answer is never evidence of anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from holdfast.core.agents.events import (
    AgentEvent,
    AgentFailure,
    AgentResult,
    AgentText,
    Retry,
    StepStarted,
    ToolFinished,
    ToolStarted,
)
from holdfast.core.workflows.result import MOST_TEXT

Parse = Callable[[str], Sequence[AgentEvent]]


class _TextTail:
    """The end of a text that arrives in pieces. Each piece is copied a few times at most, however many pieces
    arrive."""

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


class FinalAnswer:
    """The answer of one run. Every event of the run is added to it, in order."""

    def __init__(self, most: int = MOST_TEXT) -> None:
        self._most = most
        self._said = _TextTail(most)  # the text that is arriving now
        self._is_open = False  # the next piece may continue the same line
        self._last = ""  # the last complete text
        self._concluded = ""  # the text of the result, or the last text before it
        self._in_words = ""  # the text of a failed result: used only if there is no other text

    def add(self, event: AgentEvent) -> None:
        match event:
            case AgentText(is_thought=False):
                self._say(event)
            case AgentResult(ok=True, text=text) if text.strip():
                self._end_of_text()
                self._concluded = self._bounded(text)
            case AgentResult():
                self._end_of_text()
                self._concluded = self._last or self._concluded
                self._in_words = self._bounded(event.text) or self._in_words
            case AgentText() | StepStarted() | ToolStarted() | ToolFinished() | AgentFailure() | Retry():
                self._end_of_text()

    def add_empty_line(self) -> None:
        """Add an empty line, for an agent whose output is plain text."""
        if self._said.has_some:
            self._said.add("\n")

    def again(self) -> None:
        """Discard the text so far, because it was a banner and not an answer."""
        self._said, self._last, self._is_open = _TextTail(self._most), "", False

    @property
    def text(self) -> str:
        self._end_of_text()
        return make_storable(self._concluded or self._last or self._in_words)

    def _say(self, event: AgentText) -> None:
        goes_on = self._is_open and event.is_delta
        if not goes_on and self._said.has_some:
            self._said.add("\n")
        self._said.add(event.text)
        self._is_open = event.is_delta

    def _end_of_text(self) -> None:
        text = _marked(str(self._said), self._said.left_out)
        self._said, self._is_open = _TextTail(self._most), False
        self._last = text if text.strip() else self._last

    def _bounded(self, text: str) -> str:
        kept = text.strip()[-self._most :]
        return _marked(kept, len(text.strip()) - len(kept))


def read_final_answer(
    lines: Iterable[str], parse: Parse | None, is_banner: Callable[[str], bool] = lambda _line: False
) -> str:
    """Return the final answer. `parse`: None for an agent whose output Holdfast does not interpret. No content of the
    lines makes this function raise."""
    if parse is None:
        return _end_of(lines)
    answer = FinalAnswer()
    for line in lines:
        if is_banner(line):
            answer.again()
            continue
        events = parse(line)
        if not events and not line.strip():
            answer.add_empty_line()
        for event in events:
            answer.add(event)
    return answer.text


def _end_of(lines: Iterable[str]) -> str:
    end = _TextTail(MOST_TEXT)
    for line in lines:
        end.add(f"{line}\n")
    return make_storable(_marked(str(end), end.left_out))


def _marked(text: str, left_out: int) -> str:
    return f"[… {left_out} characters before this are not kept]\n{text}" if left_out else text


def make_storable(text: str) -> str:
    """Return the text in a form that the store and a terminal can handle. An agent's JSON may hold half surrogate pairs
    and NULs."""
    return text.strip().replace("\0", "�").encode(errors="replace").decode()
