"""What a store must do for alerts on their way to people: an outbox."""

from __future__ import annotations

from typing import Protocol


class Notices(Protocol):
    """Alerts on their way to people: an outbox."""
