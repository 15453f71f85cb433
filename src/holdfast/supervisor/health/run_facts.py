"""The facts that the health service has about one run, for core/health/diagnosis.py.

Attempts report through this module that a run begins, is being stopped, or is over. It notifies the health and
checkpoint services.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

from holdfast.agents.port import sign_reader
from holdfast.core.dispatch.spending import SpendingMeter
from holdfast.core.health.diagnosis import Diagnosis, RunFacts, TreeFacts, cpu_window, diagnose
from holdfast.core.health.signs import NearLimit
from holdfast.core.health.stalled import CpuTrail, Stall
from holdfast.core.model import Run, StopWhy, Task
from holdfast.core.runs.liveness import ProcessIdentity
from holdfast.core.states import RunState
from holdfast.processes.port import LiveRun, ProcessTree, RunViewPort
from holdfast.supervisor.context import Context
from holdfast.supervisor.ports import WatchedRun
from holdfast.supervisor.settings import Thresholds


class RunObservation:
    """The observations of one run. All moments are CLOCK_MONOTONIC."""

    def __init__(self, patient: WatchedRun, view: RunViewPort, now: float, numbers: Thresholds) -> None:
        self.patient = patient
        self._numbers = numbers
        self.view = view
        self.due = math.inf  # the same as in the service's heap
        self.saved_at = now
        self.is_unsaved = False
        self.is_behind = False  # there is unread output: what we know of the agent's events is old
        self.is_stopping = False
        self.leader_ended = False
        self.alarm_at = view.started_at + patient.timeout + patient.grace + numbers.alarm_after
        self.diagnosis: Diagnosis | None = None
        self.near_limit: NearLimit | None = None  # the last warning that was reported
        self.watched_since = now if patient.is_adopted else view.started_at
        self._trail: CpuTrail | None = None
        self._tree: ProcessTree | None = None
        self._child_at: float | None = None

    def judge(self, now: float) -> Diagnosis:
        self.diagnosis = diagnose(self._facts(now), self.patient.rules)
        return self.diagnosis

    @property
    def is_looping(self) -> bool:
        return 0 < self.patient.rules.loop_steps <= self.view.talk.steps

    @property
    def reason_over_cap(self) -> str | None:
        """The reason why the run has to end, if it has used up its spending cap. Otherwise None."""
        meter, talk = self.patient.meter, self.view.talk
        if (
            meter is None
            or not talk.spending.is_told
            or self.is_stopping
            or self.leader_ended
            or self.patient.has_claimed_result()
        ):
            return None
        return meter.passed(talk.spending.total)

    async def end(self, why: StopWhy, reason: str) -> None:
        await self.patient.stop(why, reason)

    @property
    def threshold_key(self) -> tuple[bool, int, Stall | None]:
        """The values that select the threshold. When they change, the moment of the next look must be computed
        again."""
        has_sign = self.view.output_at is not None or self.view.channel_at is not None
        return has_sign, len(self.view.talk.tools), self.view.talk.stall

    def apply_thresholds(self, numbers: Thresholds) -> None:
        """Use changed settings from now on. CPU time that was compared with another share proves nothing."""
        if numbers.quiet_share != self._numbers.quiet_share:
            self._trail = None
        self.alarm_at += numbers.alarm_after - self._numbers.alarm_after
        self._numbers = numbers

    def expect_end_within(self, grace: float, now: float) -> None:
        self.alarm_at = min(self.alarm_at, now + grace + self._numbers.alarm_after)

    def record_tree(self, tree: ProcessTree, now: float, boottime: float) -> None:
        """Record a look at the run's processes. A process that started after all processes seen before is a sign of
        life at its start time."""
        rules, seen = self.patient.rules, self._facts(now).sign_at is not None
        window = cpu_window(rules, seen=seen)
        if self._trail is None or self._trail.window != window:
            self._trail = CpuTrail(window, self._numbers.quiet_share)
            if self._tree is None:
                self._trail.add(self.view.started_at, 0.0)  # known without a look
        if self._tree is not None and tree.newest_start > self._tree.newest_start:
            self._child_at = max(self._trail.read_at or 0.0, now - max(0.0, boottime - tree.newest_start))
        self._tree = tree
        self._trail.add(now, tree.cpu)

    @property
    def pids(self) -> tuple[int, ...]:
        return self._tree.pids if self._tree is not None else ()

    def _facts(self, now: float) -> RunFacts:
        talk = self.view.talk
        return RunFacts(
            now=now,
            started_at=self.view.started_at,
            watched_since=self.watched_since,
            reads_events=self.patient.signs is not None,
            output_at=self.view.output_at,
            heartbeat_at=self.view.channel_at,
            tools=tuple(talk.tools.values()),
            steps=talk.steps,
            last_step=talk.last_step,
            stall=talk.stall,
            tree=self._tree_facts(),
        )

    def _tree_facts(self) -> TreeFacts | None:
        trail, tree = self._trail, self._tree
        if trail is None or tree is None or trail.read_at is None or trail.quiet_since is None:
            return None
        return TreeFacts(
            looked_at=trail.read_at,
            members=len(tree.pids),
            child_at=self._child_at,
            quiet_since=trail.quiet_since,
            share=trail.share,
            span=trail.span,
            at_work=trail.at_work,
        )


def watched_run(
    context: Context,
    task: Task,
    run: Run,
    live: LiveRun,
    root: ProcessIdentity | None,
    meter: SpendingMeter | None,
    stop: Callable[[StopWhy, str], Awaitable[None]],
    claimed: Callable[[], bool],
    place_of: str = "",
) -> WatchedRun:
    """Return the watched run. `root`: the root of its process tree, if the keeper is not the root."""
    spec = task.spec
    return WatchedRun(
        run_id=run.id,
        task_id=task.id,
        rules=spec.health,
        signs=sign_reader(context.ports.agents[spec.agent]),
        timeout=spec.timeout if run.timeout is None else run.timeout,
        grace=spec.grace,
        keeper=root or live.keeper,
        agent=live.agent or live.keeper,
        is_adopted=run.state is not RunState.INTENDED,
        meter=meter,
        stop=stop,
        has_claimed_result=claimed,
        place_of=place_of,
    )


def notify_stopping(context: Context, run_id: str, grace: float, *, fast: bool) -> None:
    context.services.checkpoints.over(run_id)  # a checkpoint that is under way must not delay the end
    if fast:
        context.services.checkpoints.skip_wait_for_run(run_id)
    context.services.health.ending(run_id, grace)


def unregister_run(context: Context, run_id: str) -> None:
    context.services.health.over(run_id)
    context.services.checkpoints.over(run_id)
