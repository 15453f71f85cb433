"""Trackers: how they answer, which issues this home has, and asking for a look."""

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
    """Every tracker is to be looked at now, whatever it was waiting for. False: no supervisor is there to do it."""
    from holdfast.store import doorbell
    from holdfast.store.open import open_store

    open_store(home, create=False).write(lambda tx: tx.links.ask_at_once())
    doorbell.ring(home)
    return Queries(home).supervisor() is not None
