"""The service that reads the reports of running agents, and ends agents that claimed a result but do not exit."""

from __future__ import annotations

import asyncio

from holdfast.base.clock import Clock
from holdfast.base.errors import Conflict
from holdfast.core.model import StopWhy
from holdfast.supervisor.context import WakeUp
from holdfast.supervisor.log import log_error
from holdfast.supervisor.runs.attempts import Attempts
from holdfast.supervisor.runs.run import RunDriver

# seconds: one stat per running agent, in case a hint was missed (health/monitor.py sees changes at once)
LOOK_EVERY = 10.0


class ReportService:
    def __init__(self, attempts: Attempts, clock: Clock) -> None:
        self._attempts = attempts
        self._clock = clock
        self._hints: set[str] = set()
        self._bell = WakeUp()

    def changed(self, run_id: str) -> None:
        """Note a change in the channel of a run. The change is only a hint: the channel is read soon, and its content
        is checked."""
        self._hints.add(run_id)
        self._bell.ring()

    async def run(self) -> None:
        """Read channels for ever: those with a noted change at once, all of them now and then."""
        loop = asyncio.get_running_loop()
        next_round = loop.time()
        while True:
            hints, self._hints = self._hints, set()
            is_round = loop.time() >= next_round
            if is_round:
                next_round = loop.time() + LOOK_EVERY
            await self.look(None if is_round else hints)
            await self._bell.wait(max(0.0, min(next_round - loop.time(), self._until_overdue())))

    async def look(self, run_ids: set[str] | None = None) -> None:
        """Read the reports of these runs, or of all.

        A run that cannot be read or recorded does not delay the others.
        """
        talking = [
            run
            for run in self._runs
            if (listener := run.report_reader) is not None
            and (run_ids is None or listener.run_id in run_ids or listener.claim is not None)
            and (listener.has_news() or self._is_overdue(run))
        ]
        results = await asyncio.gather(*(self._handle_run(run) for run in talking), return_exceptions=True)
        for run, result in zip(talking, results, strict=True):
            if isinstance(result, Exception):
                self._handle_error(run, result)

    @property
    def _runs(self) -> list[RunDriver]:
        return [run for attempt in self._attempts.unfrozen for run in attempt.runs]

    async def _handle_run(self, run: RunDriver) -> None:
        listener = run.report_reader
        if listener is None:
            return
        if listener.has_news() and await listener.hear():
            self.changed(listener.run_id)  # a claim may follow after many other reports
        if self._is_overdue(run):
            await run.stop(StopWhy.CLAIMED, fast=False, reason=listener.stop_reason())
            listener.mark_stopped()

    def _handle_error(self, run: RunDriver, error: Exception) -> None:
        if run.report_reader is not None:
            run.report_reader.delay_next_try()
        # A run that ended, or is another supervisor's: the attempt handles that.
        is_news = not isinstance(error, Conflict)
        if is_news:
            log_error(f"the reports of task {run.task.id} could not be taken in, and are tried again: ", error)

    def _is_overdue(self, run: RunDriver) -> bool:
        left = self._grace_left(run)
        return left is not None and left <= 0

    def _grace_left(self, run: RunDriver) -> float | None:
        """Return the seconds until an agent that claimed its result must exit. None if a stop for another reason is
        already under way."""
        if run.report_reader is None or run.requested_stop not in (None, StopWhy.CLAIMED):
            return None
        return run.report_reader.grace_left(self._clock())

    def _until_overdue(self) -> float:
        lefts = [self._grace_left(run) for run in self._runs]
        return min([LOOK_EVERY, *(left for left in lefts if left is not None)])
