"""The output page: the output of an agent, live and as far back as it is kept, for any run and any member of a stage.

`LineCollector` turns an agent's events into lines, in the same words as `holdfast logs`. `Reader` reads the log
in the feed's thread, one piece at a time, and no more than a screen can use. `OutputPage` shows the lines.

The page sets plain attributes of the reader to request what to read. The reader returns a `Batch`, which describes how
the lines on screen change. So reader and page have the same lines, but only the reader knows their positions in the
file.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Static

from holdfast.api.queries import Queries
from holdfast.api.tasks.log_window import LogPiece, LogWindow
from holdfast.base.dataclass import dataclass
from holdfast.cli.output.agent_events import Teller
from holdfast.cli.output.render import size
from holdfast.tui.feed import NOTHING_NEW, Watch
from holdfast.tui.screens.task.page import Page
from holdfast.tui.widgets.text_view import Paper, TextLine, make_printable

if TYPE_CHECKING:
    from holdfast.api.tasks.models import AgentEventRow, OpenRun, RunRow, TaskDetails


class _Utf8:
    """A stand-in for the output stream of a Teller: its encoding is UTF-8, and it is not a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return False


class LineCollector(Teller):
    """A Teller that collects lines. `take` returns the lines since the last call. `begun` is an unfinished line."""

    def __init__(self) -> None:
        super().__init__(lambda _text: None, _Utf8())
        self._told: list[TextLine] = []
        self._begun, self._style = "", ""

    @property
    def begun(self) -> TextLine | None:
        return TextLine(make_printable(self._begun), self._style) if self._begun else None

    def take(self) -> list[TextLine]:
        told, self._told = self._told, []
        return told

    def _put(self, text: str, colour: str = "", end: str = "") -> None:
        *whole, rest = (text + end).split("\n")
        for piece in whole:
            self._told.append(TextLine(make_printable(self._begun + piece), colour or self._style))
            self._begun = ""
        self._begun += rest
        self._style = colour if self._begun else ""

    def transcribe(self, rows: Iterable[AgentEventRow], at: float | None) -> list[TextLine]:
        """Return the lines for the events. `at` is when live events were observed, or None for older events."""
        for row in rows:
            if row["event"] == "line":
                self._line(_last_state(row["text"]))
            else:
                self.tell(row, at)
        self.catch_up()
        return self.take()


def _last_state(text: str) -> str:
    """Return what a terminal would show of a line that was overwritten again and again, such as a progress bar."""
    return text.rstrip("\r").rpartition("\r")[2]


MOST_LINES = 10_000  # on the page at once
MEASURE_EVERY = 1.0  # seconds between two updates of the size of unread output below


class Choice(NamedTuple):
    """The source of the output: a run, and its standard output or its standard error."""

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
    """A range of the file in bytes, and the number of lines that it has on the page."""

    start: int
    end: int
    lines: int


@dataclass(frozen=True)
class Batch:
    """A change of the lines on the page, as the reader hands it over."""

    choice: Choice
    lines: tuple[TextLine, ...] = ()
    how: str = "append"  # or "prepend", or "write", which replaces all lines
    begun: TextLine | None = None  # an unfinished last line
    drop_first: int = 0  # lines
    drop_last: int = 0  # lines
    is_first: bool = False  # True: the page begins at the start of the file
    below: int = 0  # bytes of the file that are not read yet
    is_gone: bool = False  # True: the file was deleted


