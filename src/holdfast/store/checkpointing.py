"""What a store must do for whole trees of running and paused tasks, recorded under the fence."""

from __future__ import annotations

from typing import Protocol


class Checkpoints(Protocol):
    """Whole trees of running and paused tasks, recorded under the fence."""
