"""The supervisor's main loop: it adopts the runs that still live, then ticks a list of services whenever something may
have changed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import signal
from collections.abc import Awaitable, Callable
from enum import StrEnum

from holdfast.base.concurrency import cancel_all
from holdfast.base.errors import HoldfastError, Unavailable
from holdfast.core.model import Event, Request, RequestKind, StopWhy
from holdfast.core.tasks.requests import RequestAnswer, RequestResult, StopCause
from holdfast.store import doorbell
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.claims.claim import Claims
from holdfast.supervisor.context import Context
from holdfast.supervisor.dispatch.holds import HoldUpkeep
from holdfast.supervisor.dispatch.resume import Resumes
from holdfast.supervisor.dispatch.spending import SpendingCapService
from holdfast.supervisor.dispatch.terms import find_operator_blocks
from holdfast.supervisor.health.monitor import HealthService
from holdfast.supervisor.log import EventLogWriter, log_error, log_line
from holdfast.supervisor.runs.attempts import Attempts, recover
from holdfast.supervisor.runs.repo_changes import LockAlerts
from holdfast.supervisor.service import Service
from holdfast.supervisor.services.agent_reports import ReportService
from holdfast.supervisor.services.alerts import DeliveryService
from holdfast.supervisor.services.checkpoints import CheckpointService
from holdfast.supervisor.services.clock import ClockService
from holdfast.supervisor.services.container_engines import EngineAlertService
from holdfast.supervisor.services.reload import ReloadService, has_terminal
from holdfast.supervisor.services.requests import RequestService
from holdfast.supervisor.services.retention import Retention
from holdfast.supervisor.services.schedules import ScheduleService
from holdfast.supervisor.services.trackers import TrackerService
from holdfast.supervisor.settings import take_over
from holdfast.supervisor.workspaces.cleanup import CleanupService, ExpiryService
from holdfast.supervisor.workspaces.sweep import SweepService

SLOW_POLL = 5.0  # backs up every hint: doorbell, timers, clock changes
NEAR = 3.0  # seconds; a clean-up that is tried again so soon keeps an idle supervisor (`--idle-exit`) running
CLEANUP_PATIENCE = 10.0
SIGN_OFF_PATIENCE = 10.0
DELIVERY_PATIENCE = 2.0
TROUBLE_PAUSE = 1.0
PATIENT_SIGNALS = 2
LIFELINE_BEATS = 2  # keepers wait for minutes: they get a heartbeat half as often as the store


class StopMode(StrEnum):
    GRACEFUL = "graceful"
    NOW = "now"
    KEEP_AGENTS = "keep-agents"


class Supervisor:
    """The daemon. wiring/supervisor.py makes it when the home's lock is held and the host is registered."""

    def __init__(self, context: Context) -> None:
        self._context = context
        clock = context.services.timekeeper = ClockService(context)
        self._health = context.services.health = HealthService(context)
        self._checkpoints = context.services.checkpoints = CheckpointService(context)
        self._attempts = Attempts(context)
        self._reports = ReportService(self._attempts, context.clock)
        self._health.on_channel = self._reports.changed
        self._requests = RequestService(context, self._attempts)
        holding = HoldUpkeep(context)
        self._health.on_warning = holding.note_near_limit
        self._resumes = Resumes(context, holding)
        self._claims = Claims(context, self._attempts)
        self._cleanup = CleanupService(context)
        self._sweep = SweepService(context, self._cleanup)
        self._requests.on_sweep = self._sweep.asked
        self._requests.on_take_over = self._take_over
        self._retention = Retention(context)
        self._tracking = TrackerService(context)
        self._scheduling = ScheduleService(context)
        self._notifying = DeliveryService(context)
        self._reloading = ReloadService(context)
        self._narrator = EventLogWriter(context.store, context.news)
        # Each looks when something may have changed, in this order: what frees work comes before the claims.
        self._services: tuple[Service, ...] = (
            clock,
            self._reloading,
            self._resumes,
            self._tracking,
            self._scheduling,
            SpendingCapService(context),
            self._claims,
            self._attempts,
            self._sweep,
            ExpiryService(context),
            self._cleanup,
            self._retention,
            LockAlerts(context),
            EngineAlertService(context, self._attempts),
            self._notifying,
            self._health,
            self._checkpoints,
        )
        # nohup leaves SIGHUP ignored: its user wants the supervisor to outlive the terminal.
        self._goes_with_terminal = has_terminal() and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
        self._stop: StopMode | None = None
        self._idle_since: float | None = None
        self._signals = 0
        self._closed = False
        self._background: list[asyncio.Task[None]] = []
        self.lease_lost = False

    async def run(self) -> None:
        """Adopt the runs that still live, then tick the services until the supervisor is asked to stop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
        bell_fd = doorbell.open_listener(self._context.home)
        loop.add_reader(bell_fd, self._on_doorbell, bell_fd)
        loops = (self._send_heartbeats, self._narrator.run, self._health.run, self._reports.run, self._checkpoints.run)
        self._background += [asyncio.create_task(_run_forever(duty)) for duty in loops]
        try:
            await self._sweep.at_start()
            await recover(self._context, self._attempts)
            await self._serve_until_stopped()
            await self._shut_down()
        finally:
            loop.remove_reader(bell_fd)
            os.close(bell_fd)
            await self._close()

    async def _close(self) -> None:
        """End all asyncio tasks of the supervisor, however it stopped. Living agents stay with their keepers."""
        try:
            await cancel_all([*self._background, *(task for service in self._services for task in service.tasks)])
        finally:
            for service in self._services:
                service.close()
        with contextlib.suppress(Unavailable):
            self._narrator.look()

    # -- the loop --------------------------------------------------------------------------------------------------

    async def _serve_until_stopped(self) -> None:
        while self._stop is None:
            try:
                if not self._context.ports.home_is_ours():
                    log_line(
                        "holdfast: the lock of this home was removed; stopping, because another supervisor may start"
                    )
                    self.on_lease_lost()
                    return
                await self._look()
                if await self._idle_left() == 0 and await self._close_if_idle():
                    self._stop = StopMode.GRACEFUL
                else:
                    await self._context.bell.wait(await self._seconds_until_next_wake())
            except Exception as trouble:  # noqa: BLE001 - running agents continue, whatever it is, and we look again
                log_error("", trouble)
                await asyncio.sleep(TROUBLE_PAUSE)

    async def _look(self) -> None:
        await self._requests.tick()
        if self._requests.down is not None:
            self._stop = self._stop or StopMode(str(self._requests.down.data.get("mode", "graceful")))
            self._context.bell.ring()
            return
        for service in self._services:
            await service.tick()

    async def _seconds_until_next_wake(self) -> float:
        waits = [await service.next_wake() for service in self._services]
        return min(SLOW_POLL, await self._idle_left(), *waits)

    async def _idle_left(self) -> float:
        """Return the seconds until the supervisor has been idle (nothing runs, waits or is cleaned up) for
        `--idle-exit`."""
        limit = self._context.settings.idle_exit
        if limit is None:
            return math.inf
        busy = any(service.busy for service in self._services)
        is_near = await self._cleanup.next_wake() < NEAR  # a workspace that a process is just leaving
        if busy or is_near or bool(await self._context.writer.write(self._count_unfinished)):
            self._idle_since = None
            return math.inf
        now = asyncio.get_running_loop().time()
        if self._idle_since is None:
            self._idle_since = now
        return max(0.0, limit - (now - self._idle_since))

    def _count_unfinished(self, tx: Transaction) -> int:
        """Count the work that keeps an idle supervisor running. A task that waits for an operator is not counted."""
        count = tx.tasks.unfinished_count(find_operator_blocks(self._context, tx))
        return count + sum(service.owed(tx) for service in self._services)

    async def _take_over(self, request: Request) -> None:
        """Take over the settings of an `up` that found this supervisor running, and answer with the values before and
        after."""
        if self._stop is not None or self._requests.down is not None:
            await self._requests.record(request, RequestAnswer(RequestResult.STOPPING))
            return
        old = self._context.settings
        new = take_over(old, request.data)
        values = {"agents": [old.agents, new.agents], "idle_exit": [old.idle_exit, new.idle_exit]}

        def write(tx: Transaction) -> None:
            now = self._context.clock()
            tx.requests.answer(request.id, RequestAnswer(RequestResult.TAKEN_OVER, json.dumps(values)), now)
            if new != old:
                message = f"{request.by} took the supervisor over with `holdfast up`: {new.agents} agents at once."
                tx.events.emit(Event(kind="host.taken-over", message=message, data=values), now)

        await self._context.writer.write(write)
        self._context.settings = new
        self._context.ports.source.adopt(new)

    async def _close_if_idle(self) -> bool:
        """Sign the supervisor off in the transaction that finds nothing left to do. A task that was added before this
        transaction keeps it running."""

        def close(tx: Transaction) -> bool:
            if self._count_unfinished(tx) or tx.workspaces.to_clean(self._context.clock()) or tx.deliveries.waiting():
                return False  # a task that ended since our last look may have left its workspace, or an alert, behind
            if any(request.kind is RequestKind.TAKE_OVER for request in tx.requests.pending()):
                return False  # an `up` wants us to stay
            tx.hosts.close(self._context.host_id, self._context.clock(), StopCause.IDLE)
            return True

        self._closed = await self._context.writer.write(close)
        return self._closed

    async def _send_heartbeats(self) -> None:
        """Send every keeper a heartbeat, for ever."""
        while True:
            self._attempts.beat()
            await self._attempts.wait_for_next_heartbeat(self._context.settings.beat_every * LIFELINE_BEATS)

    # -- the end ---------------------------------------------------------------------------------------------------

    def _on_doorbell(self, fd: int) -> None:
        doorbell.discard_rings(fd)
        self._context.bell.ring()

    def _on_signal(self) -> None:
        """Stop gracefully at the first signal, fast at the second, and at once at the third. At the third signal,
        agents are left to their keepers."""
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
        """Read the settings again on SIGHUP. If the supervisor's terminal is gone, its closing sent the SIGHUP: then
        stop."""
        if self._goes_with_terminal and not has_terminal():
            self._on_signal()
        else:
            self._reloading.ask()

    def on_lease_lost(self) -> None:
        """Stop the supervisor at once, because its lease was lost. Nothing is written.

        If another supervisor owns our tasks, it owns their agents too. Otherwise our agents are ended before we leave.
        """
        if self._closed:
            return  # we have signed off ourselves
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
            watching = asyncio.create_task(_run_forever(self._handle_requests_while_stopping))
            self._background.append(watching)
            await self._attempts.stop_all(StopWhy.DOWN, fast=self._stop is StopMode.NOW)
            await self._wait_for_attempts()
            watching.cancel()
        if not self.lease_lost and not self._closed:
            await self._last_clean_up()
            await self._send_last_deliveries()
            await self._sign_off()

    async def _is_replaced(self) -> bool:
        """True if another supervisor has the home and adopts the runs that live there. False: the agents are ended."""
        try:
            await self._context.writer.write(lambda tx: tx.hosts.require_active(self._context.host_id))
        except HoldfastError:
            return True
        return False

    async def _wait_for_attempts(self) -> None:
        """Wait until all attempts are settled. After a lost lease, wait only briefly: tasks that are no longer ours
        cannot be settled, and their keepers have the stop already."""
        if not self.lease_lost:
            await self._attempts.wait_all()
            return
        try:
            async with asyncio.timeout(SIGN_OFF_PATIENCE):
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

    async def _send_last_deliveries(self) -> None:
        """Send the last deliveries, because the end of the last agents may have raised an alert. A delivery that is not
        sent waits for the next supervisor."""
        if self._stop is StopMode.GRACEFUL:
            self._notifying.is_last = True
            with contextlib.suppress(Unavailable):
                await self._notifying.tick()  # makes the notice of gathered endings
                await self._notifying.tick()
            await self._notifying.finish(DELIVERY_PATIENCE)

    async def _handle_requests_while_stopping(self) -> None:
        """Carry out cancels and a more urgent `down` while agents have their grace period to end."""
        while True:
            await self._requests.tick()
            down = self._requests.down
            if down is not None and down.data.get("mode") == StopMode.NOW and self._stop is not StopMode.NOW:
                self._stop = StopMode.NOW
                await self._attempts.stop_all(StopWhy.DOWN, fast=True)
            await self._attempts.send_again()
            await self._context.bell.wait(1.0)

    async def _sign_off(self) -> None:
        """Answer the `down` requests and sign the supervisor off. If the store cannot be written, the missing heartbeat
        shows that the supervisor is gone."""
        try:
            for request in await self._context.writer.write(lambda tx: tx.requests.pending()):
                if request.kind == "down":
                    await self._requests.answer_down(request, self._stop)
            cause = StopCause.SIGNAL if self._requests.down is None else StopCause.DOWN
            await self._context.writer.write(
                lambda tx: tx.hosts.close(self._context.host_id, self._context.clock(), cause)
            )
        except Unavailable as trouble:
            log_line(f"holdfast: stopped, but that could not be recorded: {trouble}")


async def _run_forever(duty: Callable[[], Awaitable[None]]) -> None:
    """Run a background duty again and again. A failure is logged, and the duty is run again."""
    while True:
        try:
            await duty()
        except Exception as trouble:  # noqa: BLE001 - logged, and started again
            log_error("", trouble)
        await asyncio.sleep(TROUBLE_PAUSE)
