"""Trackers: how they answer, which issues this home has, and a request to read them now."""

from __future__ import annotations

from typing import Any

from holdfast.api.queries import Queries

Row = dict[str, Any]
HELD = ("intended", "claimed", "releasing", "closing")


def trackers(home: str) -> list[Row]:
    """How the tracker of each repository answers; only those that were asked at least once."""
    return Queries(home).view("trackers")


def links(home: str, *, everything: bool) -> list[Row]:
    """Issues and their tasks; without `everything` only those that are not settled, and those whose task waits."""
    found = Queries(home).view("links")
    if everything:
        return found
    return [row for row in found if row["state"] in HELD or row["task_state"] in ("queued", "running", "paused")]


def sync(home: str) -> bool:
    """Ask the supervisor to read every tracker now. Return False if no supervisor is running."""
    from holdfast.api.commands import change_store

    change_store(home, lambda tx: tx.links.ask_at_once())
    return Queries(home).supervisor() is not None
