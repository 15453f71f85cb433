"""The store itself: work comes by `holdfast add`, and the store's own fenced claim decides who does it.

So there is nothing to bring in and nothing to hand back. The adapter says so in the port's words, and whoever walks
over all repositories needs no special case.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.tasks.trackers import Issue
from holdfast.trackers.port import Changed, Missing, Refused, Shown, Unknown

OURS = "it is no issue of an outside tracker: the store's own claim decides"


class Builtin:
    async def ready(self) -> Sequence[Issue] | Unknown:
        return ()  # all of it is in the queue already

    async def show(self, _issue_id: str) -> Shown:
        return Missing()

    async def claim(self, _issue_id: str, _name: str) -> Changed:
        return Refused(OURS)

    async def release(self, _issue_id: str, _name: str) -> Changed:
        return Refused(OURS)

    async def close(self, _issue_id: str, _name: str, _note: str) -> Changed:
        return Refused(OURS)

    async def note(self, _issue_id: str, _name: str, _text: str) -> Changed:
        return Refused(OURS)
