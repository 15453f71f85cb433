"""What a store must do for named long-lived workers: their states, their crashes, and the tasks that wait for one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.core.dispatch.workers import CrashDecision, WorkerRecord
from holdfast.core.model import Instant


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerCrash:
    """A run of a worker that ended in a crash, and what follows for the worker."""

    worker: str
    task_id: str
    run_id: str
    decision: CrashDecision
    why: str  # how the run ended
    recovered: str  # what became of its task
    error_tail: str = ""
    window: float = 0.0  # in which its crashes were counted


class Workers(Protocol):
    """Every move is a compare-and-set with its event."""

    def get(self, name: str) -> WorkerRecord | None: ...
    def all(self) -> Sequence[WorkerRecord]: ...
    def crashes(self, name: str) -> Sequence[Instant]:
        """Since an operator started it last, in the order in which they happened."""
        ...

    def enrol(self, names: Sequence[str], now: Instant) -> None:
        """The settings have exactly these: new ones are ready, those that came back too, the others are retired."""
        ...

    def start(self, name: str, by: str, now: Instant) -> WorkerRecord:
        """An operator's word: stopped or benched → ready, its crashes forgiven. Conflict when it is ready."""
        ...

    def restart(self, name: str, by: str, now: Instant) -> WorkerRecord:
        """The same, and no conflict when it is ready: then only its crashes are forgiven."""
        ...

    def stop(self, name: str, by: str, now: Instant, *, at_once: bool = False) -> WorkerRecord:
        """It takes no task any more, and those that were kept for it are free. `at_once`: its present one is ended."""
        ...

    def crashed(self, crash: WorkerCrash, now: Instant) -> None:
        """In the transaction that settles the run. A run that was told of before changes nothing."""
        ...

    def quiet(self, record: WorkerRecord, now: Instant) -> None:
        """A benched worker was quiet for a whole window: ready again."""
        ...

    def pardon(self, run_ids: Sequence[str], now: Instant) -> None:
        """These crashes were nobody's fault (a mass death): they count no more, and whom they stopped goes on."""
        ...
