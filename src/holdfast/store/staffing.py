"""What a store must do for named long-lived workers: wanted or not, benched or not, and their crashes."""

from __future__ import annotations

from typing import Protocol


class Workers(Protocol):
    """Named long-lived workers: wanted or not, benched or not, and their crashes."""
