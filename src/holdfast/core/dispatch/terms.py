"""On which terms the next waiting task is taken: who has to wait, and for whom it is. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.core.dispatch.accounts import NOBODY, ShutOut


@dataclass(frozen=True, kw_only=True, slots=True)
class Lane:
    """What one named worker takes: tasks of its agent (None: of any), with all of its labels, under its account."""

    name: str
    agent: str | None = None
    account: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """Composed in one place (supervisor/dispatch/terms.py), kept by the claim."""

    shut_out: ShutOut = NOBODY  # whose accounts are shut
    providers_down: frozenset[str] = frozenset()  # those that do not answer, whatever the agent and the account
    labels: frozenset[str] = frozenset()  # `key=value` of which nothing may start now
    held: bool = False  # nothing at all may start now
    lane: Lane | None = None  # None: an anonymous one, which takes whatever waits

    def __bool__(self) -> bool:
        """Whether anything has to be looked at beyond the queue itself."""
        return bool(self.shut_out or self.providers_down or self.labels or self.held or self.lane)


ANY = Terms()


@dataclass(frozen=True, kw_only=True, slots=True)
class ForOperators:
    """What no time gives back: whom it keeps waiting, only an operator can help."""

    shut_out: ShutOut = NOBODY  # whose accounts are stopped
    labels: frozenset[str] = frozenset()  # `key=value` whose budget in all is spent
    held: bool = False  # nothing at all starts before an operator says so
    lanes: tuple[Lane, ...] | None = None  # the workers that may take something, where nobody else does; None: anybody
    auto: bool = True  # False: what a limit paused waits for an operator, too


NO_OPERATORS = ForOperators()
