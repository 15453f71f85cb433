"""Lives of tasks in containers, against a private engine of this worker's own. A fault whose role is `engine` happens
to it: `container-success/engine/create:1:lost` (engines/proxy.py says what can).

An agent in a container sees its workspace and its channel, so it tells the witness in there.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.harness.engines.image import IMAGE, why_not
from tests.harness.engines.private import PrivateEngine, own_engine
from tests.harness.engines.proxy import Proxy, Trouble
from tests.harness.matrix.cases import ENGINE
from tests.harness.matrix.scenario import Play, Scenario
from tests.harness.matrix.steps import commands_of, events_tell, insist, state, task_id
from tests.harness.matrix.world import World

from holdfast.api.commands import Commands, NewTask
from holdfast.checker.witness import blob_id
from holdfast.processes.cgroups import base_name

RAN = """printf '{"ran":"%s","task":"%s"}\\n' "$HOLDFAST_RUN_ID" "$HOLDFAST_TASK_ID" >> "$HOLDFAST_CHANNEL/witness"\n"""
_UNTIL_GO = "n=0; until [ -e go ] || [ $n -ge 100 ]; do n=$((n+1)); sleep 0.1; done\n"
SUCCEEDS, FAILS, HANGS, DIES, STAYS = "succeed inside", "fail inside", "hang inside", "die inside", "be adopted inside"


def write(path: str, text: str) -> str:
    line = f'{{"wrote":"{path}","task":"%s","blob":"{blob_id(text.encode())}"}}\\n'.replace('"', '\\"')
    told = f"""printf "{line}" "$HOLDFAST_TASK_ID" >> "$HOLDFAST_CHANNEL/witness"\n"""
    return f"""printf '%s' '{text}' > '{path}' && {told}"""


def success(world: World) -> None:
    add(world, SUCCEEDS, write("done.txt", "done") + "sleep 0.3\n" + write("more.txt", "more"))
    world.up("up")


def failure(world: World) -> None:
    add(world, FAILS, write("lost.txt", "not lost") + "exit 3")
    world.up("up")


def cancel(world: World) -> None:
    """Cancelled at work, with a child that left its session; both ignore TERM."""
    stubborn = "trap '' TERM; while :; do sleep 1; done"
    add(world, HANGS, write("half.txt", "half") + f'(setsid sh -c "{stubborn}" &)\n: > working\n{stubborn}')
    world.start("up")
    world.wait_until(lambda: _in_workspace(world, "working"), "the agent works", while_running="up")
    ask = lambda: commands_of(world).cancel(task_id(world, HANGS), "the matrix says so")  # noqa: E731 - in the child
    insist(world, "cancel", ask, lambda: events_tell(world, "run.stopping"))
    world.wait("up")


def agent_killed(world: World) -> None:
    script = write("one.txt", "one") + '[ "$HOLDFAST_RUN_NUMBER" != 1 ] || kill -9 $$\n'
    add(world, DIES, script + write("two.txt", "two"))
    world.up("up")


def adoption(world: World) -> None:
    """The supervisor dies while its agent works; the next one takes the agent over, and it ends well."""
    add(world, STAYS, write("early.txt", "early") + ": > working\n" + _UNTIL_GO + write("late.txt", "late"))
    world.start("up")
    world.wait_until(lambda: _in_workspace(world, "working"), "the agent works", while_running="up")
    world.kill("up")
    is_left = state(world, STAYS) == "running"
    world.start("up2")
    if is_left:
        taken = lambda: events_tell(world, "task.adopted") or state(world, STAYS) != "running"  # noqa: E731 - two facts
        world.wait_until(taken, "it is adopted", while_running="up2")
    for place in _places(world):
        (place / "go").touch()
    world.wait("up2")


# -- steps -------------------------------------------------------------------------------------------------------------


def settings(world: World) -> dict[str, str]:
    """The environment of whoever adds tasks in containers. The engine is started, and has no container any more."""
    return {
        "HOLDFAST_CONTAINER_ENGINE": _reachable(world),
        "HOLDFAST_CONTAINER_IMAGE": IMAGE,
        "HOLDFAST_CONTAINER_NETWORK": "none",
        "HOLDFAST_HEALTH_GRACE": "200ms",
    }


def add(world: World, prompt: str, script: str) -> None:
    its_settings = {**settings(world), "HOLDFAST_WORKSPACE_STRATEGY": "container"}

    def work() -> None:
        os.environ.update(its_settings)
        new = NewTask(prompt=prompt, directory=str(world.repo), command=("sh", "-c", RAN + script))
        world.acknowledge(Commands(str(world.home)).add(new).id)

    insist(world, "add", work, lambda: state(world, prompt) != "missing")


def engine_of(world: World) -> PrivateEngine:
    return own_engine(*(["--live-restore"] if world.case.scenario.endswith("-live") else []))


def _reachable(world: World) -> str:
    """Its socket; behind a proxy when the engine is what goes wrong. What an earlier case left is gone by now."""
    engine = engine_of(world)
    engine.tell("up")
    for left in engine.containers():
        engine.remove(str(left["Id"]))
    engine.tell("clear")
    troubles = [fault for fault in world.case.faults if fault.role == ENGINE]
    if not troubles:
        return engine.socket
    path = world.root / "engine.sock"
    if not path.exists():
        fault = troubles[0]
        trouble = Trouble(fault.point, fault.hit, fault.action) if fault.hit else None
        proxy = Proxy(path, engine, trouble, world.trace_file(ENGINE), away=world.root / "engine.away")
        world.used_by_other_runs(proxy.serve, path)
    return str(path)


def _places(world: World) -> list[Path]:
    return [path for path in world.home.glob("workspaces/*/*") if path.is_dir() and path.parent.name != ".trash"]


def _in_workspace(world: World, name: str) -> bool:
    return any((place / name).exists() for place in _places(world))


def _comes_back(world: World) -> None:
    """Whatever went wrong with the engine is over before the recovery: while it is away, nobody can removed."""
    for _moment in world.moments("the engine's trouble is over"):
        if not (world.root / "engine.away").exists():
            break
    engine_of(world).tell("up")
    engine_of(world).tell("tidy")


def _half_done(world: World) -> list[str]:
    """What is said to be done has all that its agent does."""
    if state(world, SUCCEEDS) != "completed":
        return []
    words = ["git", "cat-file", "-e", f"holdfast/{task_id(world, SUCCEEDS)}:more.txt"]
    seen = subprocess.run(words, cwd=world.repo, capture_output=True, check=False)
    return ["lost: a task is completed whose agent never came to its end"] if seen.returncode else []


def nothing_left(world: World) -> list[str]:
    """As the engine itself tells, once it is there again."""
    _comes_back(world)
    engine = engine_of(world)
    left = engine.containers(base_name(str(world.home)))
    found = [f"leaked: container: {one['Id'][:12]} ({one['State']}) of task {one['Labels']}" for one in left]
    if not left and (shims := engine.shims()):
        found.append(f"leaked: process: {len(shims)} containers run that the engine does not know")
    return [*found, *_half_done(world)]


def _scenario(play: Play, expected: dict[str, tuple[str, ...]], about: str, *, is_attended: bool = False) -> Scenario:
    def whole(world: World) -> None:
        play(world)
        _comes_back(world)

    return Scenario(
        whole,
        expected,
        about,
        is_attended=is_attended,
        is_variation=True,
        also=nothing_left,
        absent=why_not,
    )


SCENARIOS: dict[str, Scenario] = {
    "container-success": _scenario(success, {SUCCEEDS: ("completed",)}, "done in a container"),
    "container-failure": _scenario(failure, {FAILS: ("failed",)}, "what it left is salvaged"),
    "container-cancel": _scenario(cancel, {HANGS: ("cancelled",)}, "a stubborn tree, cancelled", is_attended=True),
    "container-killed": _scenario(agent_killed, {DIES: ("completed",)}, "killed once inside, requeued, done"),
    "container-adoption": _scenario(
        adoption, {STAYS: ("completed",)}, "its supervisor dies, its container does not", is_attended=True
    ),
    "container-live": _scenario(
        success, {SUCCEEDS: ("completed",)}, "likewise on an engine whose containers outlive it"
    ),
}
