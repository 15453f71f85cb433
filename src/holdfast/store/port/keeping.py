"""What a store must do about preserved workspaces: a facet of store/port/transaction.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from holdfast.core.model import Instant, Workspace
from holdfast.core.runs.preserve import Disposition
from holdfast.core.states import TaskState


class Keeps(Protocol):
    """Preserved workspaces: why they stay, and until when."""

    def preserve(
        self, workspace: Workspace, decided: Disposition, ending: TaskState, ttl: float, now: Instant
    ) -> Workspace:
        """R-CLEAN-04: nothing is removed; the event says why, and which tier decided. `ttl` is `inf` for ever."""
        ...

    def stays(self, workspace: Workspace, why: str, now: Instant) -> None:
        """It was to go, but its work cannot be saved: it stays until somebody looks."""
        ...

    def keep(self, task_id: str, ttl: float, by: str, now: Instant) -> Workspace | None:
        """An operator's pin: from now on for a preserved workspace, from its task's end on for one in use."""
        ...

    def expired(self, now: Instant, shown: Callable[[float], float]) -> Sequence[Workspace]:
        """`shown`: what the clock would show if nobody had set it forward since the moment when one was preserved."""
        ...

    def expire_from_now(self, now: Instant) -> None:
        """The clock was set back: what was preserved in its future stays from now on for as long as it was to stay."""
        ...

    def expire(self, workspace: Workspace, now: Instant) -> bool:
        """Its time is over: the clean-up salvages and removes it. False: that is no longer so."""
        ...

    def next_expiry(self) -> float | None: ...
    def postpone(self, workspace: Workspace, why: str, retry_at: float, now: Instant, *, tell: bool) -> None:
        """Somebody still uses it: its removal waits, and it is salvaged (again) when it goes."""
        ...

    def freed(self, task_id: str) -> None:
        """Somebody left it: whatever waits for that need not wait for its time."""
        ...

    def running_subtasks(self, task_id: str) -> Sequence[str]: ...
