"""What a store must do for alerts on their way to people: an outbox.

A notice is written in the transaction that raises, acknowledges or closes its alert (the events facet does that). From
there on the supervisor plans it (to whom), counts an attempt before it is made, and records what came of it. Every
write is a compare-and-set on the number of attempts: two senders cannot both record the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.core.model import Instant
from holdfast.core.tasks.alerts import Delivery, Notice, Plan


class Notices(Protocol):
    """Alerts on their way to people: an outbox."""

    def unplanned(self, limit: int) -> Sequence[Notice]:
        """What nobody has looked at yet, oldest first."""
        ...

    def plan(self, notice: Notice, plan: Plan) -> None: ...
    def heads(self) -> Sequence[Delivery]:
        """For each target the oldest that waits: in order, so the others wait behind it."""
        ...

    def begin(self, delivery: Delivery, delay: float, now: Instant) -> Delivery:
        """Count an attempt, before it is made; if we die in it, the next may begin after `delay`."""
        ...

    def sent(self, delivery: Delivery, told: str, now: Instant) -> None: ...
    def failed(self, delivery: Delivery, told: str, delay: float, now: Instant) -> None: ...
    def give_up(self, delivery: Delivery, told: str, now: Instant) -> None: ...
    def waiting(self) -> int:
        """How many are still to be planned or sent."""
        ...

    def forget(self, before: float, limit: int) -> int:
        """Those of before that moment that nobody waits for."""
        ...
