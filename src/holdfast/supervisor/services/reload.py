"""The service that applies changed settings while the supervisor runs: when the user's file changed, and at once on
SIGHUP.

A file with mistakes changes nothing: the previous values stay in force, and one event per change has the reason.
"""

from __future__ import annotations

import asyncio
import os

from holdfast.base.errors import HoldfastError
from holdfast.core.model import Event, Level
from holdfast.supervisor.context import Context
from holdfast.supervisor.ports import ReloadedSettings
from holdfast.supervisor.service import Service

_NEVER = object()
SETTLE = 0.3  # seconds: a file that is just being written is read after it was unchanged for this long
LONGEST = 5.0  # seconds: a file that changes all the time is read after this at the latest


class FileStillness:
    """A check whether a file is finished or between two writes. An editor may empty the file first, which is not a
    change."""

    def __init__(self) -> None:
        self._stamp: object = _NEVER
        self._since = 0.0
        self._restless: float | None = None  # since when the file has been changing; None: it is unchanged

    def left(self, stamp: object, now: float) -> float:
        """Return the seconds for which the file must still stay unchanged to count as finished."""
        if stamp != self._stamp:
            self._stamp, self._since = stamp, now
            self._restless = now if self._restless is None else self._restless
        waited = LONGEST if self._restless is None else now - self._restless
        left = max(0.0, min(SETTLE - (now - self._since), LONGEST - waited))
        if left <= 0:
            self._restless = None
        return left


class ReloadService(Service):
    def __init__(self, context: Context) -> None:
        self._context = context
        self._seen: object = _NEVER  # so the first look reads the file: it may have changed while we started
        self._stillness = FileStillness()
        self._asked = False

    def ask(self) -> None:
        """Read the settings again at the next look, changed or not, and emit an event."""
        self._asked = True
        self._context.bell.ring()

    async def tick(self) -> None:
        stamp = self._context.ports.source.stamp()
        if not self._asked and (stamp == self._seen or not self._has_settled(stamp)):
            return
        try:
            tuning = self._context.ports.source.read()
        except HoldfastError as error:
            await self._reject(error)
        else:
            await self._apply_settings(tuning)
        self._seen = stamp
        self._asked = False

    def _has_settled(self, stamp: object) -> bool:
        loop = asyncio.get_running_loop()
        left = self._stillness.left(stamp, loop.time())
        if left > 0:
            loop.call_later(left, self._context.bell.ring)
        return left <= 0

    async def _reject(self, error: HoldfastError) -> None:
        await self._emit(
            Event(
                kind="config.rejected",
                level=Level.WARNING,
                message=f"The settings have a mistake. The previous settings stay in force: {error}",
                reason=str(error),
            )
        )

    async def _apply_settings(self, tuning: ReloadedSettings) -> None:
        if tuning.changes or tuning.at_next_start or self._asked:
            changes = ", ".join(f"{key} {change}" for key, change in tuning.changes.items())
            later = f" At the next start: {', '.join(tuning.at_next_start)}." if tuning.at_next_start else ""
            await self._emit(
                Event(
                    kind="config.reloaded",
                    message=f"Settings were read again: {changes or 'no changes apply'}.{later}",
                    data={"changes": dict(tuning.changes), "at_next_start": list(tuning.at_next_start)},
                )
            )
        self._context.limits = tuning.limits
        self._context.settings = tuning.settings
        self._context.ports.source.accept(tuning)

    async def _emit(self, event: Event) -> None:
        await self._context.writer.write(lambda tx: tx.events.emit(event, self._context.clock()))


def has_terminal() -> bool:
    """True if this process has a terminal that can go away."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
