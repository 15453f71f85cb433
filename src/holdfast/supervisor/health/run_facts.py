"""What the health service knows of one run: what was seen so far, turned into facts for core/health/diagnosis.py."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

from holdfast.agents.port import sign_reader
from holdfast.core.dispatch.spending import Meter
from holdfast.core.health.diagnosis import Diagnosis, Facts, TreeFacts, judge, window_of
from holdfast.core.health.signs import NearLimit
from holdfast.core.health.stalled import CpuTrail, Plight
from holdfast.core.model import Run, StopWhy, Task
from holdfast.core.runs.liveness import Identity
from holdfast.core.states import RunState
from holdfast.processes.port import LiveRun, Tree, View
from holdfast.supervisor.context import Context
from holdfast.supervisor.ports import Patient

UNENDED_AFTER = 2.0  # seconds after its grace that a run which is being ended may still live (R-TERM-06)


class Watch:
    """Moments are CLOCK_MONOTONIC."""

    def __init__(self, patient: Patient, view: View, now: float) -> None:
        self.patient = patient
        self.view = view
        self.due = math.inf  # as it stands in the service's heap
        self.saved_at = now
        self.is_unsaved = False
        self.is_behind = False  # there is output that we have not read: what we know of its talk is old
        self.is_stopping = False
        self.leader_ended = False
        self.alarm_at = view.started_at + patient.timeout + patient.grace + UNENDED_AFTER
        self.diagnosis: Diagnosis | None = None
        self.near_limit: NearLimit | None = None  # what was told of it
        self.watched_since = now if patient.adopted else view.started_at
        self._trail: CpuTrail | None = None
        self._tree: Tree | None = None
        self._child_at: float | None = None

    def judge(self, now: float) -> Diagnosis:
        self.diagnosis = judge(self._facts(now), self.patient.rules)
        return self.diagnosis

    @property
    def is_looping(self) -> bool:
        return 0 < self.patient.rules.loop_steps <= self.view.talk.steps

    @property
    def passed_budget(self) -> str | None:
        """Why it has to end, if it has used up what its task may."""
        meter, talk = self.patient.meter, self.view.talk
        if (
            meter is None
            or not talk.spending.is_told
            or self.is_stopping
            or self.leader_ended
            or self.patient.claimed()
        ):
            return None
        return meter.passed(talk.spending.total)

    async def end(self, why: StopWhy, reason: str) -> None:
        await self.patient.stop(why, reason)

    @property
    def which_rule(self) -> tuple[bool, int, Plight | None]:
        """When this changes, another threshold holds: the moment of the next look must be found anew."""
        has_sign = self.view.output_at is not None or self.view.channel_at is not None
        return has_sign, len(self.view.talk.tools), self.view.talk.plight

    def ending_within(self, grace: float, now: float) -> None:
        self.alarm_at = min(self.alarm_at, now + grace + UNENDED_AFTER)

    def note_tree(self, tree: Tree, now: float, boottime: float) -> None:
        """A look at its processes. A process that is younger than all we saw is a sign of life of its own time."""
        rules, seen = self.patient.rules, self._facts(now).sign_at is not None
        window = window_of(rules, seen=seen)
        if self._trail is None or self._trail.window != window:
            self._trail = CpuTrail(window)
            if self._tree is None:
                self._trail.add(self.view.started_at, 0.0)  # nobody has to look to know that
        if self._tree is not None and tree.newest_start > self._tree.newest_start:
            self._child_at = max(self._trail.read_at or 0.0, now - max(0.0, boottime - tree.newest_start))
        self._tree = tree
        self._trail.add(now, tree.cpu)

    @property
    def pids(self) -> tuple[int, ...]:
        return self._tree.pids if self._tree is not None else ()

    def _facts(self, now: float) -> Facts:
        talk = self.view.talk
        return Facts(
            now=now,
            started_at=self.view.started_at,
            watched_since=self.watched_since,
            reads_events=self.patient.signs is not None,
            output_at=self.view.output_at,
            heartbeat_at=self.view.channel_at,
            tools=tuple(talk.tools.values()),
            steps=talk.steps,
            last_step=talk.last_step,
            plight=talk.plight,
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


def patient_of(
    context: Context,
    task: Task,
    run: Run,
    live: LiveRun,
    root: Identity | None,
    meter: Meter | None,
    stop: Callable[[StopWhy, str], Awaitable[None]],
    claimed: Callable[[], bool],
    place_of: str = "",
) -> Patient:
    """`root`: of its process tree, where that is not its keeper."""
    spec = task.spec
    return Patient(
        run_id=run.id,
        task_id=task.id,
        rules=spec.health,
        signs=sign_reader(context.ports.agents[spec.agent]),
        timeout=spec.timeout if run.timeout is None else run.timeout,
        grace=spec.grace,
        keeper=root or live.keeper,
        agent=live.agent or live.keeper,
        adopted=run.state is not RunState.INTENDED,
        meter=meter,
        stop=stop,
        claimed=claimed,
        place_of=place_of,
    )


def told_to_stop(context: Context, run_id: str, grace: float, *, fast: bool) -> None:
    context.services.checkpoints.over(run_id)  # one that is under way must not hold the end up
    if fast:
        context.services.checkpoints.hasten(run_id)
    context.services.health.ending(run_id, grace)


def look_away(context: Context, run_id: str) -> None:
    context.services.health.over(run_id)
    context.services.checkpoints.over(run_id)
