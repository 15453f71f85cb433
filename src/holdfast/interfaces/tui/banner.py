"""A critical alert in the face: on every screen, until somebody acknowledges it or it is over."""

from __future__ import annotations

from typing import Any

from rich.text import Text
from textual.widgets import Static

from holdfast.api.queries import Queries

Row = dict[str, Any]


def read_critical(queries: Queries) -> list[Row]:
    """In the feed's thread: open critical alerts, the newest last."""
    return [alert for alert in queries.alerts() if alert["level"] == "critical"]


class Banner(Static):
    DEFAULT_CSS = """
    Banner { display: none; height: auto; max-height: 3; background: $error; color: $text; text-style: bold; }
    Banner.-shown { display: block; }
    """

    def show(self, alerts: list[Row]) -> None:
        self.set_class(bool(alerts), "-shown")
        if alerts:
            newest = alerts[-1]
            more = f" (and {len(alerts) - 1} more)" if len(alerts) > 1 else ""
            self.update(Text(f"CRITICAL{more}: {newest['message']} {newest['remedy']}"))
