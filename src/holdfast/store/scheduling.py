"""What a store must do for schedules: a durable cursor and one task per occurrence."""

from __future__ import annotations

from typing import Protocol


class Schedules(Protocol):
    """Cursors and occurrences. Every fire is one transaction with the task that it adds."""
