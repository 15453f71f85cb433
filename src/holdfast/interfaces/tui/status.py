"""The line on top of every screen: is the supervisor well, and what holds the fleet up."""

from __future__ import annotations

from typing import Any

from rich.text import Text
from textual.widgets import Static

from holdfast.api.queries import Queries

Row = dict[str, Any]
EVERY = 5.0  # seconds: load and disk change without an event, and so does a supervisor that was killed


def read_status(queries: Queries) -> Row:
    """In the feed's thread."""
    alerts, worst = queries.open_alerts()
    return {"supervisor": queries.supervisor(), "counts": queries.counts(), "alerts": alerts, "worst": worst}


class Status(Static):
    DEFAULT_CSS = """
    Status { height: 1; background: $panel; text-wrap: nowrap; text-overflow: ellipsis; }
    """

    def show(self, status: Row | None, trouble: str | None) -> None:
        if trouble is not None:
            self.update(Text(trouble, style="bold red"))
        elif status is not None:
            self.update(words(status))


def words(status: Row) -> Text:
    running = status["supervisor"]
    said = f"supervisor pid {running['pid']}" if running else "no supervisor is running (`holdfast up`)"
    counts = ", ".join(f"{number} {state}" for state, number in sorted(status["counts"].items())) or "no tasks"
    return Text(f"holdfast  {said}  {counts}")
