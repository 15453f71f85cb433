"""A task that completes without an agent says nothing about what agents are held back for."""

from __future__ import annotations

import asyncio

from tests.integration.played import Ending, World

from holdfast.core.budgets import Limits
from holdfast.core.holds import Hold, Scope
from holdfast.core.outcome import Outcome
from holdfast.core.workflows import Stage


def test_an_approved_task_is_no_probe_of_its_provider() -> None:
    """R-RES-08: all its stages are done, and nobody asked the provider anything: it is held back as before, and its
    place as the one that goes first is free."""

    async def play() -> None:
        world = World(Limits())
        try:
            stage = Stage(name="one", agent="played", provider="acme", approval=True)
            task = world.add(stages=(stage,), workflow="played", provider="acme")
            await world.start()
            [run] = world.living
            await world.end(run, Ending(name="done", said=Outcome.COMPLETED))
            assert world.row(task)["pause_reason"] == "approval"
            now = world.now
            held = Hold(scope=Scope.PROVIDER, name="acme", since=now, until=now.wall + 10, decided=now.wall,
                        reason="it does not answer", failures=2, rounds=1)  # fmt: skip
            world.write(lambda tx: tx.holds.keep(held, now))
            world.write(lambda tx: tx.staging.approve(task, "ann", world.now))
            world.pass_time(11.0)
            await world.look()
            assert world.row(task)["state"] == "completed"
            [still] = [hold for hold in world.write(lambda tx: tx.holds.all()) if hold.scope is Scope.PROVIDER]
            assert (still.name, still.failures, still.probe) == ("acme", 2, None)
        finally:
            await world.close()

    asyncio.run(play())
