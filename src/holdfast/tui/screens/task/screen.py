"""The screen of one task, with a page each for output, events, runs, budgets, checkpoints, changes and more."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from holdfast.api.queries import Queries
from holdfast.base.errors import NotFound
from holdfast.base.text import one_line
from holdfast.tui.colours import STATES
from holdfast.tui.feed import NOTHING_NEW, Watch
from holdfast.tui.screens.task.diff import ChangesPage
from holdfast.tui.screens.task.events import TimelinePage
from holdfast.tui.screens.task.info import InfoPage
from holdfast.tui.screens.task.output import OutputPage
from holdfast.tui.screens.task.page import Page
from holdfast.tui.screens.task.results import StagesPage
from holdfast.tui.screens.task.runs import RunsPage
from holdfast.tui.screens.task.salvage import SavedPage
from holdfast.tui.screens.task.subtasks import RelativesPage
from holdfast.tui.widgets.dialogs import CopyChoice
from holdfast.tui.widgets.filter_bar import FilterBar, SearchBar
from holdfast.tui.widgets.screen import View
from holdfast.tui.widgets.text_view import Paper

if TYPE_CHECKING:
    from holdfast.api.tasks.models import TaskDetails

PAGES: dict[str, type[Page]] = {
    page.NAME.lower(): page
    for page in (OutputPage, InfoPage, TimelinePage, RunsPage, StagesPage, SavedPage, RelativesPage, ChangesPage)
}


class TaskView(View):
    ABOUT: ClassVar[str] = "task"
    NAME: ClassVar[str] = "task"
    DEFAULT_CSS = """
    TaskView > #facts { height: auto; max-height: 3; text-wrap: nowrap; text-overflow: ellipsis; }
    TaskView > #found { display: none; height: 1; text-style: dim; text-wrap: nowrap; text-overflow: ellipsis; }
    TaskView > #found.-shown { display: block; }
    TaskView > #pages { height: 1; background: $panel; text-wrap: nowrap; text-overflow: ellipsis; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "escape",
            "back",
            "Back",
            key_display="Esc",
            tooltip="end the search, to the list, to the screen before",
        ),
        Binding("slash", "search", "Search", key_display="/", priority=True, tooltip="find words in a text: n, N"),
        *(
            Binding(page.KEY, f"page('{name}')", page.NAME, tooltip=page.HELP, show=False)
            for name, page in PAGES.items()
        ),
        Binding("right,tab", "turn(1)", "Next page", tooltip="turn to the next page", show=False, priority=True),
        Binding(
            "left,shift+tab", "turn(-1)", "Page before", tooltip="turn to the page before", show=False, priority=True
        ),
    ]

    def __init__(self, task_id: str, page: str = "output") -> None:
        self.task_id = task_id
        self.shown: TaskDetails | None = None
        self.is_gone = False
        self.pages = {name: made(task_id) for name, made in PAGES.items()}
        self.open = page
        self._found: Paper.Found | None = None
        self._task_watch = Watch("task", self.read, self.seen)
        self._read: TaskDetails | None = None
        super().__init__()

    def body(self) -> ComposeResult:
        yield Static(id="facts")
        yield Static(id="pages")
        yield from self.pages.values()
        yield Static(id="found", markup=False)
        yield SearchBar("words to find; Enter, then n and N")

    def on_mount(self) -> None:
        self.action_page(self.open)

    def watches(self) -> Iterable[Watch]:
        return (self._task_watch, *self.pages[self.open].watches())

    # -- the task itself -----------------------------------------------------------------------------------------------

    def read(self, queries: Queries) -> object:
        """Read the task in the feed's thread. A task can be purged while its screen is open."""
        try:
            task = queries.task(self.task_id)
        except NotFound:
            self._read = None  # a restored backup may bring the same task back
            return None
        if task == self._read:
            return NOTHING_NEW
        self._read = task
        return task

    def seen(self, task: TaskDetails | None) -> None:
        if task is None:
            self.is_gone = True
        else:
            self.shown, self.is_gone = task, False
            self.pages[self.open].show_task(task)
        self._tell()

    def subject(self) -> TaskDetails | None:
        return None if self.is_gone else self.shown

    def _tell(self) -> None:
        facts = self.query_one("#facts", Static)
        if self.is_gone:
            last = " This is its last known state." if self.shown is not None else ""
            facts.update(Text(f"Task {self.task_id} was purged.{last}", style="bold"))
        elif self.shown is not None:
            facts.update(make_heading(self.shown, compact=self.size.height < 18))

    # -- pages ---------------------------------------------------------------------------------------------------------

    def action_page(self, name: str) -> None:
        page = self.pages[name]
        if name == "diff":
            self._open_diff(None)
        else:
            self._open(page)

    def _open(self, page: Page) -> None:
        if page.NAME.lower() != self.open:
            self._end_search()
        self.open = page.NAME.lower()
        for one in self.pages.values():
            one.set_class(one is page, "-open")
        before, self._watches = self._watches, tuple(self.watches())
        self.top.feed.detach(watch for watch in before if watch not in self._watches)
        if self.is_current:
            self.top.feed.attach(self._watches)
        if self.shown is not None:
            page.show_task(self.shown)
        page.to_focus().focus()
        self._tell_pages()

    def _open_diff(self, checkpoint: int | None) -> None:
        page = self.pages["diff"]
        assert isinstance(page, ChangesPage)
        if self.open == "diff" and page.checkpoint == checkpoint:
            page.look_again()  # the key was pressed again: compare again
        page.choose(checkpoint)
        self._open(page)

    # -- search --------------------------------------------------------------------------------------------------------

    def _page_text(self) -> Paper | None:
        """Return the text of the open page. A page with a table has none."""
        found = self.pages[self.open].to_focus()
        return found if isinstance(found, Paper) else None

    def action_search(self) -> None:
        if self._page_text() is None:
            self.notify("This page has no text to search: Output (o), Info (i) and Diff (d) have.")
        else:
            self.query_one(FilterBar).open()
            self._tell_found()

    def on_filter_bar_filtered(self, message: FilterBar.Filtered) -> None:
        if (text := self._page_text()) is not None:
            text.search(message.words)

    def on_filter_bar_left(self, _message: FilterBar.Left) -> None:
        self.screen.set_focus(self.pages[self.open].to_focus())
        self.top.post_message(self.top.FormReady())
        self._tell_found()

    def on_paper_found(self, message: Paper.Found) -> None:
        self._found = message
        self._tell_found()

    def _tell_found(self) -> None:
        message = self._found
        if message is None:
            return
        found = self.query_one("#found", Static)
        found.set_class(bool(message.words), "-shown")
        keys = "Enter, then n, N" if isinstance(self.focused, FilterBar) else "n, N"
        words = f"{message.number} of {message.of} lines with '{one_line(message.words, 40)}' ({keys}; Esc ends)"
        page = self.pages[self.open]
        if isinstance(page, OutputPage) and not page.is_whole:
            words += "; only what was read is searched: g reads the beginning"
        none = f"No line has '{one_line(message.words, 40)}' (Esc ends the search)"
        found.update(Text(words if message.of else none))

    def _end_search(self) -> bool:
        """End the search. True if there was one."""
        searched = [text for text in self.query(Paper) if text.words]
        for text in searched:
            text.search("")
        bar = self.query_one(FilterBar)
        if bar.value:
            bar.action_drop()
        return bool(searched)

    def copies(self) -> list[CopyChoice]:
        text = self._page_text()
        return [*super().copies(), *([("l", "line", text.line)] if text is not None else [])]

    def action_turn(self, by: int) -> None:
        names = list(self.pages)
        self.action_page(names[(names.index(self.open) + by) % len(names)])

    def action_back(self) -> None:
        """End the search, go back from a detail to its list, then to the previous screen."""
        if self._end_search():
            return
        wanted = self.pages[self.open].to_focus()
        if self.focused is not None and self.focused is not wanted:
            wanted.focus()
        else:
            self.app.pop_screen()

    def on_runs_page_wanted(self, message: RunsPage.Wanted) -> None:
        page = self.pages["output"]
        assert isinstance(page, OutputPage)
        self._open(page)
        page.choose(message.run_id)

    def on_saved_page_wanted(self, message: SavedPage.Wanted) -> None:
        self._open_diff(message.checkpoint)

    def on_relatives_page_wanted(self, message: RelativesPage.Wanted) -> None:
        self.top.open_task(message.task_id)

    def on_resize(self, _event: events.Resize) -> None:
        self._tell()
        self._tell_pages()

    def _tell_pages(self) -> None:
        self.query_one("#pages", Static).update(draw_pages(self.open, list(self.pages.values()), self.size.width))


