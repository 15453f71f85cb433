"""The container sweeper: finds and removes this home's containers on all engines that the home has used, by label."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.base.concurrency import run_in_engine_thread
from holdfast.base.errors import HoldfastError
from holdfast.containers.engine import HOME, RUN, TASK, WORKSPACE, Engines
from holdfast.core.cleanup.observed import Container
from holdfast.processes.cgroups import base_name


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
