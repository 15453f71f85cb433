"""The interface of an issue tracker. `tests/contracts/test_trackers.py` checks it.

Every answer is a typed value, and `UnknownAnswer` is one of them. An answer that is missing, late or garbled is an
`UnknownAnswer`. No issue counts as unassigned or closed because of such an answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Protocol

from holdfast.base.dataclass import dataclass
from holdfast.core.tasks.trackers import Issue


@dataclass(frozen=True, slots=True)
class FoundIssue:
    """The result if the tracker has the issue."""

    issue: Issue


@dataclass(frozen=True, slots=True)
class MissingIssue:
    """The result if the tracker has no issue with exactly this id."""


@dataclass(frozen=True, slots=True)
class UnknownAnswer:
    """The result if the tracker did not answer, or if its answer could not be understood."""

    why: str


@dataclass(frozen=True, slots=True)
class OverwrittenChange:
    """A change by another party that we overwrote: it happened between our read and our write.

    `assignee` and `status` are the values that were overwritten.
    """

    assignee: str | None
    status: str
    restored: bool


@dataclass(frozen=True, slots=True)
class ChangeDone:
    """The result if the change was made and read back.

    `overwrote` is set if the change overwrote another party's change. Then nothing else about the issue is certain.
    """

    overwrote: OverwrittenChange | None = None


@dataclass(frozen=True, slots=True)
class ChangeRefused:
    """The result if the issue is not ours to change, or no longer ours. Nothing was changed. `holder` names the
    obstacle."""

    holder: str
    is_free: bool = False  # the issue is open and unassigned
    is_over: bool = False  # the issue is closed


Shown = FoundIssue | MissingIssue | UnknownAnswer
Changed = ChangeDone | ChangeRefused | UnknownAnswer


class TrackerRunner(Protocol):
    """A function that runs a command and returns (exit code, output, errors).

    After `timeout` seconds, the whole process tree of the command is ended.
    """

    def __call__(
        self, argv: Sequence[str], *, cwd: str, env: Mapping[str, str], timeout: float
    ) -> Awaitable[tuple[int, bytes, bytes]]: ...


class Tracker(Protocol):
    """One tracker of issues.

    `name` is the acting party. It is unique to a home, so that two homes are never confused.
    """

    async def ready(self) -> Sequence[Issue] | UnknownAnswer:
        """Return the issues that are ready and unassigned."""
        ...

    async def show(self, issue_id: str) -> Shown: ...

    async def claim(self, issue_id: str, name: str) -> Changed:
        """Assign the issue to `name`. Return ChangeDone only if the issue was free (or ours already) and is read back
        as ours."""
        ...

    async def release(self, issue_id: str, name: str) -> Changed:
        """Release an issue that `name` holds. Other parties' claims and closed issues are not changed."""
        ...

    async def close(self, issue_id: str, name: str, note: str) -> Changed: ...

    async def note(self, issue_id: str, name: str, text: str) -> Changed: ...
