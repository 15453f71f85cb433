"""The pressure gate: no task is claimed while the machine has no room for one more agent. One event is emitted per
episode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from holdfast.base.units import show_size
from holdfast.core.dispatch.pressure import Pressure, PressureHold, check_pressure, is_short_of_disk
from holdfast.core.dispatch.terms import Lane
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.dispatch.terms import build_claim_terms

NOTHING_WAITS = "nothing waits any more"
DISK_ALERT = "disk:floor"
LOOK_AT_REPOS_EVERY = 1.0  # seconds


class PressureGate:
    def __init__(self, context: Context, lanes: Callable[[Transaction], Sequence[Lane | None]]) -> None:
        """Create the gate. `lanes`: the worker lanes that may claim a task."""
        self._context = context
        self._lanes = lanes
        self._hold: PressureHold | None = None
        self._disk_alert: bool | None = None  # None: an earlier supervisor may have left one open
        self._repos_looked: float | None = None  # boot time; None: an earlier supervisor may have left alerts open

    async def may_claim(self) -> bool:
        """True if the next waiting task may be claimed. The machine is measured only if a task waits."""
        context = self._context
        limits = context.settings.pressure
        if limits.is_off and self._hold is None and not self._disk_alert and not context.shared.full_repos:
            return True
        await self._look_at_repos()
        if not await context.writer.write(self._has_waiting_task):
            await self._release(NOTHING_WAITS)
            if self._disk_alert:  # room may have been made meanwhile
                now = context.ports.pressure()
                await self._update_disk_alert(check_pressure(limits, now, ("disk",)), now)
            return False
        now = context.ports.pressure()
        found = check_pressure(limits, now, self._hold.over if self._hold else ())
        await self._update_disk_alert(found, now)
        if found is None:
            await self._release("there is space again")
            return True
        if self._hold is None or self._hold.over != found.over:
            await self._record_hold(found, is_new=self._hold is None)
        return False

    async def _look_at_repos(self) -> None:
        """Block the tasks of repositories whose own file system is short of space, with an alert for each repository.

        Git writes to that file system, not only to the one of the home. Tasks of other repositories continue.
        """
        context, full = self._context, self._context.shared.full_repos
        now, is_first = context.clock().boottime, self._repos_looked is None
        if self._repos_looked is not None and now - self._repos_looked < LOOK_AT_REPOS_EVERY:
            return
        self._repos_looked = now
        # Where an alert is open, room may have been made although nothing waits there any more.
        rows = context.store.view("repos" if is_first or full else "waiting_repos")
        paths = {str(row["id"]): str(row["path"]) for row in rows}
        full.intersection_update(paths)  # without those that were forgotten
        for repo, path in paths.items():
            free = context.ports.free_disk(path)
            is_short = is_short_of_disk(context.settings.pressure, Pressure(disk=free), ("disk",) * (repo in full))
            if is_short != (repo in full) or is_first:
                await context.writer.write(partial(self._tell_of_repo, repo, path, free if is_short else None))
            (full.add if is_short else full.discard)(repo)

    def _tell_of_repo(self, repo: str, path: str, free: int | None, tx: Transaction) -> None:
        """Raise the alert of a repository with too little space, or close it."""
        key, now = f"{DISK_ALERT}:{repo}", self._context.clock()
        if free is None:
            tx.events.close_alert(key, "the disk itself: there is space again", now)
            return
        floor = show_size(self._context.settings.pressure.disk_floor)
        tx.events.raise_alert(
            key,
            f"{show_size(free)} of disk space are free for the repository {path}, less than `disk.floor` ({floor}): "
            f"none of "
            "its tasks starts, running work continues.",
            f"Free space on the file system of {path}. Its tasks then start by themselves.",
            now,
        )

    def _has_waiting_task(self, tx: Transaction) -> bool:
        now = self._context.clock()
        return any(
            tx.tasks.has_claimable_task(now, build_claim_terms(self._context, tx, lane)) for lane in self._lanes(tx)
        )

    async def _update_disk_alert(self, found: PressureHold | None, now: Pressure) -> None:
        """Keep one alert open from the moment that the disk is short until there is space again (R-TREE-14)."""
        is_short = found is not None and "disk" in found.over
        if is_short == self._disk_alert:
            return
        context = self._context
        floor, free = show_size(context.settings.pressure.disk_floor), show_size(now.disk or 0)

        def tell(tx: Transaction) -> None:
            if not is_short:
                tx.events.close_alert(DISK_ALERT, "the disk itself: there is space again", context.clock())
                return
            tx.events.raise_alert(
                DISK_ALERT,
                f"Only {free} of disk space are free for {context.home}, less than `disk.floor` ({floor}): nothing new "
                "starts, running work continues.",
                "Make room: `holdfast workspaces` lists preserved workspaces. `holdfast workspaces clean "
                "--all-preserved` saves their work and removes them.",
                context.clock(),
            )

        await context.writer.write(tell)
        self._disk_alert = is_short

    async def _record_hold(self, found: PressureHold, *, is_new: bool) -> None:
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
