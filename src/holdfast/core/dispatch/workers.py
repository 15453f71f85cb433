"""Named long-lived workers: their states, and the decision after the agent of one crashes. Pure.

A worker claims matching tasks one at a time (`core.dispatch.terms.Lane` defines which). This module decides about the
worker alone. core/runs/policy.py decides about the task whose agent crashed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from holdfast.base.dataclass import dataclass
from holdfast.base.instant import Instant
from holdfast.core.dispatch.terms import Lane
from holdfast.core.runs.crashes import CRASHES, CrashReaction
from holdfast.core.runs.outcome import Outcome
from holdfast.core.runs.retry_budgets import RetryLimits

# seconds; a crash from further in the future proves nothing about how long the worker was quiet
_CLOCK_WAS_SET_BACK = 60.0


class WorkerState(StrEnum):
    READY = "ready"  # claims tasks
    STOPPED = "stopped"  # by an operator, or by a crash where `restart` is false: until an operator starts it
    BENCHED = "benched"  # crashed too often: until a quiet window has passed, or an operator restarts it
    RETIRED = "retired"  # no longer in the settings; its record is kept


WORKER_MOVES: Mapping[WorkerState, Mapping[WorkerState, str]] = {
    WorkerState.READY: {
        WorkerState.STOPPED: "an operator's stop, or a crash where `restart` is false",
        WorkerState.BENCHED: "the crash that is one too many within the window",
        WorkerState.RETIRED: "it is no longer in the settings",
    },
    WorkerState.STOPPED: {
        WorkerState.READY: "an operator's start or restart, or its crash was part of a mass death",
        WorkerState.RETIRED: "it is no longer in the settings",
    },
    WorkerState.BENCHED: {
        WorkerState.READY: "a window without a crash, an operator's start or restart, or a mass death",
        WorkerState.STOPPED: "an operator's stop",
        WorkerState.RETIRED: "it is no longer in the settings",
    },
    WorkerState.RETIRED: {WorkerState.READY: "it is in the settings again"},
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Worker:
    """One worker of the settings."""

    lane: Lane
    restart: bool  # True: the worker continues by itself after a crash

    @property
    def name(self) -> str:
        return self.lane.name


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerList:
    """The workers of the settings, and the rules that apply to each of them."""

    workers: tuple[Worker, ...] = ()
    release_claims: bool = True  # False: a task whose worker crashed waits for that worker

    def get(self, name: str | None) -> Worker | None:
        return next((worker for worker in self.workers if worker.name == name), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerRecord:
    """The store's record of a worker."""

    name: str
    state: WorkerState
    reason: str
    since: float  # wall time
    at_once: bool = False  # stopped with `--now`: its running agent is ended too
    by_crash: bool = False  # stopped or benched because its agent crashed, not by an operator


@dataclass(frozen=True, kw_only=True, slots=True)
class CrashDecision:
    """The decision about a worker after one of its runs (R-CRASH-05)."""

    answer: CrashReaction
    reason: str
    state: WorkerState  # of the worker from now on
    crashes: int = 0  # within the window, this one included
    counts: bool = False  # True: the crash is added to the worker's history


def decide_after_run(
    outcome: Outcome,
    record: WorkerRecord,
    earlier: Sequence[Instant],
    restart: bool,
    limits: RetryLimits,
    now: Instant,
    *,
    is_paid: bool = True,
) -> CrashDecision:
    """Decide about a worker after its run ended. `earlier` are the worker's crashes since an operator last started the
    worker.

    `is_paid` is false when the crash spends no budget at all (a mass death, R-CRASH-07).
    """
    if outcome not in CRASHES:
        return CrashDecision(answer=CrashReaction.IGNORE, reason=f"{outcome} is not a crash", state=record.state)
    if not is_paid:
        return CrashDecision(answer=CrashReaction.IGNORE, reason="it was part of a mass death", state=record.state)
    crashes = count_crashes_in_window(earlier, limits.crash_window, now) + 1
    if record.state is not WorkerState.READY:
        why = f"the worker is {record.state} already"
        return CrashDecision(answer=CrashReaction.IGNORE, reason=why, state=record.state, crashes=crashes, counts=True)
    if not restart:
        return CrashDecision(
            answer=CrashReaction.NOTIFY,
            reason="it restarts only when asked to (`crash.auto_restart`, or its own `restart`, is false)",
            state=WorkerState.STOPPED,
            crashes=crashes,
            counts=True,
        )
    if crashes >= limits.crash:
        return CrashDecision(
            answer=CrashReaction.NOTIFY,
            reason=f"crash {crashes} of {limits.crash} within {limits.crash_window:g} s",
            state=WorkerState.BENCHED,
            crashes=crashes,
            counts=True,
        )
    return CrashDecision(
        answer=CrashReaction.RESTART,
        reason=f"crash {crashes} of {limits.crash} within {limits.crash_window:g} s",
        state=WorkerState.READY,
        crashes=crashes,
        counts=True,
    )


def count_crashes_in_window(crashes: Sequence[Instant], window: float, now: Instant) -> int:
    """Count the crashes inside the sliding window. A crash exactly at its edge is outside (R-CRASH-04)."""
    return sum(1 for at in crashes if now.since(at) < window)


def is_bench_over(crashes: Sequence[Instant], window: float, now: Instant) -> bool:
    """True if a benched worker was quiet for a whole window. `crashes` are in the order in which they happened.

    After the clock was set back, a crash of an earlier boot may be in the future. Such a crash does not keep the worker
    benched, because the end of the bench would be unknown.
    """
    if not crashes:
        return True
    last = crashes[-1]
    from_the_future = last.boot_id != now.boot_id and last.wall > now.wall + _CLOCK_WAS_SET_BACK
    return from_the_future or now.since(last) >= window
