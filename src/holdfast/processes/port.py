"""What the supervisor may ask of processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.core.outcome import ProcessEnd
from holdfast.core.rules import DEFAULT_LIMITS, RunLimits


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchSpec:
    """Everything an agent process needs. Registered durably before it starts (R-TERM-02)."""

    run_id: str
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    stdin: str
    timeout: float
    grace: float
    fast_grace: float
    orphan_grace: float
    limits: RunLimits = DEFAULT_LIMITS
    metadata: Mapping[str, object] = field(default_factory=dict)


class LiveRun(Protocol):
    """A run whose keeper lives, or has ended and left its records."""

    async def wait_started(self) -> int | None:
        """The agent's pid as soon as it is recorded; None when the keeper ended without starting it."""
        ...

    async def wait_over(self) -> ProcessEnd:
        """When the whole tree is proven empty; or with cause `unproven` when nobody can prove it."""
        ...

    def stop(self, *, fast: bool) -> None: ...
    def beat(self, incarnation: str) -> None: ...
    def output(self) -> Iterator[str]: ...
    def error_tail(self) -> str: ...
    def close(self) -> None: ...


class Processes(Protocol):
    def launch(self, spec: LaunchSpec) -> LiveRun: ...
    def find(self, run_id: str) -> LiveRun:
        """A run of an earlier incarnation: its keeper, if it lives, or what it left."""
        ...

    def is_held(self, run_id: str) -> bool:
        """Whether a keeper of that run lives (or is about to)."""
        ...

    def forget(self, run_id: str) -> None:
        """Drop what a settled run does not need any more; its logs stay."""
        ...

    def sweep(self, open_runs: Iterable[str]) -> int:
        """Remove what killed keepers of other runs left in the kernel; how much."""
        ...
