"""The service that raises an alert when a container engine does not answer while agents work in its containers.

Nothing else would show this, because agents that continue and agents that are dead look the same. A stop cannot finish
either, because only the engine can confirm the end of a container.
"""

from __future__ import annotations

import asyncio

from holdfast.core.model import Strategy, TaskSpec
from holdfast.supervisor.context import Context
from holdfast.supervisor.log import log_error
from holdfast.supervisor.runs.attempts import Attempts
from holdfast.supervisor.service import Service

ALERT = "engine:"
EVERY = 5.0
MISSES_BEFORE_ALERT = 2  # looks: an engine that is being restarted is back at the second look


class EngineAlertService(Service):
    """The service that keeps one alert open per silent engine. The alert is closed when the engine answers again."""

    def __init__(self, context: Context, attempts: Attempts) -> None:
        self._context = context
        self._attempts = attempts
        self._next = 0.0
        self._missed: dict[str, int] = {}
        self._looking: asyncio.Task[None] | None = None

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        return [] if self._looking is None else [self._looking]

    async def tick(self) -> None:
        """Check the engines in a background task: a check of an engine that hangs lasts until its timeout."""
        now = asyncio.get_running_loop().time()
        if now < self._next or (self._looking is not None and not self._looking.done()):
            return
        self._next = now + EVERY
        told = [key for row in self._context.store.view("alerts", all=0) if (key := str(row["key"])).startswith(ALERT)]
        if told or self._waiting():
            self._looking = asyncio.create_task(self._look(told), name="engine-alerts")

    def _waiting(self) -> list[TaskSpec]:
        """Return the tasks that have an agent in a container, or are about to start one."""
        specs = [attempt.task.spec for attempt in self._attempts.unfrozen]
        return [spec for spec in specs if spec.strategy is Strategy.CONTAINER]

    async def _look(self, told: list[str]) -> None:
        if self._context.ports.agent_containers is None:
            return
        try:
            named = [key.removeprefix(ALERT) for key in told]
            silent = await self._context.ports.agent_containers.silent(self._waiting(), named)
            self._missed = {socket: self._missed.get(socket, 0) + 1 for socket in silent}
            for socket, why in silent.items():
                if self._missed[socket] >= MISSES_BEFORE_ALERT and ALERT + socket not in told:
                    await self._raise(socket, why)
            for key in told:
                if key.removeprefix(ALERT) not in silent:
                    await self._close(key)
        except Exception as trouble:  # noqa: BLE001 - logged, and checked again: nothing else depends on it
            log_error("the container engines could not be looked at: ", trouble)

    async def _raise(self, socket: str, why: str) -> None:
        tasks = [spec.id for spec in self._waiting()]
        if not tasks:
            return
        named = ", ".join(tasks[:4]) + (" and others" if len(tasks) > 4 else "")
        await self._context.writer.write(
            lambda tx: tx.events.raise_alert(
                ALERT + socket,
                f"The container engine at {socket} does not answer ({why}). The agents of {named} may be alive, but "
                "Holdfast cannot stop them, read their reports or see them end. Their tasks do not end until the "
                "engine answers.",
                "Restart the engine, or find out what blocks it. Holdfast continues by itself when it answers.",
                self._context.clock(),
            )
        )

    async def _close(self, key: str) -> None:
        await self._context.writer.write(lambda tx: tx.events.close_alert(key, "its answer", self._context.clock()))
