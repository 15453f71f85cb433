"""What a tracker of work must do. `tests/contracts/tracker_contract.py` is the same promise as code.

Every answer is a typed value, and `Unknown` is one of them: whoever cannot be understood has said nothing. Nobody is
taken for unassigned, and nothing for closed, because an answer was missing, late or garbled.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.core.tasks.trackers import Issue


@dataclass(frozen=True, slots=True)
class Found:
    issue: Issue


@dataclass(frozen=True, slots=True)
class Missing:
    """The tracker knows no issue of exactly this id."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """It did not answer, or nobody could understand it."""

    why: str


@dataclass(frozen=True, slots=True)
class Overwrote:
    """Between our look and our word, somebody else changed the issue, and our word went over theirs."""

    assignee: str | None
    status: str
    restored: bool


@dataclass(frozen=True, slots=True)
class Done:
    """Carried out, and read back. `overwrote` is set when it was at somebody else's cost: then nothing else holds."""

    overwrote: Overwrote | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """It is not ours to change (any more): nothing was done. `holder` says who or what stands in the way."""

    holder: str
    is_free: bool = False  # nobody has it, and it is open
    is_over: bool = False  # closed


Shown = Found | Missing | Unknown
Changed = Done | Refused | Unknown


class Runner(Protocol):
    """Runs a command to its end; late, its whole tree is ended. (exit code, output, errors)"""

    def __call__(
        self, argv: Sequence[str], *, cwd: str, env: Mapping[str, str], timeout: float
    ) -> Awaitable[tuple[int, bytes, bytes]]: ...


class Tracker(Protocol):
    """`name` is who acts: unique to a home, so that two of them are never taken for one."""

    async def ready(self) -> Sequence[Issue] | Unknown:
        """What could be worked on now and is nobody's."""
        ...

    async def show(self, issue_id: str) -> Shown: ...

    async def claim(self, issue_id: str, name: str) -> Changed:
        """Done only if it was free (or ours already) and is read back as ours."""
        ...

    async def release(self, issue_id: str, name: str) -> Changed:
        """Only what `name` holds; somebody else's claim and a closed issue are left alone."""
        ...

    async def close(self, issue_id: str, name: str, note: str) -> Changed: ...

    async def note(self, issue_id: str, name: str, text: str) -> Changed: ...
