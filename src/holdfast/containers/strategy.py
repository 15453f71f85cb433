"""The strategy `container`: a clone, mounted into one labelled container per run."""

from __future__ import annotations

from holdfast.base.concurrency import run_in_engine_thread
from holdfast.containers.engine import WORKSPACE, Engine
from holdfast.core.model import Repo, Workspace
from holdfast.workspaces.git.git import Git
from holdfast.workspaces.strategies.clone import CloneStrategy


class ContainerStrategy(CloneStrategy):
    """The clone strategy, extended: the workspace's containers are removed before the clone."""

    def __init__(self, home: str, git: Git, engine: Engine, *, is_used: bool) -> None:
        """`is_used`: this home has used the engine. If not, the engine is never asked."""
        super().__init__(home, git)
        self._engine = engine
        self._is_used = is_used

    async def put_away(self, repo: Repo, workspace: Workspace) -> bool:
        """Stop and remove the workspace's containers, then the clone (R-CLEAN-05)."""
        if self._is_used:
            await run_in_engine_thread(self._engine.remove, {WORKSPACE: workspace.id})
        return await super().put_away(repo, workspace)
