"""The pressure gate: nothing new starts while the machine has no room for it. Told once per episode."""

from __future__ import annotations

from holdfast.core.pressure import Hold, hold
from holdfast.supervisor.context import Context

NOTHING_WAITS = "nothing waits any more"


class Gate:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._hold: Hold | None = None

    async def lets_in(self) -> bool:
        """Whether the next waiting task may be claimed. The machine is looked at only when there is one."""
        context = self._context
        limits = context.settings.pressure
        if limits.off and self._hold is None:
            return True
        if not await context.writer.write(lambda tx: tx.tasks.something_waits(context.clock())):
            await self._release(NOTHING_WAITS)
            return False
        found = hold(limits, context.pressure(), self._hold.over if self._hold else ())
        if found is None:
            await self._release("there is room again")
            return True
        if self._hold is None or self._hold.over != found.over:
            await self._keep_back(found, is_new=self._hold is None)
        return False

    async def _keep_back(self, found: Hold, *, is_new: bool) -> None:
        context = self._context
        await context.writer.write(
            lambda tx: tx.hosts.hold(context.host_id, found.reason, found.data, context.clock(), tell=is_new)
        )
        self._hold = found

    async def _release(self, why: str) -> None:
        context = self._context
        if self._hold is not None:
            await context.writer.write(lambda tx: tx.hosts.release(context.host_id, why, context.clock()))
            self._hold = None
