"""Lives of tasks whose provider says no, or nothing: a limit, an outage."""

from __future__ import annotations

from typing import Any

from tests.harness.matrix.steps import insist, state
from tests.harness.matrix.world import World

from holdfast.api.commands import Commands, NewTask


def limit(world: World) -> None:
    """A usage limit pauses the task, and it is resumed when that is over. Then its context is full: another agent takes
    over."""
    steps: list[dict[str, Any]] = [
        {"do": "write", "with": {"path": "before.txt", "text": "before"}, "run": 1},
        {"do": "limit", "with": {"kind": "usage", "for": 0.001}, "run": 1},
        {"do": "write", "with": {"path": "after.txt", "text": "after"}, "run": None},
        {"do": "limit", "with": {"kind": "context"}, "run": 2},
    ]

    def work() -> None:
        added = Commands(str(world.home)).add(NewTask(prompt="be limited", directory=str(world.repo), scenario=steps))
        world.acknowledge(added.id)

    insist(world, "add", work, lambda: state(world, "be limited") != "missing")
    world.up("up")


def again(world: World) -> None:
    """Every run meets the limit: the resume beyond the last that it may have fails it. The last run has no answer, so
    the resume before it is returned."""
    steps: list[dict[str, Any]] = [
        {"do": "limit", "with": {"kind": "usage", "for": 0.001}, "run": 2},
        {"do": "say", "with": "I begin", "run": None},
        {"do": "limit", "with": {"kind": "usage", "for": 0.001}, "run": None},
    ]

    def work() -> None:
        new = NewTask(prompt="meet it again", directory=str(world.repo), scenario=steps, max_resumes=1)
        world.acknowledge(Commands(str(world.home)).add(new).id)

    insist(world, "add", work, lambda: state(world, "meet it again") != "missing")
    world.up("up")


def outage(world: World) -> None:
    """A provider is down for the first run of each task: they are held back, one starts first, the other follows."""
    steps: list[dict[str, Any]] = [
        {"do": "provider", "with": "acme", "run": None},
        {"do": "limit", "with": {"kind": "overloaded"}, "run": 1},
        {"do": "write", "with": {"path": "after.txt", "text": "after"}, "run": None},
    ]
    for prompt in ("meet an outage", "meet it too"):

        def work(prompt: str = prompt) -> None:
            new = NewTask(prompt=prompt, directory=str(world.repo), scenario=steps)
            world.acknowledge(Commands(str(world.home)).add(new).id)

        insist(world, "add", work, lambda prompt=prompt: state(world, prompt) != "missing")  # type: ignore[misc]  # its own
    world.up("up")
