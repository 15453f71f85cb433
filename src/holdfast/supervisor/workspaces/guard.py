"""The guard of a workspace: whatever way an attempt is left, a workspace whose task has ended is put away.

The ledger decides, not the way out. An attempt that is cancelled may leave an agent at work (its supervisor goes, the
keeper stays), and one that fails is tried again: their tasks have not ended, and their workspaces stay. So the guard
asks the ledger when it is left: a task that has ended, and a fate for its workspace that nobody carried out yet, mean
now. ADR 0015.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType

from holdfast.core.model import Repo, Task, Workspace
from holdfast.core.states import TASK_TERMINAL, WorkspaceState
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.log import say_trouble
from holdfast.supervisor.workspaces.remove import carry_out


class WorkspaceGuard:
    """Owns a task's workspace while an attempt lives; meanwhile the clean-up service leaves it alone.

    Enter it before the agent is started, leave it after the agent's end: agents die before the tree goes (R-TREE-03).
    """

    def __init__(self, context: Context, task_id: str) -> None:
        self._context = context
        self._task_id = task_id
        self._kept = False

    def keep(self) -> None:
        """Disarm it: the task goes on some other time, or is somebody else's, or nothing proves that its agent died."""
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
                await self._to_its_end(self._put_away(error))
        finally:
            self._context.shared.in_hand.discard(self._task_id)

    async def _put_away(self, error: BaseException | None) -> None:
        """Errors go no further: the ledger holds what is left to do, and the clean-up service tries again."""
        try:
            for found in await self._context.writer.write(self._fates):
                await carry_out(self._context, *found, interrupted=_words(error), just_saved=True)
        except Exception as trouble:  # noqa: BLE001 - the store itself may be the trouble: never the task's
            say_trouble(f"the workspace of task {self._task_id} was not put away and is tried again: ", trouble)

    def _fates(self, tx: Transaction) -> list[tuple[Task, Repo, Workspace]]:
        """Of its own workspace, and of those of the members of its parallel stages."""
        task = tx.tasks.get(self._task_id)
        if task.state not in TASK_TERMINAL:
            return []
        return [
            (task, tx.workspaces.repo(workspace.repo_id), workspace)
            for workspace in tx.workspaces.all_current(self._task_id)
            if workspace.disposition is not None and workspace.state is not WorkspaceState.PRESERVED
        ]

    async def _to_its_end(self, work: Coroutine[object, None, None]) -> None:
        """A cancellation, or a second one, is heard when the work is done: it takes milliseconds, because teardown
        commands are cut short."""
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
        """Do not wait for teardown commands."""
        if self._context.ports.furnishing is not None:
            self._context.ports.furnishing.cut_short(self._task_id)


def _words(error: BaseException | None) -> str | None:
    if isinstance(error, asyncio.CancelledError):
        return "the supervisor was stopping"
    return None if error is None else f"{type(error).__name__}: {error}"
