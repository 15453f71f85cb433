"""One claimed task, from its current state to its settlement.

run.py drives each run of the task. This module handles the consequences for the task: the guard of its workspace, and
its settlement.
"""

from __future__ import annotations

import asyncio

from holdfast.base.errors import NotOwner
from holdfast.core.model import StopWhy, Task
from holdfast.core.runs.outcome import Outcome, Verdict
from holdfast.core.workflows.workflow import stage_of
from holdfast.store.port.transaction import Ownership
from holdfast.supervisor.context import Context
from holdfast.supervisor.dispatch.mass_death import CHECK_EVERY, seconds_until_failure_decided
from holdfast.supervisor.runs.parallel_stage import ParallelStageDriver
from holdfast.supervisor.runs.run import RunDriver
from holdfast.supervisor.runs.settle import freeze_task, settle
from holdfast.supervisor.runs.stages import find_earlier_end, finish_stage
from holdfast.supervisor.runs.stop_request import StopRequest
from holdfast.supervisor.workspaces.guard import WorkspaceGuard
from holdfast.supervisor.workspaces.save import check_workspace


class Attempt:
    """The driver of one task under one fence."""

    def __init__(self, context: Context, task: Task, earlier: Attempt | None = None) -> None:
        """Create the driver. `earlier` is the attempt that failed before this one: its stop request still applies."""
        assert task.owner is not None
        self.ownership = Ownership(task_id=task.id, fence=task.fence, owner=task.owner)
        self.frozen = False
        self._context = context
        self._wish: StopRequest = earlier._wish if earlier else StopRequest()
        stage = stage_of(task.spec.stages, task.progress)
        kind = RunDriver if stage is None or not stage.is_parallel else ParallelStageDriver
        self._driver: RunDriver | ParallelStageDriver = kind(context, task, self.ownership, self._wish)

    async def drive(self) -> None:
        """Drive the task until it is settled, frozen, or owned by another supervisor.

        The workspace guard surrounds everything that could start an agent, also a whole group of members. It is left
        only after the proven end of all these agents: agents die before their tree is removed (R-TREE-03). However this
        method ends, the leftovers of a task that has ended are cleaned up.
        """
        async with WorkspaceGuard(self._context, self.task.id) as guard:
            await self._drive(guard)

    async def _drive(self, guard: WorkspaceGuard) -> None:
        try:
            run_id, verdict = await self._wait_for_end()
            if verdict.outcome is Outcome.UNKNOWN:
                self.frozen = True
                guard.keep()
                await freeze_task(self._context, self.ownership, run_id, verdict)
                return
            verdict = await check_workspace(self._context, self.task, verdict)
            await self._wait_for_mass_death(run_id)
            verdict, ended = await finish_stage(
                self._context, self.task, self.ownership, run_id, verdict, self._wish, self._driver.answer
            )
            if not await settle(self._context, self.task, self.ownership, run_id, verdict, ended):
                guard.keep()  # Between attempts the workspace stays: an agent's session resumes only at its own path.
        except NotOwner:
            guard.keep()
            await self._driver.release_lost_task()
        finally:
            self._driver.close()

    async def _wait_for_end(self) -> tuple[str | None, Verdict]:
        """Return the end of the current run. If a stage ended earlier and only its gate or settlement is left, return
        that end."""
        rest = await find_earlier_end(self._context, self.task, self.ownership, self._wish)
        return (None, rest) if rest is not None else await self._driver.wait_for_end()

    @property
    def task(self) -> Task:
        return self._driver.task

    @property
    def runs(self) -> list[RunDriver]:
        """The runs of the task that are driven at the moment."""
        return self._driver.runs

    async def stop(self, why: StopWhy, *, fast: bool, reason: str = "") -> None:
        """Ask for the end of the task's runs. The reason is on disk before the signal is sent, so the death that
        follows is never taken for a crash."""
        await self._driver.stop(why, fast=fast, reason=reason)

    async def send_again(self) -> None:
        """Try again to record and send a stop. The last time it could not be recorded, so it was not sent."""
        await self._driver.send_again()

    @property
    def requested_stop(self) -> StopWhy | None:
        return self._wish.why

    def beat(self) -> None:
        self._driver.beat()

    async def _wait_for_mass_death(self, run_id: str | None) -> None:
        """Wait to see whether a crash that would fail the task is part of a mass death.

        The failure of a task cannot be undone, but the retry budget that a first or second crash spends can be given
        back. So only a crash that would fail the task waits, only briefly, and not when a stop was requested.
        """
        if run_id is None:
            return
        died = run_id
        while self._wish.why is None:
            left = await self._context.writer.write(
                lambda tx: seconds_until_failure_decided(self._context, tx, self.task, died)
            )
            if left <= 0:
                return
            await asyncio.sleep(min(left, CHECK_EVERY))
