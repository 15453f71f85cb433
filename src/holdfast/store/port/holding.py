"""What a store must do for dispatch that is held back: for a provider, for an account, or after a mass death."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from holdfast.core.dispatch.holds import Hold, Scope
from holdfast.core.dispatch.mass_death import Death
from holdfast.core.model import Instant

MASS_DEATH_ALERT = "mass-death"


def provider_alert(provider: str) -> str:
    """The key of the alert that a provider stayed away for too long; it is closed when it answers."""
    return f"provider:{provider}"


class Holds(Protocol):
    """Dispatch that is held back until a probe says otherwise. What to do is core/dispatch/holds.py's; this keeps it."""

    def all(self) -> Sequence[Hold]:
        """Each with where its probe stands now."""
        ...

    def keep(self, hold: Hold, now: Instant) -> None:
        """As it stands from now on. An event tells when it begins to hold back, or does so anew, or who goes first."""
        ...

    def release(
        self, scope: Scope, name: str, why: str, now: Instant, *, tell: bool = True, forget: bool = False
    ) -> bool:
        """Nothing is held back any more, and its alert is closed. False: nothing was. `tell` is false where something
        else holds it back now, and tells so. `forget`: not even a mass death is remembered; an operator vouches."""
        ...

    def free(self, task_id: str) -> None:
        """It is nobody's probe any more."""
        ...

    def crowd(self, account: str, since: Instant) -> int:
        """How many agents work under it (agent/name) that began after that moment."""
        ...

    def account_of(self, task_id: str) -> str | None:
        """The account of its newest run."""
        ...

    def pause_waiting(self, provider: str, reason: str, now: Instant) -> Sequence[str]:
        """Every task that waits for this provider and nothing else is an operator's now."""
        ...

    def paused_by_outage(self, provider: str) -> Sequence[str]:
        """Tasks that are paused because it stayed away."""
        ...

    def died(self, run_id: str, task_id: str, at: float, now: Instant) -> None:
        """An agent died, and nobody asked for it. Part of the transaction that records its end."""
        ...

    def death(self, run_id: str) -> tuple[Death, Instant] | None:
        """With the moment at which we knew."""
        ...

    def deaths_around(self, at: float, window: float) -> Sequence[Death]: ...
    def ran(self, agents: Collection[str], since: float) -> tuple[frozenset[str], frozenset[str]]:
        """The tasks whose agents live now; and those of which one ended since then, in whatever way."""
        ...

    def of_many(self, run_ids: Sequence[str], now: Instant) -> None:
        """These deaths are one trouble of the machine: what they had cost their tasks is given back."""
        ...
