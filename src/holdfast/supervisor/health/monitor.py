"""The health service: every verdict on a living run is made here, and nowhere else (R-TERM-01).

All runs share one heap of due times, one inotify queue, and one snapshot of /proc for all runs that are due. So an idle
fleet costs next to nothing. A change affects only its own run. Every run is looked at again after `monitor.every` at
the latest, even if a notification was missed. The exit of an agent is not detected here, but through its keeper's pidfd
(attempt.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import math
from collections.abc import Callable, Coroutine, Iterable

from holdfast.base import clock
from holdfast.base.concurrency import run_in_thread
from holdfast.core.dispatch.holds import ProbeSight
from holdfast.core.health.diagnosis import STOP_WHY, Condition, Diagnosis
from holdfast.core.health.signs import NearLimit
from holdfast.core.model import StopWhy
from holdfast.processes.port import Observer
from holdfast.supervisor.context import Context, WakeUp
from holdfast.supervisor.health import alerts
from holdfast.supervisor.health.run_facts import RunObservation
from holdfast.supervisor.log import log_debug, log_error
from holdfast.supervisor.ports import WatchedRun
from holdfast.supervisor.service import Service
from holdfast.workspaces.snapshots.change_detection import FoundChange, find_change_since

SAVE_EVERY = 2.0  # seconds between two savings of a view; `ps` reads there what the agent does
SAVES_SPREAD = 0.02  # seconds per run, where there are many: fifty savings a second at most
RETRY_AFTER = 1.0  # seconds after a look that failed, or a stop that could not be recorded
REPORTED_EVERY = 10.0  # seconds between two looks at a run that was reported and may go on; its output wakes us at once
OVERSLEPT_BY = 5.0  # seconds: if the loop slept this much longer than asked, runs are treated as just adopted
READ_EVERY = 0.5  # seconds: the file's time shows when output came; only loops and tools are seen this much later
READ_ON_AFTER = 0.02  # seconds between two looks at a run that writes faster than we read
SNAPSHOT_SHARE = 50.0  # after a snapshot, no other is taken for this many times its cost: at most 2 % of a core


class HealthService(Service):
    """The health service. Attempts report to it which runs begin, are being ended, and are over."""

    def __init__(self, context: Context, monotonic: Callable[[], float] = clock.monotonic) -> None:
        self._context = context
        self._now = monotonic
        self._bell = WakeUp()
        self._watches: dict[str, RunObservation] = {}
        self._heap: list[tuple[float, str]] = []
        self._reactions: dict[str, asyncio.Task[None]] = {}
        self._observer: Observer | None = None
        self._reading_on: set[str] = set()  # runs that wrote more than one look reads: a timer for each
        self._written: set[str] = set()  # runs whose new output is read in a moment
        self._next_snapshot = -math.inf
        self._numbers = context.settings.thresholds  # a reload may replace those of the context
        # called when the account of a run is near a limit: (run id, warning)
        self.on_warning: Callable[[str, NearLimit], None] | None = None
        self.on_channel: Callable[[str], None] | None = None  # called when an agent wrote into its channel: (run id)

    # -- from the attempts -------------------------------------------------------------------------------------------

    def began(self, patient: WatchedRun) -> None:
        if self._observer is None:
            self._observer = self._context.ports.processes.observe(self._on_change)
        now = self._now()
        view = self._observer.watch(patient.run_id, patient.signs, patient.agent if patient.is_adopted else None, now)
        watch = self._watches[patient.run_id] = RunObservation(patient, view, now, self._numbers)
        self._schedule(watch, now)

    def ending(self, run_id: str, grace: float) -> None:
        """Note that a run was asked to stop. No further verdict is made about it, but an alert is raised if it does not
        end."""
        watch = self._watches.get(run_id)
        if watch is not None:
            watch.is_stopping = True
            watch.expect_end_within(grace, self._now())
            self._schedule(watch, watch.alarm_at)

    def over(self, run_id: str) -> None:
        """Forget a run that ended or is left to its keeper. If its keeper has it, the next supervisor continues to read
        at the present position."""
        watch = self._watches.pop(run_id, None)
        if watch is None:
            return
        if self._observer is not None:
            self._observer.unwatch(run_id)
        if not watch.view.leader_ended():
            watch.view.look(self._now())  # reads what the agent wrote in the last moment, which waits for READ_EVERY
            self._save(watch)

    def probe_sight(self, run_id: str) -> ProbeSight:
        """Return the observed state of a run that is the probe of a hold."""
        watch = self._watches.get(run_id)
        if watch is None or watch.leader_ended:
            return ProbeSight()
        talk = watch.view.talk
        return ProbeSight(
            lived=self._now() - watch.view.started_at, has_answer=talk.has_answer, in_trouble=talk.stall is not None
        )

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """The reactions that are under way at this moment."""
        return list(self._reactions.values())

    def close(self) -> None:
        for run_id in list(self._watches):
            self.over(run_id)
        if self._observer is not None:
            self._observer.close()
            self._observer = None

    # -- when to look ------------------------------------------------------------------------------------------------

    async def tick(self) -> None:
        """Apply changed thresholds to all runs: each run is examined now, and then as often as the new thresholds
        require."""
        if self._numbers == self._context.settings.thresholds:
            return
        self._numbers = self._context.settings.thresholds
        for watch in self._watches.values():
            watch.apply_thresholds(self._numbers)
            self._schedule(watch, self._now())
        self._bell.ring()

    async def run(self) -> None:
        while True:
            began = self._now()
            every = self._numbers.look_every
            until = max(0.0, min(self._heap[0][0] - began, every)) if self._heap else every
            await self._bell.wait(until)
            if self._now() > began + until + OVERSLEPT_BY:
                self._treat_as_adopted()
            self.look()

    def _treat_as_adopted(self) -> None:
        """Treat all runs as just adopted, because this process stood still (stopped, or frozen together with our
        agents). The silence of that time proves nothing."""
        for watch in self._watches.values():
            watch.watched_since = self._now()

    def _schedule(self, watch: RunObservation, at: float) -> None:
        """Schedule a look at the run at the time `at`, unless an earlier look is due. Older heap entries of the run are
        ignored."""
        if at < watch.due:
            watch.due = at
            heapq.heappush(self._heap, (at, watch.patient.run_id))
            if self._heap[0][0] == at:
                self._bell.ring()

    def _on_change(self, run_id: str, is_output: bool) -> None:
        """Note a change of a run. The output is read a moment later, so twenty lines cost as much as one."""
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
        """Note when the run changed, which is cheap. A verdict is made when the silence is long enough, not at each
        line."""
        watch = self._watches.get(run_id)
        if watch is None:
            return
        if run_id in self._reading_on:
            return  # it is read in a moment
        now = self._now()
        before, was_behind = watch.threshold_key, watch.is_behind
        self._read_run(watch, now)
        has_caught_up = was_behind and not watch.is_behind
        if watch.is_looping or watch.view.told or watch.threshold_key != before or has_caught_up:
            self._schedule(watch, now)
        elif watch.is_unsaved:
            self._schedule(watch, self._next_save(watch))

    def _continue_reading(self, run_id: str) -> None:
        self._reading_on.discard(run_id)
        self._note_change(run_id)

    def _read_run(self, watch: RunObservation, now: float) -> None:
        """Read the new output of a run. If there is more to read, the rest is read after a short delay. The delay is
        longer when more runs wait."""
        run_id = watch.patient.run_id
        if run_id in self._reading_on:
            return
        seen = watch.view.look(now)
        watch.is_behind = seen.behind
        if seen.behind:
            self._reading_on.add(run_id)
            asyncio.get_running_loop().call_later(READ_ON_AFTER * len(self._reading_on), self._continue_reading, run_id)
        if seen.output:
            watch.is_unsaved = True
        if (
            spent := watch.reason_over_cap
        ) is not None:  # not a health problem: the run is ended whatever `on_stuck` is
            self._start_reaction(run_id, watch.end(StopWhy.BUDGET, spent))
            self._schedule(watch, now + RETRY_AFTER)  # in case the stop cannot be recorded
        if seen.channel and self.on_channel is not None:
            self.on_channel(run_id)
        near = watch.view.talk.near_limit
        if near is not None and near != watch.near_limit and self.on_warning is not None:
            watch.near_limit = near
            self.on_warning(run_id, near)
        if not watch.leader_ended and watch.view.leader_ended():
            watch.leader_ended = True
            watch.expect_end_within(watch.patient.grace, now)
            self._schedule(watch, watch.alarm_at)

    # -- a look ------------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Look at every run that is due."""
        due = self._take_due()
        now = self._now()
        try:
            for watch in due:
                self._read_run(watch, now)
                watch.judge(now)
            self._snapshot_trees(due, now)
            for watch in due:
                self._save_if_due(watch, now)
                self._react(watch, now)
        finally:
            for watch in due:
                self._schedule(watch, self._next_moment(watch, now))

    def _take_due(self) -> list[RunObservation]:
        found: list[RunObservation] = []
        now = self._now()
        while self._heap and self._heap[0][0] <= now:
            at, run_id = heapq.heappop(self._heap)
            watch = self._watches.get(run_id)
            if watch is not None and watch.due == at:
                watch.due = math.inf
                found.append(watch)
        return found

    def _snapshot_trees(self, due: Iterable[RunObservation], now: float) -> None:
        """Take one snapshot of /proc for all due runs if one of them needs it. These runs are due together the next
        time as well."""
        wanted = [watch for watch in due if _needs_tree(watch, now) or now >= watch.alarm_at]
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
                watch.record_tree(tree, after, boottime)
                watch.judge(after)

    def _next_moment(self, watch: RunObservation, now: float) -> float:
        every = self._numbers.look_every
        at = min(now + every, watch.alarm_at if watch.alarm_at > now else now + RETRY_AFTER)
        if watch.is_unsaved:
            at = min(at, self._next_save(watch))
        diagnosis = watch.diagnosis
        if diagnosis is None or watch.is_stopping or watch.leader_ended:
            return at
        if diagnosis.condition is not Condition.ALIVE:  # reported already: the agent may recover, or the stop failed
            return min(at, now + (RETRY_AFTER if watch.patient.rules.on_stuck == "kill" else REPORTED_EVERY))
        wanted = diagnosis.look_at
        if diagnosis.needs_tree:
            wanted = min(diagnosis.due, max(wanted, self._next_snapshot))
        if wanted <= diagnosis.facts.now:  # it could not be looked at: its keeper is gone, or hidden from us
            wanted = now + RETRY_AFTER
        return min(at, wanted)

    # -- reactions ------------------------------------------------------------------------------------------------

    def _react(self, watch: RunObservation, now: float) -> None:
        """React to a diagnosis in a separate asyncio task, because a slow store or disk must not delay the look at
        other runs."""
        diagnosis, run_id = watch.diagnosis, watch.patient.run_id
        if watch.is_stopping or watch.leader_ended or diagnosis is None:
            work = self._alarm(watch) if now >= watch.alarm_at else None
        else:
            log_debug(lambda: f"health of run {run_id}: {diagnosis.condition}; {'; '.join(diagnosis.evidence)}")
            if now >= watch.alarm_at:
                work = self._alarm(watch)
            else:
                is_alive = diagnosis.condition is Condition.ALIVE
                is_news = watch.view.told if is_alive else not watch.is_behind
                work = self._act_on_diagnosis(watch, diagnosis) if is_news else None
        if work is not None:
            self._start_reaction(run_id, work)

    def _start_reaction(self, run_id: str, work: Coroutine[object, None, None]) -> None:
        if run_id in self._reactions:
            work.close()  # the previous reaction still runs
            return
        reaction = self._reactions[run_id] = asyncio.create_task(self._run_logged(run_id, work))
        reaction.add_done_callback(lambda _reaction: self._reactions.pop(run_id))

    async def _run_logged(self, run_id: str, work: Coroutine[object, None, None]) -> None:
        try:
            await work
        except Exception as trouble:  # noqa: BLE001 - logged, and tried again at the next look
            log_error(f"the health of run {run_id}: ", trouble)

    async def _alarm(self, watch: RunObservation) -> None:
        await alerts.alert_unended_run(self._context, watch.patient, watch.pids)
        watch.alarm_at = math.inf

    async def _act_on_diagnosis(self, watch: RunObservation, diagnosis: Diagnosis) -> None:
        if diagnosis.condition is Condition.ALIVE:
            await alerts.report_recovery(self._context, watch.patient, watch.view.told, diagnosis)
            watch.view.told = ""
            self._save(watch)
            return
        if not watch.view.told:
            files: tuple[str, ...] = ()
            if diagnosis.condition is Condition.LOOPING:
                change = await self._find_file_change(watch)
                if change.name is not None:
                    return
                files = (alerts.NO_FILE_CHANGED if change.saw_all else alerts.NOT_ALL_FILES,)
            if not self._still_holds(watch, diagnosis):
                return
            await alerts.report_diagnosis(self._context, watch.patient, diagnosis, files)
            watch.view.told = str(diagnosis.condition)
            self._save(watch)
        if watch.patient.rules.on_stuck == "kill" and self._still_holds(watch, diagnosis):
            await watch.patient.stop(STOP_WHY[diagnosis.condition], diagnosis.reason)

    def _still_holds(self, watch: RunObservation, diagnosis: Diagnosis) -> bool:
        """True if the diagnosis still holds. Meanwhile the agent may have recovered, ended, or reported its result."""
        if self._watches.get(watch.patient.run_id) is not watch or watch.patient.has_claimed_result():
            return False
        self._read_run(watch, self._now())
        if watch.is_stopping or watch.leader_ended or watch.is_behind:
            return False
        return watch.judge(self._now()).condition is diagnosis.condition

    async def _find_file_change(self, watch: RunObservation) -> FoundChange:
        """Return a change in the workspace. An agent that repeats itself while its files change makes progress
        (R-TERM-07)."""
        task_id, talk = watch.patient.task_id, watch.view.talk
        member = watch.patient.place_of
        workspace = await self._context.writer.write(lambda tx: tx.workspaces.current(task_id, member))
        if workspace is None:
            return FoundChange(saw_all=False)
        since = watch.view.started_at if talk.progress_at is None else talk.progress_at
        change = await run_in_thread(find_change_since, workspace.path, clock.file_time() - (self._now() - since))
        if change.name is not None:
            log_debug(lambda: f"health of run {watch.patient.run_id}: {change.name} changed: it does not go in circles")
            talk.record_progress(self._now())
            watch.judge(self._now())
        return change

    def _save_if_due(self, watch: RunObservation, now: float) -> None:
        if watch.is_unsaved and now >= self._next_save(watch):
            watch.saved_at = now
            self._save(watch)

    def _next_save(self, watch: RunObservation) -> float:
        return watch.saved_at + max(SAVE_EVERY, SAVES_SPREAD * len(self._watches))

    def _save(self, watch: RunObservation) -> None:
        watch.is_unsaved = False
        with contextlib.suppress(OSError):  # a full disk, for example: the next supervisor reads from the start
            watch.view.save()


def _cannot_wait(watch: RunObservation, now: float) -> bool:
    return now >= watch.alarm_at or (watch.diagnosis is not None and now >= watch.diagnosis.due)


def _needs_tree(watch: RunObservation, now: float) -> bool:
    diagnosis = watch.diagnosis
    return (
        diagnosis is not None
        and diagnosis.needs_tree
        and not watch.is_stopping
        and (diagnosis.condition is not Condition.ALIVE or diagnosis.look_at <= now)
    )
