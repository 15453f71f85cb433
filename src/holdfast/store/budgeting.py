"""What a store must do for money and tokens: what was used, by task, label and time."""

from __future__ import annotations

from typing import Protocol


class Spending(Protocol):
    """Money and tokens: what was used, by task, label and time."""
