"""Schedules and a clock that is set: no moment fires twice, none is left out in silence, none makes a storm."""

from __future__ import annotations

import json
import time
from collections import Counter
from datetime import UTC, datetime

from tests.harness.campaign.faked_clock import Clock
from tests.harness.campaign.lives import HOUR, UNTIL_GO, At, Life, Play, look
from tests.harness.matrix.steps import RAN, add, write
from tests.harness.matrix.world import World

from holdfast.api.queries import Queries

TICK, STAY = "tick", "stay here"
MOST = 4  # of `misfire = "all"`
# Where clocks are set, and the moment: an hour of the night is missing, or comes twice (half an hour on Lord Howe).
CHANGES = {
    "berlin-spring": ("Europe/Berlin", "30 2 * * *", "2027-03-28T01:00"),
    "berlin-autumn": ("Europe/Berlin", "30 2 * * *", "2027-10-31T01:00"),
    "st-johns-autumn": ("America/St_Johns", "30 1 * * *", "2027-11-07T04:30"),
    "lord-howe-spring": ("Australia/Lord_Howe", "15 2 * * *", "2027-10-02T15:30"),
    "lord-howe-autumn": ("Australia/Lord_Howe", "45 1 * * *", "2027-04-03T15:00"),
}
STEP = 1260.0  # seconds; no occurrence is at the edge of one


def hourly(misfire: str) -> Play:
    def play(world: World, clock: Clock, at: At) -> list[str]:
        clock.start_at(_moment("2026-11-16T08:30"))
        _schedule(world, "0 * * * *", "UTC", f'misfire = "{misfire}"\nmax_catch_up = {MOST}\noverlap = "queue"\n')
        clock.move(HOUR - time.time() % HOUR + 1)
        world.wait_until(lambda: _fires(world), "the first hour fires", while_running="up")
        for number, moment in enumerate(("fired", "later")):
            at(moment)
            look(world, "up", number)
        burst = len(_fires(world)) - 1
        found = [f"loops: {burst} fires at once make up for what was missed"] if burst > 2 * (MOST + 1) else []
        for number in range(2):  # one that comes again is not fired again; the one after it is another
            clock.move(HOUR - time.time() % HOUR + 1)
            look(world, "up", 2 + number)
        last = time.time() // HOUR * HOUR
        world.wait_until(lambda: last in _fires(world), f"the hour {_words(last)} fires", while_running="up")
        if clock.furthest > 3 * HOUR * (MOST if misfire == "all" else 1) and not _skips(world):
            found.append("silent: hours were left out, and nobody said so")
        return [*found, *_leave(world)]

    return play


def nightly(change: str) -> Play:
    """Once in that night."""
    zone, cron, moment = CHANGES[change]

    def play(world: World, clock: Clock, at: At) -> list[str]:
        clock.start_at(_moment(moment) - 3 * STEP)
        _schedule(world, cron, zone, "")
        for number in range(7):
            clock.move(STEP)
            if number == 4:
                at("after")
            look(world, "up", number)
        count = len(_fires(world))
        wrong = [f"twice: {count} fires in a night" if count else "lost: no fire in that night"] if count != 1 else []
        return [*wrong, *_leave(world)]

    return play


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def _words(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat()


def _schedule(world: World, cron: str, zone: str, more: str) -> None:
    """A supervisor does not stay for a schedule: a task keeps it until all is seen."""
    script = RAN + write("tick.txt", "tick")
    world.configure(
        f'agent = "command"\n[command]\nargv = {json.dumps(["sh", "-c", script])}\n'
        f'[[schedule]]\nname = "{TICK}"\nprompt = "{TICK}"\nrepo = {json.dumps(str(world.repo))}\n'
        f'cron = "{cron}"\ntimezone = "{zone}"\n{more}'
    )
    add(world, STAY, UNTIL_GO + write("stayed.txt", "stayed"))
    world.start("up", agents=3)
    world.wait_until((world.root / "working").exists, "somebody stays", while_running="up")
    # A schedule counts from when its file was read, and a file is read once it has settled. On a quick machine the
    # clock was moved past the moment before that, and nothing was owed.
    is_known = lambda: bool(Queries(str(world.home)).view("schedules"))  # noqa: E731
    world.wait_until(is_known, "the schedule is known", while_running="up")


def _leave(world: World) -> list[str]:
    """R-CRON-02: every fire is another moment, with one task of its own."""
    (world.root / "go").touch()
    world.wait("up")
    queries = Queries(str(world.home))
    fires = _fires(world)
    wrong = [f"twice: {_words(one)} was fired {count} times" for one, count in Counter(fires).items() if count > 1]
    ticks = [row for row in queries.tasks(everything=True) if row["prompt"] == TICK]
    if len(ticks) != len(fires):
        wrong.append(f"leaked: {len(ticks)} tasks of {len(fires)} fires")
    wrong += [f"lost: a task of the schedule ended {row['state']}" for row in ticks if row["state"] != "completed"]
    return wrong


def _fires(world: World) -> list[float]:
    events = Queries(str(world.home)).events()
    return [event["data"]["fire_time"] for event in events if event["kind"] == "schedule.fired"]


def _skips(world: World) -> int:
    return sum(event["kind"] == "schedule.skipped" for event in Queries(str(world.home)).events())


TIMED: dict[str, Life] = {
    **{f"hourly-{misfire}": Life(hourly(misfire), ("fired", "later")) for misfire in ("last", "skip", "all")},
    **{change: Life(nightly(change), ("after",), moves=("none", "-1h", "+1h", "-1d")) for change in CHANGES},
}
