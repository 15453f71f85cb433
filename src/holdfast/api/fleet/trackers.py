"""Trackers: whether each answers, the issues that this home has, and a request to read all trackers now."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from holdfast.api.queries import Queries

if TYPE_CHECKING:
    from holdfast.api.fleet.schedule_models import LinkRow, TrackerRow

HELD = ("intended", "claimed", "releasing", "closing")


def list_trackers(home: str) -> list[TrackerRow]:
    """Return the trackers that were read at least once, with the trouble of each."""
    return cast("list[TrackerRow]", Queries(home).view("trackers"))


def list_issue_links(home: str, *, everything: bool) -> list[LinkRow]:
    """Return issues and their tasks. Without `everything`: only open ones, and those whose task is active."""
    found = cast("list[LinkRow]", Queries(home).view("links"))
    if everything:
        return found
    return [row for row in found if row["state"] in HELD or row["task_state"] in ("queued", "running", "paused")]


def request_sync(home: str) -> bool:
    """Ask the supervisor to read every tracker now. Return False if no supervisor is running."""
    from holdfast.api.commands import change_store

    change_store(home, lambda tx: tx.issue_links.end_backoffs())
    return Queries(home).supervisor() is not None
