"""Circumstances that delay the fleet at one moment, and the reasons that follow for each task.

`Circumstances` is read once per refresh (why/read.py). `waits` returns the reasons of one task, the most important one
first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

from holdfast.api.fleet.rows import LIVING, turn
from holdfast.api.tasks.stages import describe_running_gate
from holdfast.api.tasks.why.activity import Activity
from holdfast.api.tasks.why.outcome import end_clause
from holdfast.api.tasks.why.reason import Candidate, SupervisorFacts, WaitCause, WaitKind, WaitReason
from holdfast.api.tasks.why.text import clause
from holdfast.base.dataclass import dataclass

if TYPE_CHECKING:
    from holdfast.api.fleet.models import FleetRow, WorkerStateRow
    from holdfast.core.dispatch.workers import Worker

Turn = tuple[int, bool, int]
Test = Callable[[Candidate], WaitReason | None]
_PAUSES = {
    "operator": WaitKind.OPERATOR_PAUSE,
    "rate_limit": WaitKind.LIMIT_PAUSE,
    "usage_limit": WaitKind.LIMIT_PAUSE,
    "context_limit": WaitKind.LIMIT_PAUSE,
    "auth": WaitKind.LOGIN_PAUSE,
    "billing": WaitKind.LOGIN_PAUSE,
    "budget": WaitKind.BUDGET_PAUSE,
    "gate": WaitKind.GATE_PAUSE,
    "outage": WaitKind.OUTAGE_PAUSE,
}
# the same as in core/runs/retry_budgets.py; a test compares
FREE_RESUMES = frozenset({"auth", "billing", "approval", "gate", "operator"})
_PLAIN = frozenset({"waiting for a free agent", "claimed"})  # recorded reasons that add nothing to the state


@dataclass(frozen=True)
class Circumstances:
    """Everything that delays tasks at one moment. The object never changes, so any thread may use it."""

    supervisor: SupervisorFacts | None = None
    tests: Sequence[Test] = ()  # parked or stopped accounts, spent budgets, holds
    resumes: bool = True  # paused tasks resume by themselves when their limit ends
    workers: Mapping[str, WorkerStateRow] = field(default_factory=dict)
    lanes: Sequence[Worker] = ()  # not empty: only these workers run agents
    alerts: Mapping[str, int] = field(default_factory=dict)  # task → open alerts
    queue: Sequence[Turn] = ()  # turns of the queued tasks, in order
    ahead: int | None = None  # counted by the store when only one task is read; None: count in `queue`
    checkouts: Mapping[str, str] = field(default_factory=dict)  # repository → the task that works in its checkout
    at_work: int = 0
    activities: Mapping[str, Activity] = field(default_factory=dict)  # running task → what its agent does

    def why(self, row: FleetRow, now: float) -> str:
        """Return the clause of a task, marked if the task has an open alert."""
        words = self.clause(row, now)
        return f"alert! {words}" if row["id"] in self.alerts else words

    def clause(self, row: FleetRow, now: float) -> str:
        """Return one clause about a task in any state."""
        return "".join(self.parts(row, now))

    def parts(self, row: FleetRow, now: float) -> tuple[str, str]:
        """Return the clause in two parts. The second one, the age of an activity, stays when the first one is cut."""
        if row["state"] == "running":
            gate = row["running_gate"]
            if gate is not None and self.supervisor is not None:
                words, age = describe_running_gate(gate, now)
                return words, f", {age}"
            words, activity = self._running(row), self.activities.get(row["id"])
            if activity is None or self.supervisor is None or not row["open_runs"]:
                return words, ""
            return f"{words}: {activity.text}" if words else activity.text, f", {activity.age(now)}"
        first = next(self.waits(row, now), None)
        if first is None:
            return end_clause(row), ""
        words = clause(first, now)
        is_plain = row["state"] != "queued" or not row["reason"] or row["reason"] in _PLAIN
        return words if is_plain else f"{words}; {row['reason']}", ""

    def _running(self, row: FleetRow) -> str:
        """Return the clause about a running task, apart from what its agent does."""
        if self.supervisor is None:
            return "no supervisor is running: its agent is not watched"
        if row["last_run"] and row["last_run"][0] == "ended":
            return "its agent has ended; its work is being checked and saved"
        if not row["last_run"] or row["last_run"][0] == "settled":
            return "its workspace is being prepared" if not row["runs"] else "between two runs"
        state, _started, stop_why, progress = row["last_run"]
        if state == "stopping":
            return f"it is stopped ({stop_why})"
        if progress:
            told = [f"{progress['percent']:g} %"] if progress["percent"] is not None else []
            return ": ".join([*told, progress["message"] or ""]).rstrip(": ")
        return "" if row["reason"] in _PLAIN else row["reason"] or ""

    def waits(self, row: FleetRow, now: float, *, in_line: bool = True) -> Iterator[WaitReason]:
        """Yield the reasons for which a task waits, the most important one first.

        `in_line`: include the task's position in the queue.
        """
        if row["state"] == "paused":
            yield self._pause(row)
        if self.supervisor is None and row["state"] in LIVING:
            yield WaitReason(kind=WaitKind.NO_SUPERVISOR, command="holdfast up", needs_person=True)
        if row["state"] == "queued":
            yield from self._queued(row, now)
            if in_line and not row["needs"]:
                yield from self._in_line(row)

    def _pause(self, row: FleetRow) -> WaitReason:
        reason, at = str(row["pause_reason"]), row["resume_after"]
        found = WaitReason(
            kind=_PAUSES.get(reason, WaitKind.OPERATOR_PAUSE), name=reason, text=row["reason"] or "", until=at
        )
        if row["stage"] is not None and row["stage"]["awaits_approval"]:
            command = f"holdfast approve {row['id']}"
            return replace(found, kind=WaitKind.APPROVAL, until=None, command=command, needs_person=True)
        is_automatic = at is not None and (self.resumes or reason == "operator")
        found = replace(found, command=f"holdfast resume {row['id']}", needs_person=not is_automatic)
        most = row["max_resumes"]
        if reason in FREE_RESUMES or most is None:
            return found
        is_last = self.resumes and row["resume_attempts"] + 1 >= most
        found = replace(found, count=row["resume_attempts"], limit=most, fails_at_limit=is_last)
        return found if found.resumes_left else replace(found, command=f"holdfast resume {row['id']} --force")

    def _queued(self, row: FleetRow, now: float) -> Iterator[WaitReason]:
        if row["needs"]:
            causes = tuple(WaitCause(name=task, state=state) for task, state in row["needs"].items())
            yield WaitReason(kind=WaitKind.DEPENDENCIES, causes=causes)
        if (row["not_before"] or 0) > now:
            kind = WaitKind.BACK_OFF if row["runs"] else WaitKind.NOT_BEFORE
            yield WaitReason(kind=kind, until=row["not_before"])
        candidate = candidate_of(row)
        if self.supervisor is not None and self.supervisor.held:
            yield WaitReason(kind=WaitKind.PRESSURE, text=self.supervisor.held)
        for test in self.tests:
            if (found := test(candidate)) is not None:
                yield found
        if row["issue"]:
            yield WaitReason(kind=WaitKind.ISSUE, name=row["issue"], command="holdfast tracker")
        if (lane := self._worker(row, candidate)) is not None:
            yield lane
        if row["strategy"] == "none" and row["repo_id"] in self.checkouts:
            yield WaitReason(kind=WaitKind.CHECKOUT, name=row["repo"], tasks=(self.checkouts[row["repo_id"]],))

    def _worker(self, row: FleetRow, candidate: Candidate) -> WaitReason | None:
        """Return the wait for a worker that does not take the task now."""
        if row["worker"]:
            found = self.workers.get(row["worker"])
            cause = WaitCause(name=row["worker"])
            if found is not None:
                cause = replace(cause, state=found["state"], reason=found["reason"])
            return WaitReason(
                kind=WaitKind.WORKER,
                name=row["worker"],
                causes=(cause,),
                command=f"holdfast worker restart {row['worker']}",
                needs_person=cause.state == "stopped",
            )
        if not self.lanes:
            return None
        causes = self._matching(candidate)
        if _is_any_ready(causes):
            return None
        return WaitReason(
            kind=WaitKind.NO_WORKER,
            causes=causes,
            command=f"holdfast worker start {causes[0].name}" if causes else "holdfast worker list",
            needs_person=all(cause.state == "stopped" for cause in causes),
        )

    def _matching(self, candidate: Candidate) -> tuple[WaitCause, ...]:
        """Return the workers that may take the task; a worker that the store does not know has no state."""
        names = [worker.name for worker in self.lanes if may_take(worker, candidate)]
        return tuple(
            WaitCause(name=name, state=self.workers[name]["state"] if name in self.workers else "") for name in names
        )

    def _in_line(self, row: FleetRow) -> Iterator[WaitReason]:
        ahead = bisect_left(self.queue, turn(row)) if self.ahead is None else self.ahead
        if ahead:
            yield WaitReason(kind=WaitKind.QUEUED_BEHIND, count=ahead)
        if row["worker"]:
            return
        if self.lanes:
            causes = self._matching(candidate_of(row))
            if _is_any_ready(causes):
                yield WaitReason(kind=WaitKind.ANY_WORKER, causes=causes)
        elif not ahead and self.supervisor is not None and self.at_work >= self.supervisor.agents:
            yield WaitReason(kind=WaitKind.SLOTS, count=self.at_work, limit=self.supervisor.agents)
        elif not ahead:
            yield WaitReason(kind=WaitKind.NEXT)


def _is_any_ready(workers: Sequence[WaitCause]) -> bool:
    """True if one of the workers takes tasks now, or will once a supervisor has started it."""
    return any(worker.state in ("", "ready", "retired") for worker in workers)


def candidate_of(row: FleetRow) -> Candidate:
    return Candidate(row["id"], row["agent"], row["account"], row["provider"], row["labels"], row["repo"])


def may_take(worker: Worker, task: Candidate) -> bool:
    """True if the worker may take the task, as the claim decides (queries/tasks.sql, `on_terms`)."""
    lane = worker.lane
    return (
        (lane.agent is None or lane.agent == task.agent)
        and (lane.account is None or task.account is None or task.account == lane.account)
        and all(task.labels.get(key) == value for key, value in lane.labels.items())
    )
