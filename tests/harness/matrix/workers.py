"""A named worker in the matrix: its agent crashes, it is stopped, its task waits for it, a person restarts it."""

from __future__ import annotations

from tests.harness.matrix.steps import add, insist, state, write
from tests.harness.matrix.world import World

from holdfast.api.fleet.workers import steer_worker
from holdfast.api.queries import Queries

_SETTINGS = """\
agents = 0
[crash]
release_claims = false
[[worker]]
name = "web"
labels = { area = "web" }
"""


def worker(world: World) -> None:
    world.configure(_SETTINGS)
    script = write("one.txt", "one") + "[ -e $WORLD/killed ] || { touch $WORLD/killed; kill -9 $$; }\n"
    add(world, "be a worker's", script + write("two.txt", "two"), labels={"area": "web"})
    _up(world, "up")
    insist(world, "restart", lambda: steer_worker(str(world.home), "restart", "web"), lambda: _worker(world) == "ready")
    _up(world, "up2")
    insist(world, "stop", lambda: steer_worker(str(world.home), "stop", "web"), lambda: _worker(world) == "stopped")


def _up(world: World, role: str) -> None:
    """Its supervisor goes when nothing is left that continues by itself."""
    if state(world, "be a worker's") not in ("completed", "missing") and world.up(role, agents=0) != 0:
        world.up(f"{role}-again", agents=0)


def _worker(world: World) -> str:
    found = [row["state"] for row in Queries(str(world.home)).view("workers") if row["name"] == "web"]
    return str(found[0]) if found else ""
