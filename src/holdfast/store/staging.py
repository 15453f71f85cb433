"""What a store must do for tasks in several stages: moving from one to the next, under the fence."""

from __future__ import annotations

from typing import Protocol


class Staging(Protocol):
    """Where tasks stand in their workflows."""
