"""The adapter for repositories without an issue tracker: tasks come only from `holdfast add`.

The store's own fenced claim decides who works on a task. So this adapter has no issues and refuses every change. With
it, a loop over all repositories needs no special case.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.tasks.trackers import Issue
from holdfast.trackers.port import Changed, ChangeRefused, MissingIssue, Shown, UnknownAnswer

OURS = "it is not an issue of a tracker: the store's own claim decides"


class NoTracker:
    """A tracker without issues."""

    async def ready(self) -> Sequence[Issue] | UnknownAnswer:
        return ()  # all tasks are in the queue already

    async def show(self, _issue_id: str) -> Shown:
        return MissingIssue()

    async def claim(self, _issue_id: str, _name: str) -> Changed:
        return ChangeRefused(OURS)

    async def release(self, _issue_id: str, _name: str) -> Changed:
        return ChangeRefused(OURS)

    async def close(self, _issue_id: str, _name: str, _note: str) -> Changed:
        return ChangeRefused(OURS)

    async def note(self, _issue_id: str, _name: str, _text: str) -> Changed:
        return ChangeRefused(OURS)
