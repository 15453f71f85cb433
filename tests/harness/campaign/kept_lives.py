"""What is kept for a time stays for that time: a clock that leaps ahead deletes nothing, one that falls back keeps
nothing for ten years more."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.harness.campaign.faked_clock import Clock
from tests.harness.campaign.lives import UNTIL_GO, At, Life, ended, look
from tests.harness.matrix.steps import add, events_tell, task_id, write
from tests.harness.matrix.world import World

from holdfast.api.queries import Queries

KEEPER, SAVER, LEAVER, STAY = "fail and stay", "fail and be saved", "be in use", "stay"


def kept(world: World, clock: Clock, at: At) -> list[str]:
    """Minutes old, and everything about it is there: a workspace that was preserved for a week, with a file that no
    salvage would save; saved work; what agents printed; the tasks themselves."""
    add(world, KEEPER, "echo aside > aside.private\n" + write("kept.txt", "kept") + "exit 1", preserve_on_failure=True)
    add(world, SAVER, write("saved.txt", "saved") + "exit 1", role="add2")
    at("before")
    world.up("up")
    there, first = _things(world), clock.offset
    at("ended")
    world.start("up2")
    world.wait("up2")
    at("later")
    world.up("up3")
    gone = [str(path.relative_to(world.root)) for path in there if not path.exists()]
    silent = clock.offset != first and not events_tell(world, "clock.moved")
    return [f"lost: {name} was deleted minutes after it was made" for name in gone] + [
        "silent: nobody told that the clock was set"
    ] * silent


def _things(world: World) -> list[Path]:
    place = Path(str(Queries(str(world.home)).task(task_id(world, KEEPER))["workspace"]["path"]))
    return [place / "aside.private", *(world.home / "runs").iterdir()]


def in_use(world: World, clock: Clock, at: At) -> list[str]:
    """Somebody stands in a workspace that is to go. When they have left, it goes; another task keeps the supervisor."""
    add(world, STAY, "until [ -e $WORLD/leave ]; do sleep 0.02; done\n", role="add2", workspace="directory")
    add(world, LEAVER, "pwd > $WORLD/place\n" + write("done.txt", "done") + UNTIL_GO)
    world.start("up", agents=3)
    world.wait_until((world.root / "working").exists, "the agent works", while_running="up")
    place = (world.root / "place").read_text().strip()
    visitor = subprocess.Popen(["sleep", "1000"], cwd=place)
    try:
        (world.root / "go").touch()
        world.wait_until(lambda: events_tell(world, "workspace.in-use"), "it is told", while_running="up")
        at("in-use")
        look(world, "up", 1)
        at("later")
        look(world, "up", 2)
    finally:
        visitor.kill()
        visitor.wait()
    clock.move(60)  # longer than anybody waits between two looks
    world.wait_until(lambda: not os.path.exists(place), "the workspace goes, nobody is in it", while_running="up")
    (world.root / "leave").touch()
    world.wait("up")
    return ended(world, LEAVER, runs=1)


KEPT: dict[str, Life] = {
    "kept": Life(kept, ("before", "ended", "later"), comes_to_rest=False),
    "in-use": Life(in_use, ("in-use", "later")),
}