class Reader:
    """The reader of a log file, in the feed's thread."""

    def __init__(self) -> None:
        # The page sets these three. The feed's thread reads them.
        self.choice: Choice | None = None
        self.follows = True
        self.wish: str | None = None  # earlier, later, oldest or newest
        self._current: Choice | None = None
        self._window: LogWindow | None = None
        self._scribe = LineCollector()
        self._plain = ""  # an unfinished line of plain text
        self._chunks: deque[_Chunk] = deque()
        self._last: Batch | None = None
        self._known: tuple[object, ...] = ()  # the state in which there was nothing more to read
        self._told_at = 0.0

    def read(self, queries: Queries) -> object:
        """Return a batch, or NOTHING_NEW. Runs in the feed's thread."""
        choice, wish = self.choice, self.wish
        self.wish = None
        if choice is None:
            return NOTHING_NEW
        window = self._window
        if window is None or self._current is None or self._current.source != choice.source:
            directory = queries.run_directory(choice.run_id)
            run: OpenRun = {"id": choice.run_id, "number": choice.number}
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
        """True if it is time to measure the unread output below, while the page does not follow."""
        return time.monotonic() >= self._told_at + MEASURE_EVERY

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

    def _anew(self, choice: Choice, window: LogWindow, piece: LogPiece) -> Batch:
        self._scribe = LineCollector()
        lines = self._scribe.transcribe(piece.rows, None)
        self._chunks = deque([_Chunk(piece.start, piece.end, len(lines))])
        return self._told(choice, window, lines, "write", begun=self._begun(piece))

    def _behind(self, choice: Choice, window: LogWindow, piece: LogPiece | None, live: float | None) -> Batch:
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
        collector = LineCollector()
        lines = collector.transcribe(piece.rows, None)
        collector.end()
        lines += collector.take()
        self._chunks.appendleft(_Chunk(piece.start, piece.end, len(lines)))
        dropped = 0
        while len(self._chunks) > 1 and self._lines() - self._chunks[-1].lines >= MOST_LINES:
            dropped += self._chunks.pop().lines
        if dropped:
            window.go_back_to(self._chunks[-1].end)
            self._scribe, self._plain = LineCollector(), ""
        begun = None if dropped else self._begun(None)
        return self._told(choice, window, lines, "prepend", begun=begun, drop_last=dropped)

    def _lines(self) -> int:
        return sum(chunk.lines for chunk in self._chunks)

    def _begun(self, piece: LogPiece | None) -> TextLine | None:
        if piece is not None:
            self._plain = piece.begun
        return TextLine(make_printable(self._plain)) if self._plain else self._scribe.begun

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


def apply_batch(paper: Paper, batch: Batch) -> None:
    if batch.how == "write":
        paper.write(())
    if batch.drop_first:
        paper.drop_first(batch.drop_first)
    if batch.drop_last:
        paper.drop_last(batch.drop_last)
    if batch.how == "prepend":
        paper.prepend(batch.lines)
        paper.append((), batch.begun)
    else:
        paper.append(batch.lines, batch.begun)


EVERY = 0.2  # seconds between two looks at a log: no event reports that the log has grown


