"""The reports of one run's agent. They are recorded under the task's fence, together with the position up to which the
channel was read."""

from __future__ import annotations

import asyncio

from holdfast.base.instant import Instant
from holdfast.core.model import Claim, Report, ReportKind, Run
from holdfast.processes.port import ReportBatch, ReportChannel
from holdfast.store.port.transaction import AgentReports, Ownership
from holdfast.supervisor.context import Context

PROGRESS_EVERY = 10.0  # seconds between two progress events of one run: agents report far more often than people read
PAUSE_AFTER_ERROR = 5.0


class ReportReader:
    """The reader of one run's report channel, to which the agent writes.

    It is created when the agent runs. services/agent_reports.py calls it now and then. The attempt calls it a last time
    when the run is over.
    """

    def __init__(
        self, context: Context, ownership: Ownership, run: Run, channel: ReportChannel, claim_grace: float
    ) -> None:
        self.run_id = run.id
        self.claim: Claim | None = run.claim
        self._context = context
        self._grip = ownership
        self._channel = channel
        self._claim_grace = claim_grace
        self._heard = run.heard
        self._was_stopped = False  # by us, because the agent did not exit after its claim
        self._turn = asyncio.Lock()
        self._offset = run.heard.offset
        self._progress: Report | None = None
        self._claims: list[Report] = []
        self._refused = 0
        self._refused_why = ""
        self._progress_from = 0.0  # loop time from which the next progress event may be emitted
        self._quiet_until = 0.0  # loop time before which nothing is tried again

    def has_news(self) -> bool:
        """True if `hear` is worth calling. The check costs one stat at most."""
        if self._is_quiet():
            return False
        return self._has_unrecorded_news(asyncio.get_running_loop().time()) or self._channel.changed()

    async def hear(self, *, last: bool = False) -> bool:
        """Read one piece of the channel (all of it if `last`) and record the reports that matter. Return True if there
        is more to read."""
        async with self._turn:
            while True:
                batch = self._channel.read(last=last)
                self._sort_reports(batch)
                await self._record_news(last=last)
                if not last or not batch.more:
                    return batch.more
                await asyncio.sleep(0)

    def grace_left(self, now: Instant) -> float | None:
        """Return the seconds until an agent that claimed its result must have exited. None: there is nothing to wait
        for."""
        if self.claim is None or self._was_stopped or self._is_quiet():
            return None
        return self._claim_grace - now.since(self.claim.at)

    def stop_reason(self) -> str:
        assert self.claim is not None
        return f"it reported `{self.claim.kind}` and did not exit within {self._claim_grace:g} s"

    def mark_stopped(self) -> None:
        self._was_stopped = True

    def delay_next_try(self) -> None:
        """Note that the next try comes only a few seconds later, after something went wrong."""
        self._quiet_until = asyncio.get_running_loop().time() + PAUSE_AFTER_ERROR

    def _is_quiet(self) -> bool:
        return asyncio.get_running_loop().time() < self._quiet_until

    def _sort_reports(self, batch: ReportBatch) -> None:
        self._offset = batch.offset
        self._refused_why = self._refused_why or batch.refused_why
        self._refused += batch.refused
        for report in batch.reports:
            if report.kind is ReportKind.PROGRESS:
                self._progress = report
            elif report.kind is ReportKind.CHECKPOINT:
                self._request_checkpoint(report.message)
            elif self._is_new(report):
                self._claims.append(report)

    def _request_checkpoint(self, note: str) -> None:
        """Ask the checkpoint service for a checkpoint of this run.

        The read position is recorded only with the next news. So a crash may repeat this request, which does no harm.
        """
        self._context.services.checkpoints.asked(self.run_id, note)

    def _is_new(self, claim: Report) -> bool:
        """True for the first claimed result, and for the first claim that contradicts it. All later claims change
        nothing."""
        stands = self.claim or (self._claims[0] if self._claims else None)
        if stands is None:
            return True
        told = self._heard.contradicted or any(other.kind is not stands.kind for other in self._claims)
        return claim.kind is not stands.kind and not told

    def _has_unrecorded_news(self, now: float, *, last: bool = False) -> bool:
        if self._claims or (self._refused and not self._heard.refused):
            return True
        return self._progress is not None and (last or now >= self._progress_from)

    async def _record_news(self, *, last: bool) -> None:
        loop = asyncio.get_running_loop()
        if not self._has_unrecorded_news(loop.time(), last=last):
            return
        news = AgentReports(
            offset=self._offset,
            refused=self._refused,
            refused_why=self._refused_why,
            progress=self._progress,
            claims=tuple(self._claims),
        )
        run = await self._context.writer.write(
            lambda tx: tx.runs.reported(self._grip, self.run_id, news, self._context.clock())
        )
        self.claim = run.claim
        self._heard = run.heard
        if self._progress is not None:
            self._progress_from = loop.time() + PROGRESS_EVERY
        self._progress, self._claims, self._refused, self._refused_why = None, [], 0, ""
