"""What a store must do for the history of crashes."""

from __future__ import annotations

from typing import Protocol


class Crashes(Protocol):
    """The history of crashes."""
