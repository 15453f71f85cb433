"""The attempts of this supervisor: started, watched, and restarted when a step failed for a temporary reason.

`recover` runs at start-up, before the first claim: it takes over what an earlier supervisor left running. Repeating it
is harmless.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import traceback
from dataclasses import replace

from holdfast.base.concurrency import run_in_thread
from holdfast.base.errors import HoldfastError, NotOwner, Unavailable, is_transient
from holdfast.core.model import Event, Level, Run, StopWhy, Task
from holdfast.core.runs.outcome import Cause, Outcome, ProcessEnd, Verdict
from holdfast.core.runs.policy import Decision, PolicyAction
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context, WakeUp
from holdfast.supervisor.dispatch.spending import record_usage
from holdfast.supervisor.log import log_error, log_line
from holdfast.supervisor.runs.attempt import Attempt
from holdfast.supervisor.runs.launch import verdict_from_output
from holdfast.supervisor.runs.member import task_with_agent_of_run
from holdfast.supervisor.runs.settle import settle
from holdfast.supervisor.service import Service

LONGEST_PAUSE = 30.0
ALERT_FROM = 4.0  # the fourth failure in a row is no longer a temporary failure


def _heartbeat_interval(task: Task) -> float:
    """Return the seconds between two heartbeats that the keeper of this task needs."""
    return task.spec.orphan_grace / 3


class Attempts(Service):
    def __init__(self, context: Context) -> None:
        self._context = context
        self._attempts: dict[str, Attempt] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._workers: dict[str, str | None] = {}  # task → the named worker that claimed it
        self._leaving = asyncio.Event()  # set when the supervisor leaves
        self._impatient = WakeUp()  # rung when a task starts whose keeper needs an earlier heartbeat
        self._beat_in = math.inf
        context.shared.places.room = lambda: context.settings.agents - self.count_without_worker

    def start(self, task: Task) -> None:
        driving = asyncio.create_task(self._keep_driving(task), name=f"attempt {task.id}")
        self._tasks[task.id] = driving
        self._workers[task.id] = task.worker
        driving.add_done_callback(lambda _driving: self._on_driver_done(task.id, driving))

    def _on_driver_done(self, task_id: str, driving: asyncio.Task[None]) -> None:
        """Forget the attempt of a task when its driver is done.

        This is a callback because a coroutine that is cancelled before its first step never runs its own `finally`.
        """
        if self._tasks.get(task_id) is driving:
            self._forget(task_id)
        self._context.shared.places.changed()
        self._context.bell.ring()

    def _forget(self, task_id: str) -> None:
        self._tasks.pop(task_id, None)
        self._workers.pop(task_id, None)

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        return list(self._tasks.values())

    @property
    def busy(self) -> bool:
        return bool(self._tasks)

    @property
    def running(self) -> int:
        return len(self._tasks)

    @property
    def count_without_worker(self) -> int:
        """The number of running tasks that no named worker has.

        Claims read this in the writer's thread while attempts end in the loop's thread: hence the copy of the list.
        """
        return list(self._workers.values()).count(None)

    @property
    def workers(self) -> frozenset[str]:
        """The named workers that have a running task. Two threads read this, as they read `count_without_worker`."""
        return frozenset(worker for worker in list(self._workers.values()) if worker is not None)

    @property
    def unfrozen(self) -> list[Attempt]:
        return [attempt for attempt in self._attempts.values() if not attempt.frozen]

    def get(self, task_id: str) -> Attempt | None:
        return self._attempts.get(task_id)

    def beat(self) -> None:
        for attempt in self._attempts.values():
            attempt.beat()

    async def wait_for_next_heartbeat(self, usually: float) -> None:
        """Wait until the next heartbeat is due.

        The wait is well within the shortest time after which a keeper without heartbeats ends its agent. A keeper that
        starts meanwhile shortens it.
        """
        self._beat_in = min([usually, *(_heartbeat_interval(attempt.task) for attempt in self._attempts.values())])
        await self._impatient.wait(self._beat_in)

    async def stop_all(self, why: StopWhy, *, fast: bool) -> None:
        if why is StopWhy.DOWN:
            self._leaving.set()
            if fast:
                self._context.services.checkpoints.hurry()
        results = await asyncio.gather(
            *(attempt.stop(why, fast=fast) for attempt in self.unfrozen), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                log_line(f"holdfast: a stop could not be recorded and is tried again: {result}")

    async def send_again(self) -> None:
        """Try again to record and send the stops that could not be recorded.

        Without the stop the agent would continue, and the supervisor would wait for it.
        """
        for attempt in self.unfrozen:
            try:
                await attempt.send_again()
            except Exception as trouble:  # noqa: BLE001 - logged, and tried again in a moment
                log_error(f"the stop of task {attempt.task.id} could not be recorded and is tried again: ", trouble)

    async def wait_all(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks.values())

    def abandon(self) -> None:
        """Leave the agents to their keepers, as a crash would do, but on purpose (`down --keep-agents`)."""
        for task in self._tasks.values():
            task.cancel()

    async def assume_dead(self, attempt: Attempt) -> bool:
        """End a frozen run as cancelled, because an operator states that none of its processes lives.

        Return False while the run's keeper lives: then nothing is changed.
        """
        verdict = Verdict(outcome=Outcome.CANCELLED, reason="an operator confirmed that all of its processes are dead")
        open_runs = await self._context.writer.write(lambda tx: tx.runs.open_runs(attempt.task.id))
        if any(self._context.ports.processes.is_held(run.id) for run in open_runs):
            return False
        own: Run | None = None
        for run in open_runs:
            verdict = await self._record_assumed_death(attempt, run, verdict)
            own = own if run.member else run
        await settle(self._context, attempt.task, attempt.ownership, own.id if own else None, verdict)
        self._attempts.pop(attempt.task.id, None)
        return True

    async def _record_assumed_death(self, attempt: Attempt, run: Run, verdict: Verdict) -> Verdict:
        if run.outcome is not None:
            return verdict
        task = task_with_agent_of_run(attempt.task, run)
        final = await self._with_reported_usage(task, run, verdict)

        def record(tx: Transaction) -> None:
            tx.runs.ended(attempt.ownership, run.id, final, self._context.clock())
            record_usage(self._context, tx, task, run.id, final)
            if run.member:
                decision = Decision(action=PolicyAction.CANCEL, reason=final.reason)
                tx.tasks.settle_member(attempt.ownership, run.id, final, decision, self._context.clock())

        await self._context.writer.write(record)
        return verdict if run.member else final

    async def _with_reported_usage(self, task: Task, run: Run, verdict: Verdict) -> Verdict:
        """Return the verdict with the usage that the agent reported. The end of the run was not observed, but its
        tokens were used."""
        live = self._context.ports.processes.find(run.id)
        try:
            end = ProcessEnd(cause=Cause.UNPROVEN)
            said = await run_in_thread(verdict_from_output, self._context, task, run, live, end)
        # its records may be gone: the end of the run matters more
        except (HoldfastError, OSError, ValueError) as trouble:
            log_error(f"the usage of run {run.id} is not known: ", trouble)
            return verdict
        finally:
            live.close()
        return replace(verdict, usage=said.usage)

    async def _keep_driving(self, task: Task) -> None:
        """Drive a task until its attempt is over. A step that failed for a temporary reason (a full disk, for example)
        is tried again from the state in the store."""
        pause = 0.5
        attempt: Attempt | None = None
        try:
            while True:
                attempt = self._attempts[task.id] = Attempt(self._context, task, attempt)
                if _heartbeat_interval(task) < self._beat_in:
                    self._impatient.ring()
                try:
                    await attempt.drive()
                    break
                except Exception as error:  # noqa: BLE001 - nothing may end an attempt in silence
                    await self._record_failed_step(task, error, pause)
                    if (
                        pause >= LONGEST_PAUSE
                        and not isinstance(error, OSError | Unavailable)
                        and not is_transient(error)
                    ):
                        attempt.frozen = True  # a defect of ours, not of the machine: repeating does not fix it
                        break
                    if self._leaving.is_set() and pause >= ALERT_FROM:
                        break  # as after a crash: the next supervisor continues from here
                await self._pause_before_retry(pause)
                pause = min(LONGEST_PAUSE, pause * 2)
                if not await self._is_still_ours(attempt):
                    break  # The last step was the settlement, and only what came after it failed.
            if not attempt.frozen:
                del self._attempts[task.id]
        finally:
            self._forget(task.id)  # before a waiting caller looks

    async def _pause_before_retry(self, pause: float) -> None:
        """Pause before the next try. A pause that has begun ends when the supervisor begins to leave."""
        if self._leaving.is_set():
            await asyncio.sleep(pause)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._leaving.wait()

    async def _is_still_ours(self, attempt: Attempt) -> bool:
        try:
            now = await self._context.writer.write(lambda tx: tx.tasks.get(attempt.task.id))
        except Unavailable:
            return True  # unknown: the next step is refused if the task is not ours
        return (now.owner, now.fence) == (attempt.ownership.owner, attempt.ownership.fence)

    async def _record_failed_step(self, task: Task, error: Exception, pause: float) -> None:
        trace = "".join(traceback.format_exception(error))
        reason = str(error) or type(error).__name__  # a MemoryError has no text
        event = Event(
            kind="attempt.trouble",
            level=Level.WARNING,
            task_id=task.id,
            message=f"A step of task {task.id} failed and is tried again in {pause:g} s: {reason}",
            reason=reason,
            data={"trace": trace[-2000:]},
        )
        try:
            await self._context.writer.write(lambda tx: tx.events.emit(event, self._context.clock()))
            if pause >= ALERT_FROM:
                await self._alert(task, error)
        except Exception as second:  # noqa: BLE001 - the store itself may have failed: write to our own output instead
            log_error(f"A step of task {task.id} failed (and that could not be recorded: {second}): ", error)

    async def _alert(self, task: Task, error: Exception) -> None:
        await self._context.writer.write(
            lambda tx: tx.events.raise_alert(
                f"trouble:{task.id}",
                f"Task {task.id} cannot continue: {error}",
                f"`holdfast events {task.id} --json` has the details; the next `holdfast up` tries again.",
                self._context.clock(),
                task_id=task.id,
            )
        )


async def recover(context: Context, attempts: Attempts) -> None:
    """Adopt every running task of a supervisor that is gone. The attempt of each task continues from the state that it
    finds."""
    left = await context.writer.write(lambda tx: tx.tasks.running_elsewhere(context.host_id))
    for task in left:
        await _adopt_task(context, attempts, task)
    if left:
        await context.writer.write(
            lambda tx: tx.events.emit(
                Event(
                    kind="recovery.completed",
                    message=f"Took over {len(left)} task(s) of an earlier supervisor.",
                    data={"tasks": [task.id for task in left]},
                ),
                context.clock(),
            )
        )


async def _adopt_task(context: Context, attempts: Attempts, task: Task) -> None:
    try:
        adopted = await context.writer.write(lambda tx: tx.tasks.adopt(task, context.host_id, context.clock()))
    except NotOwner:
        return
    # The environment file may be edited at this moment: the agent continues all the same.
    with contextlib.suppress(Unavailable):
        context.ports.environment(adopted.spec.environment)  # learns the task's secrets, as if we had started it
    attempts.start(adopted)
