"""The supervisor itself: adopt what lives, then tick a list of services whenever something may have changed."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
from collections.abc import Awaitable, Callable
from enum import StrEnum

from holdfast.base.concurrency import end_all
from holdfast.base.errors import HoldfastError, Unavailable
from holdfast.core.model import StopWhy
from holdfast.store import doorbell
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.claims.claim import Claims
from holdfast.supervisor.context import Context
from holdfast.supervisor.dispatch.holds import Holding
from holdfast.supervisor.dispatch.resume import Resumes
from holdfast.supervisor.dispatch.spending import Allowances
from holdfast.supervisor.dispatch.terms import for_operators
from holdfast.supervisor.health.monitor import Health
from holdfast.supervisor.log import Narrator, say, say_trouble
from holdfast.supervisor.runs.attempts import Attempts, recover
from holdfast.supervisor.runs.repo_changes import LockAlerts
from holdfast.supervisor.service import Service
from holdfast.supervisor.services.agent_reports import Reports
from holdfast.supervisor.services.alerts import Notifying
from holdfast.supervisor.services.checkpoints import Checkpoints
from holdfast.supervisor.services.clock import Timekeeping
from holdfast.supervisor.services.container_engines import EngineAlerts
from holdfast.supervisor.services.reload import Reloading, has_terminal
from holdfast.supervisor.services.requests import Requests
from holdfast.supervisor.services.retention import Retention
from holdfast.supervisor.services.schedules import Scheduling
from holdfast.supervisor.services.trackers import Tracking
from holdfast.supervisor.workspaces.cleanup import Cleanup, Expiry
from holdfast.supervisor.workspaces.sweep import Sweep

SLOW_POLL = 5.0  # backs up every hint: doorbell, timers, clock changes
NEAR = 3.0  # seconds; a clean-up that is tried again so soon keeps an idle supervisor (`--idle-exit`) running
CLEANUP_PATIENCE = 10.0
FAREWELL_PATIENCE = 10.0
NOTICE_PATIENCE = 2.0
TROUBLE_PAUSE = 1.0
PATIENT_SIGNALS = 2
LIFELINE_BEATS = 2  # keepers wait for minutes: they are told half as often as the store


class StopMode(StrEnum):
    GRACEFUL = "graceful"
    NOW = "now"
    KEEP_AGENTS = "keep-agents"


class Supervisor:
    """The daemon. wiring/supervisor.py makes it, with the home's lock held and the host registered."""

    def __init__(self, context: Context) -> None:
        self._context = context
        clock = context.services.timekeeper = Timekeeping(context)
        self._health = context.services.health = Health(context)
        self._checkpoints = context.services.checkpoints = Checkpoints(context)
        self._attempts = Attempts(context)
        self._reports = Reports(self._attempts, context.clock)
        self._health.on_channel = self._reports.changed
        self._requests = Requests(context, self._attempts)
        holding = Holding(context)
        self._health.on_warning = holding.warned
        self._resumes = Resumes(context, holding)
        self._claims = Claims(context, self._attempts)
        self._cleanup = Cleanup(context)
        self._sweep = Sweep(context, self._cleanup)
        self._requests.on_sweep = self._sweep.asked
        self._retention = Retention(context)
        self._tracking = Tracking(context)
        self._scheduling = Scheduling(context)
        self._notifying = Notifying(context)
        self._reloading = Reloading(context)
        self._narrator = Narrator(context.store, context.news)
        # Each looks when something may have changed, in this order: what frees work comes before the claims.
        self._services: tuple[Service, ...] = (
            clock,
            self._reloading,
            self._resumes,
            self._tracking,
            self._scheduling,
            Allowances(context),
            self._claims,
            self._attempts,
            self._sweep,
            Expiry(context),
            self._cleanup,
            self._retention,
            LockAlerts(context),
            EngineAlerts(context, self._attempts),
            self._notifying,
            self._health,
            self._checkpoints,
        )
        # nohup leaves SIGHUP ignored: its user wants the supervisor to outlive the terminal
        self._goes_with_terminal = has_terminal() and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
        self._stop: StopMode | None = None
        self._idle_since: float | None = None
        self._signals = 0
        self._closed = False
        self._background: list[asyncio.Task[None]] = []
        self.lease_lost = False

    async def run(self) -> None:
        """Adopt what lives, then serve until the supervisor is asked to stop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
        bell_fd = doorbell.hang_up(self._context.home)
        loop.add_reader(bell_fd, self._on_doorbell, bell_fd)
        loops = (self._lifeline, self._narrator.run, self._health.run, self._reports.run, self._checkpoints.run)
        self._background += [asyncio.create_task(_for_ever(duty)) for duty in loops]
        try:
            await self._sweep.at_start()
            await recover(self._context, self._attempts)
            await self._until_stopped()
            await self._shut_down()
        finally:
            loop.remove_reader(bell_fd)
            os.close(bell_fd)
            await self._close()

    async def _close(self) -> None:
        """End every task of ours, however the supervisor came to its end. Agents stay with their keepers."""
        try:
            await end_all([*self._background, *(task for service in self._services for task in service.tasks)])
        finally:
            for service in self._services:
                service.close()
        with contextlib.suppress(Unavailable):
            self._narrator.look()

    # -- the loop --------------------------------------------------------------------------------------------------

    async def _until_stopped(self) -> None:
        while self._stop is None:
            try:
                if not self._context.ports.home_is_ours():
                    say("holdfast: the lock of this home was removed under us; stopping, because another may start")
                    self.on_lease_lost()
                    return
                await self._look()
                if await self._idle_left() == 0 and await self._close_if_idle():
                    self._stop = StopMode.GRACEFUL
                else:
                    await self._context.bell.wait(await self._until_next_wake())
            except Exception as trouble:  # noqa: BLE001 - running agents go on, whatever it is, and we look again
                say_trouble("", trouble)
                await asyncio.sleep(TROUBLE_PAUSE)

    async def _look(self) -> None:
        await self._requests.tick()
        if self._requests.down is not None:
            self._stop = self._stop or StopMode(str(self._requests.down.data.get("mode", "graceful")))
            self._context.bell.ring()
            return
        for service in self._services:
            await service.tick()

    async def _until_next_wake(self) -> float:
        waits = [await service.next_wake() for service in self._services]
        return min(SLOW_POLL, await self._idle_left(), *waits)

    async def _idle_left(self) -> float:
        """Return the seconds until nothing has run, waited or been cleaned for as long as `--idle-exit` says."""
        limit = self._context.settings.idle_exit
        if limit is None:
            return math.inf
        busy = any(service.busy for service in self._services)
        is_near = await self._cleanup.next_wake() < NEAR  # a workspace that a process is just leaving
        if busy or is_near or bool(await self._context.writer.write(self._unfinished)):
            self._idle_since = None
            return math.inf
        now = asyncio.get_running_loop().time()
        if self._idle_since is None:
            self._idle_since = now
        return max(0.0, limit - (now - self._idle_since))

    def _unfinished(self, tx: Transaction) -> int:
        """Count what keeps an idle supervisor running. A task that waits for an operator does not."""
        count = tx.tasks.unfinished_count(for_operators(self._context, tx))
        return count + sum(service.owed(tx) for service in self._services)

    async def _close_if_idle(self) -> bool:
        """Say farewell in the transaction that sees nothing left to do: a task added before it keeps us here."""

        def close(tx: Transaction) -> bool:
            if self._unfinished(tx) or tx.workspaces.to_clean(self._context.clock()) or tx.notices.waiting():
                return False  # a task that ended since our last look may have left its workspace, or an alert, behind
            tx.hosts.close(self._context.host_id, self._context.clock())
            return True

        self._closed = await self._context.writer.write(close)
        return self._closed

    async def _lifeline(self) -> None:
        """Tell every keeper that we are alive."""
        while True:
            self._attempts.beat()
            await self._attempts.until_beat(self._context.settings.beat_every * LIFELINE_BEATS)

    # -- the end ---------------------------------------------------------------------------------------------------

    def _on_doorbell(self, fd: int) -> None:
        doorbell.drain(fd)
        self._context.bell.ring()

    def _on_signal(self) -> None:
        """The first signal stops gracefully, the second fast, the third at once: agents stay with their keepers."""
        self._signals += 1
        if self._signals > PATIENT_SIGNALS:
            os._exit(1)  # like a crash, which the next start handles
        if self._stop is None:
            self._stop = StopMode.GRACEFUL
        else:
            self._stop = StopMode.NOW
            self._background.append(asyncio.create_task(self._attempts.stop_all(StopWhy.DOWN, fast=True)))
        self._context.bell.ring()

    def _on_hangup(self) -> None:
        """SIGHUP reads the settings again; but when our terminal is gone, that was its farewell."""
        if self._goes_with_terminal and not has_terminal():
            self._on_signal()
        else:
            self._reloading.ask()

    def on_lease_lost(self) -> None:
        """Another incarnation was given our tasks, with their agents; or nobody was, and ours go with us. Nothing is
        written."""
        if self._closed:
            return  # we have said farewell ourselves
        self.lease_lost = True
        self._stop = StopMode.NOW
        self._context.bell.ring()

    async def _shut_down(self) -> None:
        self._claims.closed = self._tracking.closed = True
        await self._retention.stop()
        if self._stop is StopMode.KEEP_AGENTS or (self.lease_lost and await self._is_replaced()):
            self._attempts.abandon()
            await self._attempts.wait_all()
        else:
            watching = asyncio.create_task(_for_ever(self._watch_requests))
            self._background.append(watching)
            await self._attempts.stop_all(StopWhy.DOWN, fast=self._stop is StopMode.NOW)
            await self._wait_for_attempts()
            watching.cancel()
        if not self.lease_lost and not self._closed:
            await self._last_clean_up()
            await self._last_notices()
            await self._farewell()

    async def _is_replaced(self) -> bool:
        """Whether another one has the home, and adopts what lives there. In doubt, keepers end their agents."""
        try:
            await self._context.writer.write(lambda tx: tx.hosts.require(self._context.host_id))
        except HoldfastError:
            return True
        return False

    async def _wait_for_attempts(self) -> None:
        """To their settlement; but what is no longer ours cannot be settled: their keepers have the word to stop."""
        if not self.lease_lost:
            await self._attempts.wait_all()
            return
        try:
            async with asyncio.timeout(FAREWELL_PATIENCE):
                await self._attempts.wait_all()
        except TimeoutError:
            self._attempts.abandon()
            await self._attempts.wait_all()

    async def _last_clean_up(self) -> None:
        if self._stop is not StopMode.KEEP_AGENTS:
            with contextlib.suppress(Unavailable):
                await self._cleanup.tick()
        await self._cleanup.wait_idle(CLEANUP_PATIENCE)
        self._cleanup.cancel()

    async def _last_notices(self) -> None:
        """What ended the last agents may be an alert. What does not go through now waits for the next supervisor."""
        if self._stop is StopMode.GRACEFUL:
            with contextlib.suppress(Unavailable):
                await self._notifying.tick()
            await self._notifying.finish(NOTICE_PATIENCE)

    async def _watch_requests(self) -> None:
        """While agents get their grace, cancels and a more urgent `down` are still heard."""
        while True:
            await self._requests.tick()
            down = self._requests.down
            if down is not None and down.data.get("mode") == StopMode.NOW and self._stop is not StopMode.NOW:
                self._stop = StopMode.NOW
                await self._attempts.stop_all(StopWhy.DOWN, fast=True)
            await self._attempts.send_again()
            await self._context.bell.wait(1.0)

    async def _farewell(self) -> None:
        """Answer and sign off; where the store cannot be written, our absence says the same."""
        try:
            for request in await self._context.writer.write(lambda tx: tx.requests.pending()):
                if request.kind == "down":
                    await self._requests.answer_down(request, self._stop)
            await self._context.writer.write(lambda tx: tx.hosts.close(self._context.host_id, self._context.clock()))
        except Unavailable as trouble:
            say(f"holdfast: stopped, but that could not be recorded: {trouble}")


async def _for_ever(duty: Callable[[], Awaitable[None]]) -> None:
    """A background duty that may stumble but must not end in silence."""
    while True:
        try:
            await duty()
        except Exception as trouble:  # noqa: BLE001 - told, and taken up again
            say_trouble("", trouble)
        await asyncio.sleep(TROUBLE_PAUSE)
