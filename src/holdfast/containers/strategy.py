"""The strategy `container`: a clone, mounted into one labelled container per run."""

from __future__ import annotations

from holdfast.base.concurrency import in_engines_thread
from holdfast.containers.engine import WORKSPACE, Engine
from holdfast.core.model import Repo, Workspace
from holdfast.workspaces.git.git import Git
from holdfast.workspaces.strategies.clone import CloneStrategy


class ContainerStrategy(CloneStrategy):
    """As a clone; its containers go before it does."""

    def __init__(self, home: str, git: Git, engine: Engine, *, is_used: bool) -> None:
        """`is_used`: this home has made a container there; otherwise there is nothing to ask it for."""
        super().__init__(home, git)
        self._engine = engine
        self._is_used = is_used

    async def put_away(self, repo: Repo, workspace: Workspace) -> bool:
        """R-CLEAN-05: stop and remove."""
        if self._is_used:
            await in_engines_thread(self._engine.remove, {WORKSPACE: workspace.id})
        return await super().put_away(repo, workspace)
