"""The info page: why a task is in its state, its facts, and what is left of its budgets."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, TypedDict

from textual.app import ComposeResult
from textual.widget import Widget

from holdfast.api.queries import Queries
from holdfast.base.errors import NotFound
from holdfast.tui.feed import NOTHING_NEW, Watch
from holdfast.tui.screens.task.page import Page
from holdfast.tui.widgets.text_view import Paper, TextLine, split_lines

if TYPE_CHECKING:
    from holdfast.api.tasks.models import TaskDetails

EVERY = 10.0  # seconds between two readings: no event reports the health of a working agent
SLOWLY = 20.0  # the next reading waits at least this many times as long as the last one took


class Info(TypedDict):
    """The content of the page."""

    task: TaskDetails
    why: list[str]
    facts: dict[str, str]


class InfoPage(Page):
    NAME: ClassVar[str] = "Info"
    KEY: ClassVar[str] = "i"
    HELP: ClassVar[str] = "why it is where it is, budgets left, prompt"

    def __init__(self, task_id: str) -> None:
        super().__init__(task_id)
        self._watch = Watch("info", self.read, self.seen, on_change=False, apart=True)

    def compose(self) -> ComposeResult:
        yield Paper()

    def watches(self) -> Sequence[Watch]:
        return (self._watch,)

    def to_focus(self) -> Widget:
        return self.query_one(Paper)

    def show_task(self, task: TaskDetails) -> None:
        if task is not self.task_row:
            super().show_task(task)
            self.look_again()

    def read(self, queries: Queries) -> object:
        """Read the task. This runs in a thread of its own: the processes of a living agent are sampled twice."""
        from holdfast.api.tasks.explain import complete, explain, facts, list_wait_reasons

        began = time.monotonic()
        try:
            task = queries.task(self.task_id)
            complete(queries, task)
            found: Info = {
                "task": task,
                "why": explain(queries, task, list_wait_reasons(queries, task)),
                "facts": facts(task),
            }
        except NotFound:
            return NOTHING_NEW  # the heading of the screen reports that the task is gone
        self._watch.every = max(EVERY, (time.monotonic() - began) * SLOWLY)
        return found

    def seen(self, found: Info) -> None:
        self.query_one(Paper).write(info_lines(found))


def info_lines(found: Info) -> list[TextLine]:
    from holdfast.api.tasks.spending import left_lines

    task, facts = found["task"], dict(found["facts"])
    prompt = facts.pop("prompt", "")
    facts.pop("budgets", None)
    made = [TextLine(f"Why it is {task['state']}", "bold")]
    for words in found["why"]:
        made += split_lines(words, indent="  ")
    made += [TextLine(""), TextLine("Budgets left", "bold")]
    for words in left_lines(task["budgets"], task["spent_in_all"]):
        made += split_lines(words, indent="  ")
    made += [TextLine(""), TextLine("Facts", "bold")]
    for name, words in facts.items():
        made += split_lines(f"{name:<10} {words}", indent="  ")
    if task["children"]:
        made += [TextLine(f"  subtasks   {len(task['children'])}, on the page Family (y)")]
    return [*made, TextLine(""), TextLine("Prompt", "bold"), *split_lines(prompt, indent="  ")]
