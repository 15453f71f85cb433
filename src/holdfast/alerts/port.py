"""The interface of a target for alert deliveries. `tests/contracts/test_alert_targets.py` checks it.

A delivery may be sent again with the same key: after a failure, or because we crashed before its success was recorded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Protocol

from holdfast.base.dataclass import dataclass
from holdfast.core.tasks.alerts import AlertChange


@dataclass(frozen=True, kw_only=True, slots=True)
class SendResult:
    """The result of one attempt to send. `told` is for people: short, and without secrets."""

    ok: bool
    told: str
    retry_after: float | None = None  # seconds that the receiver asked us to wait


class AlertTarget(Protocol):
    """One receiver of deliveries. `send` never raises because of the receiver, and always returns in bounded time."""

    @property
    def name(self) -> str: ...
    async def send(self, notice: AlertChange) -> SendResult: ...


class AlertRunner(Protocol):
    """A function that runs one helper to its end, with all of its child processes, within `timeout` seconds."""

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


TIMEOUT_PREFIX = b"timed out after"  # begins the error output of a helper that the runner ended, with exit code 124
LONGEST_SUMMARY = 300
