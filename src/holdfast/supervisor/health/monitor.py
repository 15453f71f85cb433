"""Health in one place (R-TERM-01): every verdict on a living run is made here, and nowhere else.

One heap of due moments for all runs, one inotify queue, one snapshot of /proc for all that are due: an idle fleet costs
next to nothing. A change touches its own run only. Every run is looked at again after TICK at the latest, whatever
hints were missed. The exit of an agent is not noticed here but by its keeper's pidfd (attempt.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import math
from collections.abc import Callable, Coroutine, Iterable

from holdfast.base import clock
from holdfast.base.concurrency import in_thread
from holdfast.core.dispatch.holds import Sight
from holdfast.core.health.diagnosis import STOP_WHY, Condition, Diagnosis
from holdfast.core.health.signs import NearLimit
from holdfast.core.model import StopWhy
from holdfast.processes.port import Observer
from holdfast.supervisor.context import Bell, Context
from holdfast.supervisor.health import alerts
from holdfast.supervisor.health.run_facts import Watch
from holdfast.supervisor.log import debug, say_trouble
from holdfast.supervisor.ports import Patient
from holdfast.supervisor.service import Service
from holdfast.workspaces.snapshots.change_detection import Change, changed_since

TICK = 30.0  # the backstop (R-TERM-03)
SAVE_EVERY = 10.0
AGAIN = 1.0  # after a look that could not be taken, or a stop that could not be recorded
TOLD = 10.0  # between two looks at a run that was told of and may go on; its output wakes us at once
ABSENT = 5.0  # whoever oversleeps by so much was not there, and looks twice like one who takes over
READ_EVERY = 0.5  # its time is known from the file: only circles and tools are seen later by so much
BREATH = 0.02  # between two looks at a run that writes faster than we read
SNAPSHOT_SHARE = 50.0  # a snapshot is followed by so many times its cost without one: at most 2 % of a core


class Health(Service):
    """A service of the supervisor. Attempts tell which runs begin, are being ended, and are over."""

    def __init__(self, context: Context, monotonic: Callable[[], float] = clock.monotonic) -> None:
        self._context = context
        self._now = monotonic
        self._bell = Bell()
        self._watches: dict[str, Watch] = {}
        self._heap: list[tuple[float, str]] = []
        self._reactions: dict[str, asyncio.Task[None]] = {}
        self._observer: Observer | None = None
        self._reading_on: set[str] = set()  # runs that wrote more than one look reads: a timer for each
        self._written: set[str] = set()  # runs whose new output is read in a moment
        self._next_snapshot = -math.inf
        self.on_warning: Callable[[str, NearLimit], None] | None = None  # its account is near a limit: (run id, which)
        self.on_channel: Callable[[str], None] | None = None  # a run's agent wrote into its channel: (run id)

    # -- from the attempts -------------------------------------------------------------------------------------------

    def began(self, patient: Patient) -> None:
        if self._observer is None:
            self._observer = self._context.ports.processes.observe(self._on_change)
        now = self._now()
        view = self._observer.watch(patient.run_id, patient.signs, patient.agent if patient.adopted else None, now)
        watch = self._watches[patient.run_id] = Watch(patient, view, now)
        self._schedule(watch, now)

    def ending(self, run_id: str, grace: float) -> None:
        """It was told to stop: no verdict any more, but an alarm if it does not."""
        watch = self._watches.get(run_id)
        if watch is not None:
            watch.is_stopping = True
            watch.ending_within(grace, self._now())
            self._schedule(watch, watch.alarm_at)

    def over(self, run_id: str) -> None:
        """It ended, or we leave it to its keeper: then the next supervisor reads on from here."""
        watch = self._watches.pop(run_id, None)
        if watch is None:
            return
        if self._observer is not None:
            self._observer.unwatch(run_id)
        if not watch.view.leader_ended():
            watch.view.look(self._now())  # what it wrote in the last moment waits for READ_EVERY
            self._save(watch)

    def sight(self, run_id: str) -> Sight:
        """How a run fares that goes first where dispatch is held back."""
        watch = self._watches.get(run_id)
        if watch is None or watch.leader_ended:
            return Sight()
        talk = watch.view.talk
        return Sight(
            lived=self._now() - watch.view.started_at, has_answer=talk.has_answer, in_trouble=talk.plight is not None
        )

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """What is being told or done at this moment."""
        return list(self._reactions.values())

    def close(self) -> None:
        for run_id in list(self._watches):
            self.over(run_id)
        if self._observer is not None:
            self._observer.close()
            self._observer = None

    # -- when to look ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        while True:
            began = self._now()
            until = max(0.0, min(self._heap[0][0] - began, TICK)) if self._heap else TICK
            await self._bell.wait(until)
            if self._now() > began + until + ABSENT:
                self._begin_anew()
            self.look()

    def _begin_anew(self) -> None:
        """We stood still (stopped, or frozen together with our agents): what happened meanwhile proves nothing."""
        for watch in self._watches.values():
            watch.watched_since = self._now()

    def _schedule(self, watch: Watch, at: float) -> None:
        """At that moment, unless it is to be looked at earlier anyway. Older entries of it are passed over."""
        if at < watch.due:
            watch.due = at
            heapq.heappush(self._heap, (at, watch.patient.run_id))
            if self._heap[0][0] == at:
                self._bell.ring()

    def _on_change(self, run_id: str, is_output: bool) -> None:
        """What a run wrote to its logs can wait a moment, so that twenty lines cost as much as one."""
        if not is_output:
            self._note_change(run_id)
            return
        if not self._written:
            asyncio.get_running_loop().call_later(READ_EVERY, self._note_written)
        self._written.add(run_id)

    def _note_written(self) -> None:
        written, self._written = self._written, set()
        for run_id in written:
            self._note_change(run_id)

    def _note_change(self, run_id: str) -> None:
        """Cheap: it only notes when. A verdict is due when the silence is long enough, not at each line."""
        watch = self._watches.get(run_id)
        if watch is None:
            return
        if run_id in self._reading_on:
            return  # in a moment
        now = self._now()
        before, was_behind = watch.which_rule, watch.is_behind
        self._look_at(watch, now)
        has_caught_up = was_behind and not watch.is_behind
        if watch.is_looping or watch.view.told or watch.which_rule != before or has_caught_up:
            self._schedule(watch, now)
        elif watch.is_unsaved:
            self._schedule(watch, watch.saved_at + SAVE_EVERY)

    def _read_on(self, run_id: str) -> None:
        self._reading_on.discard(run_id)
        self._note_change(run_id)

    def _look_at(self, watch: Watch, now: float) -> None:
        """If there is more to read, it is read in a moment: the longer, the more runs want that."""
        run_id = watch.patient.run_id
        if run_id in self._reading_on:
            return
        seen = watch.view.look(now)
        watch.is_behind = seen.behind
        if seen.behind:
            self._reading_on.add(run_id)
            asyncio.get_running_loop().call_later(BREATH * len(self._reading_on), self._read_on, run_id)
        if seen.output and watch.patient.signs is not None:
            watch.is_unsaved = True
        if (spent := watch.passed_budget) is not None:  # no sick one: it is ended whatever `on_stuck` says
            self._do(run_id, watch.end(StopWhy.BUDGET, spent))
            self._schedule(watch, now + AGAIN)  # should that not be recorded
        if seen.channel and self.on_channel is not None:
            self.on_channel(run_id)
        near = watch.view.talk.near_limit
        if near is not None and near != watch.near_limit and self.on_warning is not None:
            watch.near_limit = near
            self.on_warning(run_id, near)
        if not watch.leader_ended and watch.view.leader_ended():
            watch.leader_ended = True
            watch.ending_within(watch.patient.grace, now)
            self._schedule(watch, watch.alarm_at)

    # -- a look ------------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """At every run that is due."""
        due = self._take_due()
        now = self._now()
        try:
            for watch in due:
                self._look_at(watch, now)
                watch.judge(now)
            self._look_at_trees(due, now)
            for watch in due:
                self._keep(watch, now)
                self._react(watch, now)
        finally:
            for watch in due:
                self._schedule(watch, self._next_moment(watch, now))

    def _take_due(self) -> list[Watch]:
        found: list[Watch] = []
        now = self._now()
        while self._heap and self._heap[0][0] <= now:
            at, run_id = heapq.heappop(self._heap)
            watch = self._watches.get(run_id)
            if watch is not None and watch.due == at:
                watch.due = math.inf
                found.append(watch)
        return found

    def _look_at_trees(self, due: Iterable[Watch], now: float) -> None:
        """If one of them needs it, a snapshot for all: then they are due together the next time as well."""
        wanted = [watch for watch in due if _wants_tree(watch, now) or now >= watch.alarm_at]
        if not wanted or self._observer is None:
            return
        if now < self._next_snapshot and not any(_cannot_wait(watch, now) for watch in wanted):
            return
        wanted_by = {watch.patient.run_id for watch in wanted}
        for run_id, watch in self._watches.items():
            if watch.diagnosis is not None and watch.diagnosis.needs_tree and run_id not in wanted_by:
                wanted.append(watch)
        began = clock.own_cpu()
        roots = {watch.patient.run_id: watch.patient.keeper for watch in wanted}
        trees = self._observer.trees({run_id: root for run_id, root in roots.items() if root is not None})
        after, boottime = self._now(), clock.boottime()
        self._next_snapshot = after + SNAPSHOT_SHARE * (clock.own_cpu() - began)
        for watch in wanted:
            tree = trees.get(watch.patient.run_id)
            if tree is not None:
                watch.note_tree(tree, after, boottime)
                watch.judge(after)

    def _next_moment(self, watch: Watch, now: float) -> float:
        at = min(now + TICK, watch.alarm_at if watch.alarm_at > now else now + AGAIN)
        if watch.is_unsaved:
            at = min(at, watch.saved_at + SAVE_EVERY)
        diagnosis = watch.diagnosis
        if diagnosis is None or watch.is_stopping or watch.leader_ended:
            return at
        if diagnosis.condition is not Condition.ALIVE:  # told already: it may wake up, or the stop failed
            return min(at, now + (AGAIN if watch.patient.rules.on_stuck == "kill" else TOLD))
        wanted = diagnosis.look_at
        if diagnosis.needs_tree:
            wanted = min(diagnosis.due, max(wanted, self._next_snapshot))
        if wanted <= diagnosis.facts.now:  # it could not be looked at: its keeper is gone, or hidden from us
            wanted = now + AGAIN
        return min(at, wanted)

    # -- what follows ------------------------------------------------------------------------------------------------

    def _react(self, watch: Watch, now: float) -> None:
        """In a task of its own: a store or a disk that takes its time must not keep other runs from being looked at."""
        diagnosis, run_id = watch.diagnosis, watch.patient.run_id
        if watch.is_stopping or watch.leader_ended or diagnosis is None:
            work = self._alarm(watch) if now >= watch.alarm_at else None
        else:
            debug(lambda: f"health of run {run_id}: {diagnosis.condition}; {'; '.join(diagnosis.evidence)}")
            if now >= watch.alarm_at:
                work = self._alarm(watch)
            else:
                is_alive = diagnosis.condition is Condition.ALIVE
                is_news = watch.view.told if is_alive else not watch.is_behind
                work = self._follow(watch, diagnosis) if is_news else None
        if work is not None:
            self._do(run_id, work)

    def _do(self, run_id: str, work: Coroutine[object, None, None]) -> None:
        if run_id in self._reactions:
            work.close()  # the last one is still at it
            return
        reaction = self._reactions[run_id] = asyncio.create_task(self._safely(run_id, work))
        reaction.add_done_callback(lambda _reaction: self._reactions.pop(run_id))

    async def _safely(self, run_id: str, work: Coroutine[object, None, None]) -> None:
        try:
            await work
        except Exception as trouble:  # noqa: BLE001 - told, and tried again at the next look
            say_trouble(f"the health of run {run_id}: ", trouble)

    async def _alarm(self, watch: Watch) -> None:
        await alerts.alarm(self._context, watch.patient, watch.pids)
        watch.alarm_at = math.inf

    async def _follow(self, watch: Watch, diagnosis: Diagnosis) -> None:
        if diagnosis.condition is Condition.ALIVE:
            await alerts.tell_recovery(self._context, watch.patient, watch.view.told, diagnosis)
            watch.view.told = ""
            self._save(watch)
            return
        if not watch.view.told:
            files: tuple[str, ...] = ()
            if diagnosis.condition is Condition.LOOPING:
                change = await self._change_of_files(watch)
                if change.name is not None:
                    return
                files = (alerts.NO_FILE if change.saw_all else alerts.NOT_ALL_FILES,)
            if not self._still_holds(watch, diagnosis):
                return
            await alerts.tell(self._context, watch.patient, diagnosis, files)
            watch.view.told = str(diagnosis.condition)
            self._save(watch)
        if watch.patient.rules.on_stuck == "kill" and self._still_holds(watch, diagnosis):
            await watch.patient.stop(STOP_WHY[diagnosis.condition], diagnosis.reason)

    def _still_holds(self, watch: Watch, diagnosis: Diagnosis) -> bool:
        """While something was looked up or recorded, it may have woken up, ended, or reported its result."""
        if self._watches.get(watch.patient.run_id) is not watch or watch.patient.claimed():
            return False
        self._look_at(watch, self._now())
        if watch.is_stopping or watch.leader_ended or watch.is_behind:
            return False
        return watch.judge(self._now()).condition is diagnosis.condition

    async def _change_of_files(self, watch: Watch) -> Change:
        """An agent that says the same again and again, but whose files change, makes progress (R-TERM-07)."""
        task_id, talk = watch.patient.task_id, watch.view.talk
        member = watch.patient.place_of
        workspace = await self._context.writer.write(lambda tx: tx.workspaces.current(task_id, member))
        if workspace is None:
            return Change(saw_all=False)
        since = watch.view.started_at if talk.progress_at is None else talk.progress_at
        change = await in_thread(changed_since, workspace.path, clock.file_time() - (self._now() - since))
        if change.name is not None:
            debug(lambda: f"health of run {watch.patient.run_id}: {change.name} changed: it does not go in circles")
            talk.progressed(self._now())
            watch.judge(self._now())
        return change

    def _keep(self, watch: Watch, now: float) -> None:
        if watch.is_unsaved and now >= watch.saved_at + SAVE_EVERY:
            watch.saved_at = now
            self._save(watch)

    def _save(self, watch: Watch) -> None:
        watch.is_unsaved = False
        with contextlib.suppress(OSError):  # a full disk, say: the next supervisor reads from the start
            watch.view.save()


def _cannot_wait(watch: Watch, now: float) -> bool:
    return now >= watch.alarm_at or (watch.diagnosis is not None and now >= watch.diagnosis.due)


def _wants_tree(watch: Watch, now: float) -> bool:
    diagnosis = watch.diagnosis
    return (
        diagnosis is not None
        and diagnosis.needs_tree
        and not watch.is_stopping
        and (diagnosis.condition is not Condition.ALIVE or diagnosis.look_at <= now)
    )
