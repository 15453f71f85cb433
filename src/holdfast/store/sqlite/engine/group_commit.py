"""Group commit: one thread, one connection, and all waiting operations in one transaction.

`synchronous=FULL` costs an fsync per commit, so many small commits are slow and one large one is not. A refused
operation (for example a stale fence) does not affect the others. The transaction is rolled back and the others of its
batch run again, each in a savepoint. A savepoint costs every operation a tenth more, so it is used only then. A
caller's future resolves only after COMMIT. The operation of a caller that was cancelled meanwhile is still written: its
recorded operation id proves that.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import apsw

from holdfast.base import clock, faults
from holdfast.base.errors import DiskFull, LeaseLost, Unavailable
from holdfast.store.sqlite.engine import connection as opening
from holdfast.store.sqlite.engine.disk_reserve import DiskReserve
from holdfast.store.sqlite.engine.reader import DATABASE
from holdfast.store.sqlite.engine.write_queue import WriteQueue
from holdfast.store.sqlite.transaction import SqliteTransaction

T = TypeVar("T")
LARGE_BATCH = 16
LONGEST_WAIT_FOR_CALLERS = 0.05
MOST_IN_A_BATCH = 1_000  # about 30 ms, during which other processes wait in the write queue


@dataclass(slots=True)
class _Job:
    operation: Callable[[SqliteTransaction], Any]
    operation_id: str | None
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None


class GroupWriter:
    """The supervisor's only writer. `beat` is added to a batch every `beat_every` seconds."""

    def __init__(
        self,
        home: str,
        *,
        beat: Callable[[SqliteTransaction], None] | None = None,
        beat_every: float = 5.0,
        on_lease_lost: Callable[[], None] = lambda: None,
        on_batch: Callable[[], None] = lambda: None,
    ) -> None:
        """Open the database and start the thread. `on_batch` is called on the loop after every batch that had
        callers, so that followers look at the store."""
        self._path = os.path.join(home, DATABASE)
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._beat = beat
        self._beat_every = beat_every
        self._on_lease_lost = on_lease_lost
        self._on_batch = on_batch
        self._reserve = DiskReserve(home)
        self._reserve.ensure()
        opening.require_current(self._path)
        self._connection = opening.open_connection(self._path)
        self._turnstile = WriteQueue(os.path.join(home, "turnstile.lock"), opening.BUSY_TIMEOUT_MS / 1000)
        self._transaction = SqliteTransaction(self._connection).whole()
        self._closed = False
        self._callers_ran = threading.Event()
        # A daemon thread: a writer that waits for a stopped process must not keep a stopping supervisor alive.
        self._thread = threading.Thread(target=self._work, name="store-writer", daemon=True)
        self._thread.start()

    def write(self, operation: Callable[[SqliteTransaction], T], operation_id: str | None = None) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self._loop.create_future()
        if self._closed:
            future.set_exception(Unavailable("The store's writer is closed."))
        else:
            self._jobs.put(_Job(operation, operation_id, future))
        return future

    def close(self) -> None:
        """Finish all operations that were handed in, then stop. Idempotent."""
        if not self._closed:
            self._closed = True
            self._jobs.put(None)
            self._thread.join(timeout=10)

    # -- the thread ----------------------------------------------------------------------------------------------

    def _work(self) -> None:
        next_beat = time.monotonic()
        open_for_jobs = True
        while open_for_jobs:
            batch, open_for_jobs = self._collect(next_beat)
            beat_due = self._beat is not None and time.monotonic() >= next_beat
            if batch or beat_due:
                self._commit(batch, beat_due)
            if beat_due:
                self._reserve.ensure()
                self._limit_wal()
                next_beat = time.monotonic() + self._beat_every
        self._connection.close()
        self._turnstile.close()

    def _collect(self, next_beat: float) -> tuple[list[_Job], bool]:
        """Return all waiting jobs, and False if the writer is closing. Block until there is a job or a beat is due."""
        batch: list[_Job] = []
        try:
            timeout = None if self._beat is None else max(0.0, next_beat - time.monotonic())
            job = self._jobs.get(timeout=timeout)
            while True:
                if job is None:
                    return batch, False
                batch.append(job)
                if len(batch) >= MOST_IN_A_BATCH:
                    return batch, True
                job = self._jobs.get_nowait()
        except queue.Empty:
            return batch, True

    def _commit(self, batch: list[_Job], beat_due: bool) -> None:
        failure = self._commit_once(batch, beat_due)
        if isinstance(failure, DiskFull) and self._reserve.give_up():
            failure = self._commit_once([*batch, self._disk_full_alert_job()], beat_due)
        self._answer(batch, failure)

    def _commit_once(self, batch: list[_Job], beat_due: bool) -> BaseException | None:
        """Run all jobs in one transaction. Return the error of the transaction itself, or None."""
        failure: BaseException | None = None
        try:
            with opening.translate_errors(self._path), self._turnstile.turn():
                self._begin()
                try:
                    self._run_all(batch)
                    if beat_due:
                        self._add_beat()
                    faults.tx("writer.commit")
                    self._connection.execute("COMMIT")
                    faults.passed("writer.committed")
                except BaseException:
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
                    raise
        except Exception as error:  # noqa: BLE001 - every error must reach the callers, and the thread must live
            failure = error
        return failure

    def _limit_wal(self) -> None:
        with contextlib.suppress(apsw.Error, OSError):
            opening.limit_wal(self._connection, self._path)

    def _disk_full_alert_job(self) -> _Job:
        """Return a job that raises the alert about a full disk. No caller waits for the job. It joins the batch for
        which the released reserve made space."""

        def tell(tx: SqliteTransaction) -> None:
            tx.events.raise_alert(
                "disk:full",
                f"The disk of {os.path.dirname(self._path)} is full. Running agents continue; what cannot be written "
                f"is "
                "tried again.",
                "Free space: soon nothing more can be recorded.",
                clock.now(),
            )

        return _Job(tell, None, self._loop.create_future())

    def _begin(self) -> None:
        """Begin a transaction. Another process that is stopped inside its own transaction blocks all writers. Wait for
        that process instead of failing the batch."""
        if self._connection.in_transaction:  # the rollback of the last batch failed
            self._connection.execute("ROLLBACK")
        while True:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
            except apsw.BusyError:
                continue
            return

    def _run_all(self, batch: list[_Job]) -> None:
        for done, job in enumerate(batch):
            self._attempt(job)
            if job.error is not None:
                # Its partial writes must go, and only the whole transaction can be undone. The refusal stays valid: the
                # job saw what the jobs before it had written, and they write the same again.
                self._connection.execute("ROLLBACK")
                self._begin()
                for other in (*batch[:done], *batch[done + 1 :]):
                    self._run_in_savepoint(other)
                return

    def _run_in_savepoint(self, job: _Job) -> None:
        self._connection.execute("SAVEPOINT job")
        self._attempt(job)
        if job.error is not None:
            self._connection.execute("ROLLBACK TO job")
        self._connection.execute("RELEASE job")

    def _attempt(self, job: _Job) -> None:
        job.error = None  # this may be the second try
        try:
            job.result = job.operation(self._transaction)
            if job.operation_id is not None:
                self._transaction.remember_operation(job.operation_id, clock.now())
        except (apsw.FullError, apsw.IOError, apsw.CorruptError, apsw.NoMemError, MemoryError, OSError):
            raise  # the whole transaction is in doubt, not only this operation
        except Exception as error:  # noqa: BLE001 - every error of an operation belongs to its caller
            job.error = error

    def _add_beat(self) -> None:
        assert self._beat is not None
        try:
            self._beat(self._transaction)
        except LeaseLost:
            self._loop.call_soon_threadsafe(self._on_lease_lost)

    def _answer(self, batch: list[_Job], failure: BaseException | None) -> None:
        """Resolve the callers' futures. After a large batch, let the callers hand in their next operations before we
        collect. Otherwise we would begin with the first caller, commit its operation alone, and compete with the
        others for the interpreter."""
        is_large = len(batch) >= LARGE_BATCH
        self._callers_ran.clear()

        def resolve() -> None:
            for job in batch:
                error = failure or job.error
                if job.future.cancelled():
                    continue
                if error is not None:
                    job.future.set_exception(error)
                else:
                    job.future.set_result(job.result)
            if batch:
                self._on_batch()
            if is_large:
                self._loop.call_soon(self._callers_ran.set)  # runs after the callers, which were just scheduled

        try:
            self._loop.call_soon_threadsafe(resolve)
        except RuntimeError:
            return  # the loop is closed: no caller is left
        if is_large:
            self._callers_ran.wait(LONGEST_WAIT_FOR_CALLERS)
