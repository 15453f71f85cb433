"""A parent with subtasks in every state: cancelled, it takes them along, whatever is killed meanwhile."""

from __future__ import annotations

from typing import Any

from tests.harness.matrix.steps import COMMIT, add, commands_of, events_tell, insist, state, task_id, write
from tests.harness.matrix.world import World

from holdfast.api.commands import Commands, NewTask

PARENT = "head the family"
WORKS, WAITS, PAUSES, FAILS = "work below", "wait below", "pause below", "fail below"
EXPECTED = {
    PARENT: ("cancelled",),
    WORKS: ("cancelled",),
    WAITS: ("cancelled",),
    PAUSES: ("cancelled",),
    FAILS: ("failed", "cancelled"),  # if it came to its end before
}


def family(world: World) -> None:
    add(world, PARENT, write("head.txt", "head") + COMMIT.replace("\n", " || :\n") + _hang("working"))
    parent = task_id(world, PARENT)
    add(world, WORKS, write("below.txt", "below") + _hang("below"), role="add-works", parent=parent)
    add(world, WAITS, "exit 9", role="add-waits", parent=parent, delay=86400.0)
    add(world, FAILS, "exit 1", role="add-fails", parent=parent)
    _add_paused(world, parent)
    world.start("up", agents=4)
    everything = lambda: all((world.root / name).exists() for name in ("working", "below"))  # noqa: E731 - one fact
    world.wait_until(everything, "both are at work", while_running="up")
    world.wait_until(lambda: state(world, PAUSES) == "paused", "one is paused", while_running="up")
    insist(
        world,
        "cancel",
        lambda: commands_of(world).cancel(task_id(world, PARENT), "the matrix says so"),
        lambda: state(world, PARENT) == "cancelled" or events_tell(world, "run.stopping"),
    )
    world.wait("up")


def _hang(name: str) -> str:
    return f"touch $WORLD/{name}; exec sleep 1000"


def _add_paused(world: World, parent: str) -> None:
    steps: list[dict[str, Any]] = [{"do": "limit", "with": {"kind": "usage", "for": 86400}, "run": None}]

    def work() -> None:
        new = NewTask(prompt=PAUSES, directory=str(world.repo), scenario=steps, parent=parent)
        world.acknowledge(Commands(str(world.home)).add(new).id)

    insist(world, "add-pauses", work, lambda: state(world, PAUSES) != "missing")
