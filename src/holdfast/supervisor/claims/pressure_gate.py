"""The pressure gate: nothing new starts while the machine has no room for it. Told once per episode."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.base.units import show_size
from holdfast.core.dispatch.pressure import Hold, Pressure, hold
from holdfast.core.dispatch.terms import Lane
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.dispatch.terms import terms_now

NOTHING_WAITS = "nothing waits any more"
DISK_ALERT = "disk:floor"


class Gate:
    def __init__(self, context: Context, lanes: Callable[[Transaction], Sequence[Lane | None]]) -> None:
        """`lanes`: for whom something may wait."""
        self._context = context
        self._lanes = lanes
        self._hold: Hold | None = None
        self._disk_alert: bool | None = None  # None: an earlier supervisor may have left one open

    async def lets_in(self) -> bool:
        """Whether the next waiting task may be claimed. The machine is looked at only when there is one."""
        context = self._context
        limits = context.settings.pressure
        if limits.off and self._hold is None and not self._disk_alert:
            return True
        if not await context.writer.write(self._something_waits):
            await self._release(NOTHING_WAITS)
            if self._disk_alert:  # somebody may have made room meanwhile
                now = context.ports.pressure()
                await self._alert_of_disk(hold(limits, now, ("disk",)), now)
            return False
        now = context.ports.pressure()
        found = hold(limits, now, self._hold.over if self._hold else ())
        await self._alert_of_disk(found, now)
        if found is None:
            await self._release("there is room again")
            return True
        if self._hold is None or self._hold.over != found.over:
            await self._keep_back(found, is_new=self._hold is None)
        return False

    def _something_waits(self, tx: Transaction) -> bool:
        now = self._context.clock()
        return any(tx.tasks.something_waits(now, terms_now(self._context, tx, lane)) for lane in self._lanes(tx))

    async def _alert_of_disk(self, found: Hold | None, now: Pressure) -> None:
        """One alert from the moment that the disk holds until there is room again (R-TREE-14)."""
        is_short = found is not None and "disk" in found.over
        if is_short == self._disk_alert:
            return
        context = self._context
        floor, free = show_size(context.settings.pressure.disk_floor), show_size(now.disk or 0)

        def tell(tx: Transaction) -> None:
            if not is_short:
                tx.events.close_alert(DISK_ALERT, "the disk itself: there is room again", context.clock())
                return
            tx.events.raise_alert(
                DISK_ALERT,
                f"Only {free} of disk are free for {context.home}, less than `disk.floor` ({floor}): nothing new "
                "starts, running work goes on.",
                "Make room: `holdfast workspaces` shows what is kept, `holdfast workspaces clean --all-preserved` "
                "lets it go, its work saved.",
                context.clock(),
            )

        await context.writer.write(tell)
        self._disk_alert = is_short

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
