"""Listening to one run's agent: its reports are taken in under the fence, together with how far they were read."""

from __future__ import annotations

import asyncio

from holdfast.base.instant import Instant
from holdfast.core.model import Claim, Report, ReportKind, Run
from holdfast.processes.port import Batch, ReportChannel
from holdfast.store.port.transaction import AgentNews, Grip
from holdfast.supervisor.context import Context

PROGRESS_EVERY = 10.0  # seconds between two events of one run: agents chatter
AFTER_TROUBLE = 5.0


class Listener:
    """Made when the agent runs; read by reports.py now and then, and by the attempt once more when it is over."""

    def __init__(self, context: Context, grip: Grip, run: Run, channel: ReportChannel, claim_grace: float) -> None:
        self.run_id = run.id
        self.claim: Claim | None = run.claim
        self._context = context
        self._grip = grip
        self._channel = channel
        self._claim_grace = claim_grace
        self._heard = run.heard
        self._was_stopped = False  # by us, because it did not exit
        self._turn = asyncio.Lock()
        self._offset = run.heard.offset
        self._progress: Report | None = None
        self._claims: list[Report] = []
        self._refused = 0
        self._refused_why = ""
        self._progress_from = 0.0  # loop time from which the next progress may be told
        self._quiet_until = 0.0  # loop time before which nothing is tried again

    def has_news(self) -> bool:
        """Whether it is worth a call of `hear`; costs one stat at most."""
        if self._is_quiet():
            return False
        return self._is_worth_telling(asyncio.get_running_loop().time()) or self._channel.changed()

    async def hear(self, *, last: bool = False) -> bool:
        """Read a piece (all of it, the last time) and record what matters. True: there is more to read."""
        async with self._turn:
            while True:
                batch = self._channel.read(last=last)
                self._take(batch)
                await self._tell(last=last)
                if not last or not batch.more:
                    return batch.more
                await asyncio.sleep(0)

    def grace_left(self, now: Instant) -> float | None:
        """Seconds until an agent that claimed its result has to be gone; None when there is nothing to wait for."""
        if self.claim is None or self._was_stopped or self._is_quiet():
            return None
        return self._claim_grace - now.since(self.claim.at)

    def stop_reason(self) -> str:
        assert self.claim is not None
        return f"it reported `{self.claim.kind}` and did not exit within {self._claim_grace:g} s"

    def stopped(self) -> None:
        self._was_stopped = True

    def hold_off(self) -> None:
        """Something went wrong: it is tried again, but not at once."""
        self._quiet_until = asyncio.get_running_loop().time() + AFTER_TROUBLE

    def _is_quiet(self) -> bool:
        return asyncio.get_running_loop().time() < self._quiet_until

    def _take(self, batch: Batch) -> None:
        self._offset = batch.offset
        self._refused_why = self._refused_why or batch.refused_why
        self._refused += batch.refused
        for report in batch.reports:
            if report.kind is ReportKind.PROGRESS:
                self._progress = report
            elif report.kind is ReportKind.CHECKPOINT:
                self._wants_checkpoint(report.message)
            elif self._is_new(report):
                self._claims.append(report)

    def _wants_checkpoint(self, note: str) -> None:
        """That it was heard is recorded with the next news: heard again after a crash, it does no harm."""
        self._context.services.checkpoints.asked(self.run_id, note)

    def _is_new(self, claim: Report) -> bool:
        """The first claim, and the first that says something else: all the others change nothing."""
        stands = self.claim or (self._claims[0] if self._claims else None)
        if stands is None:
            return True
        told = self._heard.contradicted or any(other.kind is not stands.kind for other in self._claims)
        return claim.kind is not stands.kind and not told

    def _is_worth_telling(self, now: float, *, last: bool = False) -> bool:
        if self._claims or (self._refused and not self._heard.refused):
            return True
        return self._progress is not None and (last or now >= self._progress_from)

    async def _tell(self, *, last: bool) -> None:
        loop = asyncio.get_running_loop()
        if not self._is_worth_telling(loop.time(), last=last):
            return
        news = AgentNews(
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
