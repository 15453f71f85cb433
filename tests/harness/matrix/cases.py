"""What a case is, and how it is written: `success/up/worktree.added:1:kill`, a second fault behind a `+`."""

from __future__ import annotations

from dataclasses import dataclass

KILL, EXIT, ENOSPC, EIO, USURP = "kill", "exit", "ENOSPC", "EIO", "usurp"
ENDS = (KILL, EXIT)  # what ends the process, so that it may come at any point
ACTIONS = (KILL, ENOSPC, EIO)
ENGINE = "engine"  # the role of faults of a container engine: `contained` plays them
GIT = "git"  # the point of faults that are not ours: `gitfaults` plays them


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """In the process that plays `role`, at the `hit`-th passing of `point`."""

    role: str
    point: str
    hit: int
    action: str

    def __str__(self) -> str:
        return f"{self.role}/{self.point}:{self.hit}:{self.action}"

    @property
    def plan(self) -> str:
        """For HOLDFAST_FAULT. To be usurped a process is stopped; the world does the rest."""
        return f"{self.point}:{self.hit}:{'stop' if self.action == USURP else self.action}"


@dataclass(frozen=True, slots=True, order=True)
class Case:
    scenario: str
    faults: tuple[Fault, ...] = ()

    def __str__(self) -> str:
        return (
            "+".join([f"{self.scenario}/{self.faults[0]}", *map(str, self.faults[1:])])
            if self.faults
            else self.scenario
        )

    def then(self, fault: Fault) -> Case:
        return Case(self.scenario, (*self.faults, fault))

    def plan_for(self, role: str) -> str:
        return ",".join(fault.plan for fault in self.faults if fault.role == role and fault.point != GIT)


def parse(text: str) -> Case:
    first, *more = text.split("+")
    scenario, _, rest = first.partition("/")
    return Case(scenario, tuple(_fault(word) for word in ([rest] if rest else []) + more))


def _fault(text: str) -> Fault:
    role, _, rest = text.partition("/")
    point, hit, action = rest.rsplit(":", 2)
    return Fault(role, point, int(hit), action)