class OutputPage(Page):
    NAME: ClassVar[str] = "Output"
    KEY: ClassVar[str] = "o"
    HELP: ClassVar[str] = "what its agent says and does"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "follow", "Follow", tooltip="stay at the end of the output, or stop there", show=False),
        Binding("comma", "other_run(-1)", "Earlier run", tooltip="the output of the run before", show=False),
        Binding("full_stop", "other_run(1)", "Later run", tooltip="the output of the run behind", show=False),
        Binding("E", "errors", "Errors", tooltip="its standard error, or its output again", show=False),
    ]

    def __init__(self, task_id: str) -> None:
        super().__init__(task_id)
        self.reader = Reader()
        self._watch = Watch("output", self.reader.read, self.seen, every=EVERY, on_change=False)
        self._chosen: str | None = None  # the run that the user chose; None: the last run
        self._errors = False
        self._batch: Batch | None = None

    def compose(self) -> ComposeResult:
        yield Static(classes="note")
        yield Paper(follows=True)

    @property
    def paper(self) -> Paper:
        return self.query_one(Paper)

    def watches(self) -> Sequence[Watch]:
        return (self._watch,)

    def to_focus(self) -> Widget:
        return self.paper

    # -- choice of the run ---------------------------------------------------------------------------------------------

    def show_task(self, task: TaskDetails) -> None:
        super().show_task(task)
        self._choose()

    def choose(self, run_id: str | None) -> None:
        self._chosen = run_id
        self._follow(follows=True)
        self._choose()

    def run(self) -> RunRow | None:
        runs = [] if self.task_row is None else self.task_row["runs"]
        shown = self.reader.choice
        for run in runs:
            if run["id"] == self._chosen:
                return run
        if shown is not None and not self.paper.follows:  # a user who reads an older run is not moved to a newer one
            for run in runs:
                if run["id"] == shown.run_id:
                    return run
        return runs[-1] if runs else None

    def _choose(self) -> None:
        run, task = self.run(), self.task_row
        if run is None or task is None:
            self._say()
            return
        choice = Choice(
            run["id"],
            run["agent"] or task["agent"],
            run["number"],
            run["outcome"] is not None,
            self._errors,
            task["time_zone"],
        )
        if choice != self.reader.choice:
            self.reader.choice = choice
            self.look_again()
        self._say()

    def action_other_run(self, by: int) -> None:
        runs = [] if self.task_row is None else self.task_row["runs"]
        shown = self.run()
        if shown is None:
            return
        at = [run["id"] for run in runs].index(shown["id"])
        wanted = max(0, min(at + by, len(runs) - 1))
        self.choose(None if wanted == len(runs) - 1 else runs[wanted]["id"])

    def action_errors(self) -> None:
        self._errors = not self._errors
        self._follow(follows=True)
        self._choose()

    # -- following and going back --------------------------------------------------------------------------------------

    def _follow(self, *, follows: bool) -> None:
        self.paper.follows = self.reader.follows = follows
        self._say()

    def action_follow(self) -> None:
        if self.paper.follows:
            self._follow(follows=False)
        else:
            self.paper.action_last()

    def on_paper_scrolled(self, message: Paper.Scrolled) -> None:
        message.stop()
        batch = self._batch
        if batch is None:
            return
        if message.at_first and not batch.is_first:
            self._follow(follows=False)
            self._wish("oldest" if message.jumped else "earlier")
        elif message.at_last and (message.jumped or batch.below == 0):
            self._follow(follows=True)
            self._wish("newest" if batch.below else "later")
            self.paper.append((), batch.begun)
        elif message.at_last:
            self._wish("later")
        else:
            self._follow(follows=False)

    def _wish(self, wish: str) -> None:
        self.reader.wish = wish
        self.look_again()

    # -- values from the feed ------------------------------------------------------------------------------------------

    def seen(self, batch: Batch) -> None:
        if self.reader.choice is None or batch.choice.source != self.reader.choice.source:
            return  # the user has chosen another run in the meantime
        self._batch = batch
        paper = self.paper
        apply_batch(paper, batch)
        if batch.below and paper.follows:
            self._watch.go_on()  # the rest comes in further pieces
        self._say()

    def _say(self) -> None:
        run, task = self.run(), self.task_row
        if run is None or task is None:
            self.paper.write(
                [
                    TextLine(
                        "There is no run yet, so there is no output. The page Info (i) shows what the task waits for."
                    )
                ]
            )
            self.note("no run yet")
            return
        words = [f"{'standard error of ' if self._errors else ''}run {run['number']} of {len(task['runs'])}"]
        words += ["/".join(filter(None, (run["stage"], run["member"])))] if run["stage"] else []
        words += [f"{run['outcome']}: {run['reason']}" if run["outcome"] else str(run["state"])]
        self.note("  ".join([self._where(), *words]))

    @property
    def is_whole(self) -> bool:
        """True if all the output is in the text."""
        return self._batch is not None and self._batch.is_first and not self._batch.below

    def _where(self) -> str:
        batch = self._batch
        if batch is not None and batch.is_gone:
            return "deleted: `retention.runs` sets how long output is kept;"
        if self.paper.follows:
            return "following" if self.paper.length or batch is None else "following; no output yet;"
        return f"{size(batch.below)} below, G follows;" if batch is not None and batch.below else "G follows;"
