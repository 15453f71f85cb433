"""What a store must do for the history of crashes. Its rows are written by `tasks.settle`, in the same transaction."""

from __future__ import annotations

from typing import Protocol


class Crashes(Protocol):
    """The history of crashes: kept for longer than runs and tasks, and bounded in number."""

    def forget(self, before: float, most: int, limit: int) -> int:
        """Those that were recorded before that moment, and the oldest beyond `most`; `limit` at a time."""
        ...
