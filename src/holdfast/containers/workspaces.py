"""Containers behind the workspace ports: the strategy `container`, and the sweeper of containers.

The strategy is a clone, mounted into one labelled container per run. The sweeper finds and removes this home's
containers, by label, on all engines that the home has used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.base.concurrency import run_in_engine_thread
from holdfast.base.errors import HoldfastError
from holdfast.containers.engine import HOME, RUN, TASK, WORKSPACE, Engine, Engines
from holdfast.core.cleanup.observed import Container
from holdfast.core.model import Repo, Workspace
from holdfast.processes.cgroups import base_name
from holdfast.workspaces.git.git import Git
from holdfast.workspaces.strategies.clone import CloneStrategy


def remove_containers(home: str, workspaces: Sequence[str] | None) -> list[str]:
    """Stop and remove the containers of these workspaces (None: of the whole home). Return what stayed, and why."""
    engines, kept = Engines(home), []
    for socket in engines.all():
        try:
            for one in engines.at(socket).found({HOME: base_name(home)}):
                if workspaces is None or (one.get("Labels") or {}).get(WORKSPACE) in workspaces:
                    engines.at(socket).drop(str(one["Id"]))
        except HoldfastError as error:
            kept.append(f"containers, if there are any: {error}")
    return kept


class EngineContainerSweeper:
    """The sweep's access to containers. A home that never used an engine asks none and does not import `docker`."""

    def __init__(self, home: str, engines: Engines) -> None:
        self._home = base_name(home)
        self._engines = engines

    async def find(self) -> Sequence[Container]:
        if not self._engines.all():
            return ()
        return [
            Container(
                id=str(one["Id"]),
                run=(one.get("Labels") or {}).get(RUN),
                task=(one.get("Labels") or {}).get(TASK),
                running=one.get("State") == "running",
            )
            for _engine, one in await run_in_engine_thread(self._engines.found, {HOME: self._home})
            if self._engines.commands.isdisjoint(name.lstrip("/") for name in one.get("Names") or ())
        ]

    async def remove(self, containers: Iterable[str]) -> int:
        return await run_in_engine_thread(self._remove, set(containers))

    def _remove(self, wanted: set[str]) -> int:
        """Remove the wanted containers that still carry our label. A failed removal is left to the next sweep."""
        removed = 0
        for engine, one in self._engines.found({HOME: self._home}):
            if str(one["Id"]) in wanted:
                try:
                    removed += engine.drop(str(one["Id"]))
                except HoldfastError:
                    continue
        return removed


class ContainerStrategy(CloneStrategy):
    """The clone strategy, extended: the workspace's containers are removed before the clone."""

    def __init__(self, home: str, git: Git, engine: Engine, *, is_used: bool) -> None:
        """`is_used`: this home has used the engine. If not, the engine is never asked."""
        super().__init__(home, git)
        self._engine = engine
        self._is_used = is_used

    async def prepare(self, repo: Repo, workspace: Workspace, restore: str | None) -> None:
        """Remove containers in which a dead supervisor's set-up command may still run, then create the clone."""
        if self._is_used:
            await run_in_engine_thread(self._engine.remove, {WORKSPACE: workspace.id})
        await super().prepare(repo, workspace, restore)

    async def put_away(self, repo: Repo, workspace: Workspace) -> bool:
        """Stop and remove the workspace's containers, then the clone (R-CLEAN-05)."""
        if self._is_used:
            await run_in_engine_thread(self._engine.remove, {WORKSPACE: workspace.id})
        return await super().put_away(repo, workspace)
