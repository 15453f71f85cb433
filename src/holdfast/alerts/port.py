"""What a way to reach people must do. `tests/contracts/test_alert_targets.py` is the same promise as code.

A notice may be sent again with the same key: after a failure, or because we died before its success was recorded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.core.tasks.alerts import Notice


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What came of one attempt. `told` is for people: short, and without secrets."""

    ok: bool
    told: str
    retry_after: float | None = None  # seconds that the receiver asked us to stay away


class Target(Protocol):
    """One receiver. Never raises for what the receiver does, and always answers in bounded time."""

    @property
    def name(self) -> str: ...
    async def send(self, notice: Notice) -> Answer: ...


class Runner(Protocol):
    """Runs one helper to its end, with all that it started, within `timeout` seconds (processes/helpers.py)."""

    def __call__(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        timeout: float,
        stdin: bytes = b"",
        output: int | None = None,
        mark: str | None = None,
    ) -> Awaitable[tuple[int, bytes, bytes]]: ...


LATE = b"timed out after"  # how a runner tells that it ended the helper, beside the code 124
LONGEST_TOLD = 300
