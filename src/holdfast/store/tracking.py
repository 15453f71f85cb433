"""What a store must do for which task belongs to which issue of an outside tracker."""

from __future__ import annotations

from typing import Protocol


class Links(Protocol):
    """Which task belongs to which issue of an outside tracker."""
