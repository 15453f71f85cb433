"""One action on several marked tasks: the question before it, and one result of all of them.

The tasks are taken one by one. If the action is refused for one task, it is still carried out on the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.base.dataclass import dataclass
from holdfast.base.errors import HoldfastError, Refused
from holdfast.base.text import one_line
from holdfast.tui.actions.forms import MOST_NAMED, name_tasks
from holdfast.tui.actions.handlers import ActionResult, Asked

Row = dict[str, Any]


@dataclass(frozen=True)
class MarkedResult:
    """The result of one action on several tasks."""

    done: tuple[str, ...]  # ids
    asked: tuple[Asked, ...]  # requests that a supervisor carries out
    refusals: tuple[str, ...]  # reasons, each with its task

    def summary(self, label: str) -> str:
        requests = f", {len(self.asked)} of them by the supervisor" if self.asked else ""
        return f"{label}: {len(self.done)} tasks{requests}."


def ask_about_all(label: str, question: Callable[[str, Row], str | None] | None, home: str, rows: Sequence[Row]) -> str:
    """Return the question with the number of tasks, and what the action means for each of the first ones."""
    first = f"{label}: {len(rows)} marked tasks?"
    if question is None:
        return f"{first}\n\n{name_tasks(rows)}"
    lines = []
    for row in rows[:MOST_NAMED]:
        try:
            words = question(home, row)
        except HoldfastError as error:
            words = f"It will be refused: {error}"
        lines.append(f"  {row['id']}  {one_line(words or row['state'], 300)}")
    if len(rows) > MOST_NAMED:
        lines.append(f"  and {len(rows) - MOST_NAMED} more")
    return "\n".join((first, "", *lines))


def carry_out_all(do: Callable[[str, Row], ActionResult], home: str, rows: Sequence[Row]) -> MarkedResult:
    """Carry out the action on each row. Raise Refused if the action was refused for every row."""
    done, asked, refusals = [], [], []
    for row in rows:
        try:
            result = do(home, row)
        except HoldfastError as error:
            refusals.append(f"{row['id']}: {error}")
            continue
        done.append(str(row["id"]))
        if isinstance(result, Asked):
            asked.append(result)
    if not done:
        raise Refused("\n".join(refusals))
    return MarkedResult(tuple(done), tuple(asked), tuple(refusals))
