"""Lives of tasks in which the wall clock is moved. Each names its moments; at one of them the clock moves.

What is promised is asked in the clock that is there then: what waits for an hour is over when that clock has gone on by
an hour (never later), a wait that the clock did not reach is not over (never earlier, unless it was set back: then
nobody knows how much of it is left), and what runs is not touched at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.harness.campaign.faked_clock import Clock
from tests.harness.matrix.steps import add, events_tell, state, task, task_id, write
from tests.harness.matrix.world import Stuck, World

from holdfast.api.commands import Commands, NewTask, pause
from holdfast.api.queries import Queries

HOUR, DAY, YEAR = 3600.0, 86400.0, 365 * 86400.0
At = Callable[[str], None]  # this moment has come
Play = Callable[[World, Clock, At], Sequence[str]]
WAIT = "wait"
UNTIL_GO = "touch $WORLD/working; until [ -e $WORLD/go ]; do sleep 0.02; done\n"


@dataclass(frozen=True, slots=True)
class Life:
    play: Play
    moments: tuple[str, ...]
    moves: tuple[str, ...] = ()  # none: the usual ones
    comes_to_rest: bool = True


def work(world: World, clock: Clock, at: At) -> list[str]:
    """Deadlines of runs do not go by this clock."""
    script = write("early.txt", "early") + UNTIL_GO + write("late.txt", "late")
    add(world, "work", script, timeout=120.0, stuck_after=60.0)
    at("queued")
    world.start("up")
    world.wait_until((world.root / "working").exists, "the agent works", while_running="up")
    at("working")
    look(world, "up", 1)
    at("later")
    look(world, "up", 2)
    (world.root / "go").touch()
    world.wait("up")
    return ended(world, "work", runs=1)


def adopted(world: World, clock: Clock, at: At) -> list[str]:
    """Between two supervisors."""
    add(world, "work", write("early.txt", "early") + UNTIL_GO + write("late.txt", "late"), timeout=120.0)
    world.start("up")
    world.wait_until((world.root / "working").exists, "the agent works", while_running="up")
    world.kill("up")
    at("alone")
    world.start("up2")
    world.wait_until(lambda: events_tell(world, "task.adopted"), "it is adopted", while_running="up2")
    at("adopted")
    look(world, "up2", 1)
    (world.root / "go").touch()
    world.wait("up2")
    return ended(world, "work", runs=1)


def paused(world: World, clock: Clock, at: At) -> list[str]:
    """By an operator, for an hour."""
    add(world, WAIT, write("done.txt", "done"))
    task = task_id(world, WAIT)
    world.client("pause", lambda: pause(str(world.home), task, seconds=HOUR))
    return waited(world, clock, at, "paused", runs=1)


def limited(world: World, clock: Clock, at: At) -> list[str]:
    """By a usage limit that ends in an hour: one resume is spent."""
    add_scenario(
        world,
        WAIT,
        {"do": "write", "with": {"path": "before.txt", "text": "before"}, "run": 1},
        {"do": "limit", "with": {"kind": "usage", "for": HOUR}, "run": 1},
        {"do": "write", "with": {"path": "after.txt", "text": "after"}, "run": 2},
    )
    found = waited(world, clock, at, "paused", runs=2)
    resumes = sum(event["kind"] == "task.resumed" for event in Queries(str(world.home)).events())
    return [*found, *([f"loops: it was resumed {resumes} times"] if resumes != 1 else [])]


def delayed(world: World, clock: Clock, at: At) -> list[str]:
    """`add --delay 1h`."""
    add(world, WAIT, write("done.txt", "done"), delay=HOUR)
    return waited(world, clock, at, "queued", runs=1)


def backed_off(world: World, clock: Clock, at: At) -> list[str]:
    """A crash, and an hour until the next try."""
    world.configure('[retry]\nbase = "1h"\n')
    script = write("early.txt", "early") + "[ -e $WORLD/dead ] || { touch $WORLD/dead; kill -9 $$; }\n"
    add(world, WAIT, script + write("late.txt", "late"))
    return waited(world, clock, at, "queued", runs=2, after=(world.root / "dead").exists)


def crashing(world: World, clock: Clock, at: At) -> list[str]:
    """Three crashes within ten minutes are too many, whatever this clock says of them."""
    world.configure('[retry]\nbase = "10ms"\n[mass_death]\nagents = 0\n')
    script = 'n=$(cat $WORLD/runs 2>/dev/null || echo 0); echo $((n+1)) > $WORLD/runs; touch "$WORLD/run-$n"\n'
    add(world, "crash", script + 'until [ -e "$WORLD/go-$n" ]; do sleep 0.02; done; kill -9 $$\n')
    world.start("up")
    for number in range(3):
        there = (world.root / f"run-{number}").exists
        if not world.wait_until(there, f"run {number} is there", while_running="up"):
            break
        at(f"run-{number}")
        (world.root / f"go-{number}").touch()
    (world.root / "go-3").touch()
    world.wait("up")
    return ended(world, "crash", runs=3, state_is="failed")


LIVES: dict[str, Life] = {
    "work": Life(work, ("queued", "working", "later")),
    "adopted": Life(adopted, ("alone", "adopted")),
    "paused": Life(paused, ("waiting", "watched")),
    "limited": Life(limited, ("waiting", "watched")),
    "delayed": Life(delayed, ("waiting", "watched")),
    "backed-off": Life(backed_off, ("waiting", "watched")),
    "crashing": Life(crashing, ("run-0", "run-1", "run-2")),
}


# -- what lives are made of --------------------------------------------------------------------------------------------


def waited(
    world: World, clock: Clock, at: At, state_is: str, *, runs: int, after: Callable[[], object] = lambda: True
) -> list[str]:
    """It waits for an hour: moved before that, it may be over; else it is over when the hour has passed."""
    world.start("up")
    waits = lambda: after() and state(world, WAIT) == state_is  # noqa: E731 - a fact
    world.wait_until(waits, "it waits", while_running="up")
    began = clock.offset
    at("waiting")
    look(world, "up", 1)
    at("watched")
    look(world, "up", 2)
    row, gone_on = task(world, WAIT) or {}, clock.offset - began
    found = []
    if 0 <= gone_on < HOUR and not clock.was_set_back and row.get("state") != state_is:
        found.append(f"loops: it continued after {gone_on:.0f} s of the hour that it was to wait")
    clock.move(HOUR + 1)  # its own hour, by the clock that is there now
    if world.is_running("up"):
        world.wait_until(lambda: state(world, WAIT) == "completed", "its hour is over", while_running="up")
    world.wait("up")
    return found + ended(world, WAIT, runs=runs)


def look(world: World, role: str, number: int) -> None:
    """Until the supervisor has looked at everything since: a task that was added now has ended."""
    prompt = f"look {number}"
    add(world, prompt, "true", role=f"look{number}", workspace="directory")
    if world.wait_until(lambda: state(world, prompt) == "completed", f"'{prompt}' ended", while_running=role):
        return
    world.up(f"{role}-{prompt}".replace(" ", "-"))  # what waited was over, and there was nothing else to stay for
    if state(world, prompt) != "completed":
        raise Stuck(f"{role} ended, and '{prompt}' is {state(world, prompt)}")


def add_scenario(world: World, prompt: str, *steps: dict[str, Any]) -> None:
    def work() -> None:
        new = NewTask(prompt=prompt, directory=str(world.repo), scenario=steps)
        world.acknowledge(Commands(str(world.home)).add(new).id)

    world.client("add", work)


def ended(world: World, prompt: str, *, runs: int, state_is: str = "completed") -> list[str]:
    row = task(world, prompt)
    if row is None or row["state"] != state_is:
        return [f"lost: '{prompt}' ended {row and row['state']}: {row and row['reason']}"]
    count = _runs(world, prompt)
    return [f"twice: '{prompt}' had {count} runs, not {runs}"] if count != runs else []


def _runs(world: World, prompt: str) -> int:
    return len(Queries(str(world.home)).task(task_id(world, prompt))["runs"])