def draw_pages(name: str, pages: Sequence[Page], width: int) -> Text:
    """Return the line of pages, or only the open page between arrows if there is too little room.

    Brackets mark the open page, so that its colour is not the only mark.
    """
    made = Text()
    for page in pages:
        is_open = page.NAME.lower() == name
        made.append(f"[{page.NAME}]" if is_open else f" {page.NAME}", "bold reverse" if is_open else "")
        made.append(" " if is_open else f" {page.KEY} ", "dim")
    if made.cell_len <= width:
        return made
    at = [page.NAME.lower() for page in pages].index(name)
    return Text(f"< [{pages[at].NAME}] >  page {at + 1} of {len(pages)}")


def make_heading(task: TaskDetails, *, compact: bool) -> Text:
    from holdfast.api.format import money
    from holdfast.api.tasks.stages import words
    from holdfast.api.tasks.usage import sum_usage

    made = Text.assemble(
        f"task {task['id']}  ",
        (task["state"], f"bold {STATES.get(task['state'], '')}"),
        f"  {one_line(task['reason'] or '', 400)}",
    )
    if compact:
        return made
    made.append(f"\n{one_line(task['prompt'], 400)}", "bold")
    facts = [task["agent"] + (f" ({one_line(task['account'], 40)})" if task["account"] else "")]
    facts += [f"worker {task['worker']}"] if task["worker"] else []
    facts += [words(task["stage"])] if task["stage"] is not None else []
    facts += [f"run {len(task['runs'])}"] if task["runs"] else []
    used = sum_usage(task["agent"], task["runs"])
    facts += [money(used["cost_usd"])] if used is not None and used["cost_usd"] is not None else []
    facts += [f"added {time.strftime('%Y-%m-%d %H:%M', time.localtime(task['created_at']))}"]
    facts += [f"branch {one_line(task['branch'], 80)}"] if task["branch"] else []
    made.append(f"\n{', '.join(one_line(fact, 120) for fact in facts)}", "dim")
    return made
