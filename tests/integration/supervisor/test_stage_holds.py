"""A task that completes without an agent says nothing about what agents are held back for."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from tests.integration.supervisor.played import PATIENCE, Ending, PlayedGates, World

from holdfast.core.dispatch.holds import Hold, Scope
from holdfast.core.model import StopWhy
from holdfast.core.runs.outcome import Outcome
from holdfast.core.runs.retry_budgets import RetryLimits
from holdfast.core.workflows.result import GateResult
from holdfast.core.workflows.workflow import Stage


class HeldGate(PlayedGates):
    """Until it is ended."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    async def gate(self, *_asked: object) -> GateResult:
        self.asked.set()
        await asyncio.Event().wait()
        raise AssertionError


def test_a_gate_that_is_asked_again_is_no_probe_of_its_provider() -> None:
    """R-RES-08: only the gate was left to ask, and nobody asked the provider anything: it is held back as before, and
    the place of the one that starts first is free."""

    async def play() -> None:
        world = World(RetryLimits())
        try:
            world.gates = held = HeldGate()
            stage = Stage(name="one", agent="played", provider="acme", gate="check")
            task = world.add(stages=(stage,), workflow="played", provider="acme")
            await world.start()
            assert world.supervisor is not None
            [run] = world.unfrozen
            world.processes.runs[run].end(Ending(name="done", said=Outcome.COMPLETED), world.now.wall)
            async with asyncio.timeout(PATIENCE):
                await held.asked.wait()
            attempts = world.supervisor._attempts
            [attempt] = attempts.unfrozen
            await attempt.stop(StopWhy.WORKER, fast=False, reason="a test")
            async with asyncio.timeout(PATIENCE):
                await attempts.wait_all()
            assert world.row(task)["state"] == "queued"
            now = world.now
            hold = Hold(scope=Scope.PROVIDER, name="acme", since=now, until=now.wall, decided=now.wall,
                        reason="it does not answer", failures=2, rounds=1)  # fmt: skip
            world.write(lambda tx: tx.holds.keep(hold, now))
            world.context.ports = replace(world.context.ports, workspace_setup=PlayedGates())  # type: ignore[arg-type]
            await world.look()
            assert world.row(task)["state"] == "completed"
            [still] = world.write(lambda tx: tx.holds.all())
            assert (still.name, still.failures, still.probe) == ("acme", 2, None)
        finally:
            await world.close()

    asyncio.run(play())
