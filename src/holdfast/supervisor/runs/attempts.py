"""All attempts of this supervisor: started, watched, restarted when a step failed for a passing reason."""

from __future__ import annotations

import asyncio
import contextlib
import math
import traceback
from dataclasses import replace

from holdfast.base.concurrency import in_thread
from holdfast.base.errors import HoldfastError, NotOwner, Unavailable, is_passing
from holdfast.core.model import Event, Level, Run, StopWhy, Task
from holdfast.core.runs.outcome import Cause, Outcome, ProcessEnd, Verdict
from holdfast.core.runs.policy import Action, Decision
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Bell, Context
from holdfast.supervisor.dispatch.spending import record_usage
from holdfast.supervisor.log import say, say_trouble
from holdfast.supervisor.runs.attempt import Attempt
from holdfast.supervisor.runs.launch import agents_word
from holdfast.supervisor.runs.member import with_agent_of
from holdfast.supervisor.runs.settle import settle
from holdfast.supervisor.service import Service

LONGEST_PAUSE = 30.0
ALERT_FROM = 4.0  # the fourth failure in a row is no passing trouble any more


def _beats_wanted(task: Task) -> float:
    """Every so many seconds."""
    return task.spec.orphan_grace / 3


class Attempts(Service):
    def __init__(self, context: Context) -> None:
        self._context = context
        self._attempts: dict[str, Attempt] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._workers: dict[str, str | None] = {}  # task → the named worker that has it
        self._leaving = asyncio.Event()  # the supervisor goes
        self._impatient = Bell()  # somebody came whose keeper would not wait for the next beat
        self._beat_in = math.inf
        context.shared.places.room = lambda: context.settings.agents - self.anonymous

    def start(self, task: Task) -> None:
        driving = asyncio.create_task(self._keep_driving(task), name=f"attempt {task.id}")
        self._tasks[task.id] = driving
        self._workers[task.id] = task.worker
        driving.add_done_callback(lambda _driving: self._over(task.id, driving))

    def _over(self, task_id: str, driving: asyncio.Task[None]) -> None:
        """As a callback, because a task that is cancelled before its first step runs no `finally` of its own."""
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
    def anonymous(self) -> int:
        """Those that no named worker has. Claims ask in the writer's thread; attempts end in the loop's."""
        return list(self._workers.values()).count(None)

    @property
    def workers(self) -> frozenset[str]:
        """The named workers that are at work; likewise."""
        return frozenset(worker for worker in list(self._workers.values()) if worker is not None)

    @property
    def living(self) -> list[Attempt]:
        return [attempt for attempt in self._attempts.values() if not attempt.frozen]

    def get(self, task_id: str) -> Attempt | None:
        return self._attempts.get(task_id)

    def beat(self) -> None:
        for attempt in self._attempts.values():
            attempt.beat()

    async def until_beat(self, usually: float) -> None:
        """Until it is time to beat again: well within the patience of the most impatient keeper, also of one that
        comes meanwhile."""
        self._beat_in = min([usually, *(_beats_wanted(attempt.task) for attempt in self._attempts.values())])
        await self._impatient.wait(self._beat_in)

    async def stop_all(self, why: StopWhy, *, fast: bool) -> None:
        if why is StopWhy.DOWN:
            self._leaving.set()
            if fast:
                self._context.services.checkpoints.hurry()
        results = await asyncio.gather(
            *(attempt.stop(why, fast=fast) for attempt in self.living), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                say(f"holdfast: a stop could not be recorded and is tried again: {result}")

    async def send_again(self) -> None:
        """Stops whose record failed: an agent that was not told goes on, and we would wait for ever."""
        for attempt in self.living:
            try:
                await attempt.send_again()
            except Exception as trouble:  # noqa: BLE001 - told, and tried again in a moment
                say_trouble(f"the stop of task {attempt.task.id} could not be recorded and is tried again: ", trouble)

    async def wait_all(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks.values())

    def abandon(self) -> None:
        """Leave the agents to their keepers: what a crash would do, on purpose (`down --keep-agents`)."""
        for task in self._tasks.values():
            task.cancel()

    async def assume_dead(self, attempt: Attempt) -> bool:
        """An operator vouches that nothing of a frozen run lives: end it as cancelled. Not while its keeper lives."""
        verdict = Verdict(outcome=Outcome.CANCELLED, reason="an operator vouched that nothing of it lives")
        open_runs = await self._context.writer.write(lambda tx: tx.runs.open_runs(attempt.task.id))
        if any(self._context.ports.processes.is_held(run.id) for run in open_runs):
            return False
        own: Run | None = None
        for run in open_runs:
            verdict = await self._take_for_dead(attempt, run, verdict)
            own = own if run.member else run
        await settle(self._context, attempt.task, attempt.grip, own.id if own else None, verdict)
        self._attempts.pop(attempt.task.id, None)
        return True

    async def _take_for_dead(self, attempt: Attempt, run: Run, verdict: Verdict) -> Verdict:
        if run.outcome is not None:
            return verdict
        task = with_agent_of(attempt.task, run)
        final = await self._with_what_it_took(task, run, verdict)

        def record(tx: Transaction) -> None:
            tx.runs.ended(attempt.grip, run.id, final, self._context.clock())
            record_usage(self._context, tx, task, run.id, final)
            if run.member:
                decision = Decision(action=Action.CANCEL, reason=final.reason)
                tx.tasks.settle_member(attempt.grip, run.id, final, decision, self._context.clock())

        await self._context.writer.write(record)
        return verdict if run.member else final

    async def _with_what_it_took(self, task: Task, run: Run, verdict: Verdict) -> Verdict:
        """Nobody saw its end, but what it said that it used was used."""
        live = self._context.ports.processes.find(run.id)
        try:
            end = ProcessEnd(cause=Cause.UNPROVEN)
            said = await in_thread(agents_word, self._context, task, run, live, end)
        except (HoldfastError, OSError, ValueError) as trouble:  # its records are gone, say: its end matters more
            say_trouble(f"what run {run.id} used is not known: ", trouble)
            return verdict
        finally:
            live.close()
        return replace(verdict, usage=said.usage)

    async def _keep_driving(self, task: Task) -> None:
        """A step that fails for a passing reason (disk full, say) is tried again from what the store then says."""
        pause = 0.5
        attempt: Attempt | None = None
        try:
            while True:
                attempt = self._attempts[task.id] = Attempt(self._context, task, attempt)
                if _beats_wanted(task) < self._beat_in:
                    self._impatient.ring()
                try:
                    await attempt.drive()
                    break
                except Exception as error:  # noqa: BLE001 - nothing may end an attempt in silence
                    await self._tell_trouble(task, error, pause)
                    if (
                        pause >= LONGEST_PAUSE
                        and not isinstance(error, OSError | Unavailable)
                        and not is_passing(error)
                    ):
                        attempt.frozen = True  # a fault of ours, not of the machine: it will not mend by repeating
                        break
                    if self._leaving.is_set() and pause >= ALERT_FROM:
                        break  # as after a crash: the next supervisor goes on from here
                await self._rest(pause)
                pause = min(LONGEST_PAUSE, pause * 2)
                if not await self._is_still_ours(attempt):
                    break  # its last step was the settlement, and only what came after it failed
            if not attempt.frozen:
                del self._attempts[task.id]
        finally:
            self._forget(task.id)  # before anybody who waits for us looks

    async def _rest(self, pause: float) -> None:
        """Before the next try. Whoever has waited long already does not hold a supervisor up that is about to go."""
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
            return True  # cannot tell: the next step is refused if it is not
        return (now.owner, now.fence) == (attempt.grip.owner, attempt.grip.fence)

    async def _tell_trouble(self, task: Task, error: Exception, pause: float) -> None:
        trace = "".join(traceback.format_exception(error))
        reason = str(error) or type(error).__name__  # a MemoryError has no words
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
        except Exception as second:  # noqa: BLE001 - the store itself may be the trouble: say it where we still can
            say_trouble(f"A step of task {task.id} failed (and that could not be recorded: {second}): ", error)

    async def _alert(self, task: Task, error: Exception) -> None:
        await self._context.writer.write(
            lambda tx: tx.events.raise_alert(
                f"trouble:{task.id}",
                f"Task {task.id} cannot go on: {error}",
                f"`holdfast events {task.id} --json` has the details; the next `holdfast up` tries again.",
                self._context.clock(),
                task_id=task.id,
            )
        )


async def recover(context: Context, attempts: Attempts) -> None:
    """Adopt every running task of a host that is gone. The attempt then goes on from what it finds."""
    left = await context.writer.write(lambda tx: tx.tasks.running_elsewhere(context.host_id))
    for task in left:
        await _adopt(context, attempts, task)
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


async def _adopt(context: Context, attempts: Attempts, task: Task) -> None:
    try:
        adopted = await context.writer.write(lambda tx: tx.tasks.adopt(task, context.host_id, context.clock()))
    except NotOwner:
        return
    with contextlib.suppress(Unavailable):  # their file is being edited, say: its agent runs on all the same
        context.ports.environment(adopted.spec.environment)  # its secrets are known to us now, as if we had started it
    attempts.start(adopted)
