"""The guard of a workspace: however an attempt is left, the workspace of a task that has ended is removed.

The ledger decides about the removal, not the way in which the attempt was left. A cancelled attempt may leave an agent
at work: the supervisor leaves, and the keeper stays. A failed attempt is tried again. In both cases the task has not
ended, so its workspace stays.

So the guard reads the ledger when its context is left. If the task has ended and the decision about its workspace is
not yet carried out, the guard carries it out. See ADR 0015.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType

from holdfast.core.model import Repo, Task, Workspace
from holdfast.core.states import TASK_TERMINAL, WorkspaceState
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.log import log_error
from holdfast.supervisor.workspaces.remove import carry_out_disposition


class WorkspaceGuard:
    """The owner of a task's workspace while an attempt lives. Meanwhile the clean-up service leaves the workspace
    alone.

    Enter the guard before the agent is started, and leave it after the agent's end: agents die before their tree is
    removed (R-TREE-03).
    """

    def __init__(self, context: Context, task_id: str) -> None:
        self._context = context
        self._task_id = task_id
        self._kept = False

    def keep(self) -> None:
        """Disarm the guard. Call this when the task continues later, when another supervisor owns it, or when its agent
        is not proven dead."""
        self._kept = True

    async def __aenter__(self) -> WorkspaceGuard:
        self._context.shared.in_hand.add(self._task_id)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if isinstance(error, asyncio.CancelledError):
            self.hurry()
        try:
            if not self._kept:
                await self._finish_before_cancel(self._carry_out_decisions(error))
        finally:
            self._context.shared.in_hand.discard(self._task_id)

    async def _carry_out_decisions(self, error: BaseException | None) -> None:
        """Carry out what was decided about the workspaces. Errors are only logged: the ledger has what is left to do,
        and the clean-up service tries again."""
        try:
            for found in await self._context.writer.write(self._find_undone):
                await carry_out_disposition(
                    self._context, *found, interrupted=_interruption_text(error), just_saved=True
                )
        except Exception as trouble:  # noqa: BLE001 - the store itself may have failed: never fail the task for it
            log_error(f"the workspace of task {self._task_id} was not removed, and is tried again: ", trouble)

    def _find_undone(self, tx: Transaction) -> list[tuple[Task, Repo, Workspace]]:
        """Return the workspaces with a decision that is not carried out: the task's own, and those of members of
        parallel stages."""
        task = tx.tasks.get(self._task_id)
        if task.state not in TASK_TERMINAL:
            return []
        return [
            (task, tx.workspaces.repo(workspace.repo_id), workspace)
            for workspace in tx.workspaces.all_current(self._task_id)
            if workspace.disposition is not None and workspace.state is not WorkspaceState.PRESERVED
        ]

    async def _finish_before_cancel(self, work: Coroutine[object, None, None]) -> None:
        """Finish the work before a cancellation of the caller is raised, even before a second one. The work takes
        milliseconds, because teardown commands are cut short."""
        working = asyncio.create_task(work)
        heard: asyncio.CancelledError | None = None
        while not working.done():
            try:
                await asyncio.wait([working])
            except asyncio.CancelledError as again:
                heard = again
                self.hurry()
        working.result()
        if heard is not None:
            raise heard

    def hurry(self) -> None:
        """Cut teardown commands short."""
        if self._context.ports.workspace_setup is not None:
            self._context.ports.workspace_setup.cut_short(self._task_id)


def _interruption_text(error: BaseException | None) -> str | None:
    if isinstance(error, asyncio.CancelledError):
        return "the supervisor was stopping"
    return None if error is None else f"{type(error).__name__}: {error}"
