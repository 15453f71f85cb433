"""Operators who pause and resume: what waits, what runs, and what has no resumes left when its time comes."""

from __future__ import annotations

from typing import Any

from tests.harness.matrix.steps import add, commands_of, events_tell, insist, state, task_id, up_to_the_end, write
from tests.harness.matrix.world import World

from holdfast.api.commands import NewTask, pause

HELD, WAITING, REFUSED = "be held at work", "be held while it waits", "be due without a resume"


def paused(world: World) -> None:
    """One task is paused at work, one while it waits: both are resumed. One is paused by a limit, while no task is
    resumed by itself; when that is allowed again, its time has come, and it has no resume."""
    world.configure("[resume]\nauto = false\n")
    work = "[ -e $WORLD/go-on ] || { touch $WORLD/working; exec sleep 1000; }\n"
    add(world, WAITING, write("waited.txt", "waited"), role="add1")
    _add_refused(world)
    _pause(world, "pause0", WAITING)
    add(world, HELD, write("early.txt", "early") + work + write("late.txt", "late"), role="add3")
    world.start("up")
    world.wait_until((world.root / "working").exists, "the agent works", while_running="up")
    _pause(world, "pause", HELD)
    world.wait("up")
    if any(state(world, prompt) != "paused" for prompt in (HELD, REFUSED)):
        up_to_the_end(world, "up-to-pause")  # a request or an ending that the first one died on
    (world.root / "go-on").touch()
    for number, prompt in enumerate((HELD, WAITING)):
        _resume(world, f"resume{number}", prompt)
    world.configure("")
    up_to_the_end(world, "up2")


def _add_refused(world: World) -> None:
    """Add a task that meets a limit of a moment, and has no resumes."""
    steps: list[dict[str, Any]] = [
        {"do": "say", "with": "I begin", "run": None},
        {"do": "limit", "with": {"kind": "usage", "for": 0.001}, "run": None},
    ]
    new = NewTask(prompt=REFUSED, directory=str(world.repo), scenario=steps, max_resumes=0)
    work = lambda: world.acknowledge(commands_of(world).add(new).id)  # noqa: E731 - one step
    insist(world, "add2", work, lambda: state(world, REFUSED) != "missing")


def _pause(world: World, role: str, prompt: str) -> None:
    if state(world, prompt) in ("queued", "running"):
        task = task_id(world, prompt)
        asked = lambda: state(world, prompt) == "paused" or events_tell(world, "run.stopping")  # noqa: E731 - two facts
        insist(world, role, lambda: pause(str(world.home), task), asked)


def _resume(world: World, role: str, prompt: str) -> None:
    if state(world, prompt) == "paused":
        task = task_id(world, prompt)
        insist(world, role, lambda: commands_of(world).resume(task), lambda: state(world, prompt) != "paused")
