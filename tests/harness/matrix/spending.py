"""A life with a budget: what a run took is recorded with its end, and uses up what all tasks share."""

from __future__ import annotations

from typing import Any

from tests.harness.matrix.steps import commands_of, insist, state, task_id, up_to_the_end
from tests.harness.matrix.world import World

from holdfast.api.commands import Commands, NewTask

PROMPT = "spend"


def budget(world: World) -> None:
    """Its first run uses up its own budget and the day's, and crashes: paused. The day's is lifted, an operator gives
    it more, and it continues."""
    steps: list[dict[str, Any]] = [
        {"do": "usage", "with": {"input": 900, "output": 100, "cost_usd": 2.0}, "run": 1},
        {"do": "crash", "with": "SIGSEGV", "run": 1},
        {"do": "write", "with": {"path": "after.txt", "text": "after"}, "run": None},
    ]

    def work() -> None:
        new = NewTask(
            prompt=PROMPT,
            directory=str(world.repo),
            scenario=steps,
            labels={"team": "web"},
            budget_tokens=1000,
        )
        world.acknowledge(Commands(str(world.home)).add(new).id)

    insist(world, "add", work, lambda: state(world, PROMPT) != "missing")
    world.configure('[budget]\nday_usd = 1\n[budget.labels."team=web"]\ntotal_tokens = 500\n')
    up_to_the_end(world, "up")
    world.configure("")
    up_to_the_end(world, "up2")
    if state(world, PROMPT) == "paused":
        paused = task_id(world, PROMPT)
        again = lambda: commands_of(world).resume(paused, budget_tokens=5000)  # noqa: E731 - opened in the child
        insist(world, "resume", again, lambda: state(world, PROMPT) != "paused")
    up_to_the_end(world, "up3")
