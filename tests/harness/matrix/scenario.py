"""What a scenario is: a life that a task can have, and what must come out of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.harness.matrix.world import World

Play = Callable[[World], None]


@dataclass(frozen=True, slots=True)
class Scenario:
    """`expected` are the states in which its tasks end, by the prompts that name them."""

    play: Play
    expected: Mapping[str, tuple[str, ...]]
    about: str
    # Without cgroups, a keeper that dies together with the supervisor that spawned it is frozen, with an alert.
    supervisor_may_die: bool = True
    keepers_may_die: bool = True
    is_attended: bool = False  # something happens while its supervisor runs: it must not be stopped for a usurper
    is_variation: bool = False  # not in the short run: it passes no step of its own, or costs too much for that
    absent: Callable[[], str] = lambda: ""  # why it cannot be played on this machine
    also: Callable[[World], list[str]] = lambda _world: []  # what else must be true at the end; the violations
