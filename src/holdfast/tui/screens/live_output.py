"""The output of the task under the cursor, live, below the list of the fleet where there is room.

The end of the log is read once for each run. After that, only what was added is read: while nothing is added, a look
costs one `lstat`. Nothing is read while there is no room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from holdfast.api.queries import Queries
from holdfast.base.errors import NotFound
from holdfast.tui.feed import NOTHING_NEW, Watch
from holdfast.tui.widgets.text_view import Paper

if TYPE_CHECKING:
    from holdfast.api.fleet.models import FleetRow
    from holdfast.tui.screens.task.output import Batch, Reader

EVERY = 1.0  # seconds between two looks at the log
LEAST = 4  # lines, with its title
ON_TALL_SCREENS = 10  # lines that a long list gives up …
TALL = 40  # … where list and output have this many lines together


def output_height(lines: int, rows: int) -> int:
    """Return the height of the output, where it shares `lines` with a list of `rows` tasks. 0: no room."""
    free = lines - rows - 1
    height = max(free, ON_TALL_SCREENS if lines >= TALL else 0)
    return height if height >= LEAST else 0


class LiveOutput(Vertical):
    """The title and the last lines of the output. The fleet screen sets its task and its height."""

    DEFAULT_CSS = """
    LiveOutput { display: none; height: 0; }
    LiveOutput.-shown { display: block; }
    LiveOutput > #output-of { height: 1; background: $panel; text-wrap: nowrap; text-overflow: ellipsis; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.reading = Watch("live output", self.read, self.seen, every=EVERY, on_change=False)
        self._wanted: tuple[Any, ...] | None = None  # the task, its state and its open runs
        self._shown: tuple[Any, ...] | None = None
        # Only the feed's thread uses the attributes below.
        self._read: tuple[Any, ...] | None = None
        self._reader: Reader | None = None
        self._title = ""

    def compose(self) -> ComposeResult:
        yield Static(id="output-of", markup=False)
        paper = Paper(follows=True)
        paper.can_focus = False  # the keys stay with the list
        yield paper

    def fit(self, height: int, row: FleetRow | None) -> bool:
        """Show the output of the row's task at this height. True if something else is read from now on."""
        height = 0 if row is None else height
        if self.size.height != height or self.has_class("-shown") != bool(height):
            self.styles.height = height
            self.set_class(bool(height), "-shown")
        wanted = None if row is None or not height else (row["id"], row["state"], tuple(row["open_runs"]))
        is_other, self._wanted = wanted != self._wanted, wanted
        if is_other:
            self.reading.again()
        return is_other

    def read(self, queries: Queries) -> object:
        """Read what is new in the log. Runs in the feed's thread."""
        from holdfast.tui.screens.task.output import Choice, Reader  # the first frame does not wait for this import

        wanted = self._wanted
        if wanted is None:
            return NOTHING_NEW
        if wanted != self._read:
            try:
                task = queries.task(wanted[0])
            except NotFound:
                return NOTHING_NEW
            self._read, self._reader = wanted, None
            if not task["runs"]:
                return wanted, f"{task['id']} has no output yet", None
            run = task["runs"][-1]
            self._reader = Reader()
            is_over = run["outcome"] is not None
            self._reader.choice = Choice(
                run["id"], run["agent"] or task["agent"], run["number"], is_over, False, task["time_zone"]
            )
            end = f": {run['outcome']}" if is_over else ""
            self._title = f"Output of {task['id']}, run {run['number']}{end}"
        if self._reader is None:
            return NOTHING_NEW
        batch = self._reader.read(queries)
        return NOTHING_NEW if batch is NOTHING_NEW else (wanted, self._title, batch)

    def seen(self, found: tuple[tuple[Any, ...], str, Batch | None]) -> None:
        from holdfast.tui.screens.task.output import apply_batch

        wanted, title, batch = found
        paper = self.query_one(Paper)
        if wanted != self._shown:
            self._shown = wanted
            self.query_one("#output-of", Static).update(Text(title), layout=False)
            paper.write(())
        if batch is None:
            return
        apply_batch(paper, batch)
        if batch.below:
            self.reading.go_on()
