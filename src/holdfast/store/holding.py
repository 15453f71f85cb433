"""What a store must do for dispatch that is held back: for a provider, or after a mass death."""

from __future__ import annotations

from typing import Protocol


class Holds(Protocol):
    """Dispatch that is held back for a provider, or after a mass death, until a probe says otherwise."""
