"""What a store must do about saved work that is to go: a facet of store/port/transaction.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.core.model import Instant


@dataclass(frozen=True, kw_only=True, slots=True)
class Dropped:
    """Saved work that nobody may ask for any more; its commit goes next, and then this row."""

    id: str
    repo_id: str
    ref: str
    commit: str


class Salvages(Protocol):
    def expire(self, before: float, limit: int, now: Instant) -> int:
        """Drop what was saved before then, but nothing that an unfinished task may go on with; how many."""
        ...

    def drop(self, ids: Sequence[str], by: str, now: Instant) -> None:
        """An operator's word: all of them or none."""
        ...

    def dropped(self) -> Sequence[Dropped]: ...
    def forget(self, gone: Sequence[Dropped]) -> None:
        """Their commits are gone. A row that was written anew meanwhile stays."""
        ...
