"""Named long-lived workers: their states, and what follows when the agent of one crashes. Pure.

A worker pulls matching tasks one at a time (core/dispatch.Lane says which). Its own record is about the worker alone:
what becomes of the task whose agent crashed, core/runs/policy.py decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from holdfast.base.instant import Instant
from holdfast.core.dispatch.terms import Lane
from holdfast.core.runs.crashes import CRASHES, Answer
from holdfast.core.runs.outcome import Outcome
from holdfast.core.runs.retry_budgets import Limits

_CLOCK_WAS_SET_BACK = 60.0  # a crash from so far in the future says nothing about how long it has been quiet


class WorkerState(StrEnum):
    READY = "ready"  # it pulls tasks
    STOPPED = "stopped"  # by an operator, or by a crash where `restart` is false: until an operator starts it
    BENCHED = "benched"  # it crashed too often: until a quiet window has passed, or an operator restarts it
    RETIRED = "retired"  # no longer in the settings; what it was is kept


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
    """One worker as the settings have it."""

    lane: Lane
    restart: bool  # whether it goes on by itself after a crash

    @property
    def name(self) -> str:
        return self.lane.name


@dataclass(frozen=True, kw_only=True, slots=True)
class Staff:
    """All workers of the settings, and what holds for each of them."""

    workers: tuple[Worker, ...] = ()
    release_claims: bool = True  # False: a task whose worker crashed waits for that worker

    def get(self, name: str | None) -> Worker | None:
        return next((worker for worker in self.workers if worker.name == name), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerRecord:
    """What the store knows of a worker."""

    name: str
    state: WorkerState
    reason: str
    since: float  # wall time
    at_once: bool = False  # stopped with `--now`: the agent at work is ended too
    by_crash: bool = False  # it is stopped or benched because its agent crashed, not because somebody said so


@dataclass(frozen=True, kw_only=True, slots=True)
class CrashDecision:
    """R-CRASH-05: what is done about a worker after one of its runs."""

    answer: Answer
    reason: str
    state: WorkerState  # of the worker from now on
    crashes: int = 0  # within the window, this one included
    counts: bool = False  # whether the crash goes into the worker's history


def after_run(
    outcome: Outcome,
    record: WorkerRecord,
    earlier: Sequence[Instant],
    restart: bool,
    limits: Limits,
    now: Instant,
    *,
    is_paid: bool = True,
) -> CrashDecision:
    """What a run's ending means for its worker. `earlier` are its crashes since an operator started it last.

    `is_paid` is false when the crash spends nothing, of nobody (a mass death, R-CRASH-07).
    """
    if outcome not in CRASHES:
        return CrashDecision(answer=Answer.IGNORE, reason=f"{outcome} is not a crash", state=record.state)
    if not is_paid:
        return CrashDecision(answer=Answer.IGNORE, reason="it was part of a mass death", state=record.state)
    crashes = recent(earlier, limits.crash_window, now) + 1
    if record.state is not WorkerState.READY:
        why = f"the worker is {record.state} already"
        return CrashDecision(answer=Answer.IGNORE, reason=why, state=record.state, crashes=crashes, counts=True)
    if not restart:
        return CrashDecision(
            answer=Answer.NOTIFY,
            reason="it restarts only when asked to (`crash.auto_restart`, or its own `restart`, is false)",
            state=WorkerState.STOPPED,
            crashes=crashes,
            counts=True,
        )
    if crashes >= limits.crash:
        return CrashDecision(
            answer=Answer.NOTIFY,
            reason=f"crash {crashes} of {limits.crash} within {limits.crash_window:g} s",
            state=WorkerState.BENCHED,
            crashes=crashes,
            counts=True,
        )
    return CrashDecision(
        answer=Answer.RESTART,
        reason=f"crash {crashes} of {limits.crash} within {limits.crash_window:g} s",
        state=WorkerState.READY,
        crashes=crashes,
        counts=True,
    )


def recent(crashes: Sequence[Instant], window: float, now: Instant) -> int:
    """Crashes inside the sliding window; one exactly at its edge is outside (R-CRASH-04)."""
    return sum(1 for at in crashes if now.since(at) < window)


def bench_is_over(crashes: Sequence[Instant], window: float, now: Instant) -> bool:
    """Whether a benched worker was quiet for a whole window. `crashes` in the order in which they happened.

    A crash of an earlier boot that lies in the future (the clock was set back since) keeps nobody benched: nobody
    knows when that would end.
    """
    if not crashes:
        return True
    last = crashes[-1]
    from_the_future = last.boot_id != now.boot_id and last.wall > now.wall + _CLOCK_WAS_SET_BACK
    return from_the_future or now.since(last) >= window
