"""R-CRASH-10: everything that can be done by a key to workers, alerts, schedules and what is held back."""

from __future__ import annotations

import os
import signal

from tests.acceptance.test_config import user_file
from tests.fleet import Fleet
from tests.tui.hands import Hands
from tests.tui.screen import play
from tests.tui.test_crashes import raise_alert
from textual.pilot import Pilot

from holdfast.api.commands import Commands
from holdfast.interfaces.tui.app import Top

CREW = '[[worker]]\nname = "web"\nlabels = { area = "web" }\n'


def nightly(fleet: Fleet) -> str:
    keys = f'name = "nightly"\ncron = "0 3 * * *"\nprompt = "look around"\nrepo = "{fleet.repo}"\nagent = "scripted"\n'
    scenario = fleet.scenario({"print": "looked"})
    return f'[[schedule]]\n{keys}scenario = "{scenario}"\n'


def test_workers_and_alerts(fleet: Fleet) -> None:
    """R-CRASH-05, R-CRASH-06, R-CRASH-10: a worker is stopped (asked first while it works), started, restarted; the
    alert of one whose agent was killed restarts it; alerts are acknowledged one by one and all at once."""
    user_file(fleet, CREW)
    task = fleet.queue("exec sleep 1000", labels={"area": "web"})
    fleet.up("--agents", 0)
    pid = fleet.wait_started(task)["runs"][-1]["pid"]

    async def story(pilot: Pilot[None], app: Top) -> None:
        hands = Hands(pilot, app)
        await hands.go("2", "workers")
        await hands.point("web", by="name")
        await hands.row_is(state="working")
        await hands.asked("p", "Stop worker web?", f"It finishes its task {task} first", answer="n")
        await hands.asked("p", "Stop worker web?")
        await hands.told("Worker web is stopped.", f"It finishes its task {task} first.")
        await hands.row_is(state="stopping")
        await pilot.press("u")
        await hands.told("Worker web is started.", f"It goes on with its task {task}.")
        await hands.row_is(state="working")
        os.kill(pid, signal.SIGKILL)
        await hands.row_is(state="stopped", task=None)
        await hands.go("3", "alerts")
        await hands.row_is(key="crash:worker:web")
        await pilot.press("r")
        await hands.told("Worker web is restarted.")
        await hands.nothing_here()
        await hands.go("2", "workers")
        await hands.row_is(state="working", task=task)
        await hands.asked("c", "Stop worker web now?", "the task stays queued")
        await hands.told("is told to end")
        await hands.row_is(state="stopped", task=None)
        await pilot.press("r")
        await hands.told("Worker web is restarted.")
        await hands.row_is(state="working", task=task)

        raise_alert(fleet, "unsaved:1", "It was not saved")
        for number in ("two", "three"):
            raise_alert(fleet, number, f"Number {number}", "warning")
        await hands.go("3", "alerts")
        await hands.row_is(key="unsaved:1")
        await hands.refused("r", "Restart: Nothing is to be restarted here.", "Do `this`.")
        await pilot.press("a")
        await hands.told("Acknowledged alert ")
        await hands.row_is(level="warning")
        await hands.asked("A", "Acknowledge all 2 open alerts (worst: warning)?", answer="escape")
        Commands(str(fleet.home)).ack_all_alerts()  # by somebody else, while this one reads
        await hands.nothing_here()
        raise_alert(fleet, "four", "Number four")
        raise_alert(fleet, "five", "Number five")
        await hands.row_is(level="critical")
        await hands.asked("A", "Acknowledge all 2 open alerts (worst: critical)?")
        await hands.told("2 alerts acknowledged.")
        await pilot.press("L")
        await hands.told("Nothing is held back.")

    play(fleet, story)
    assert fleet.json("alerts") == []


def test_an_alert_that_is_gone_and_a_schedule(fleet: Fleet) -> None:
    """R-CRASH-10, R-CRON-04: without a supervisor wishes are recorded, and that is said; what somebody else did
    meanwhile is refused with the next command, and nothing is done twice by a key that is pressed twice."""
    user_file(fleet, nightly(fleet))
    raise_alert(fleet, "one", "Number one")
    Commands(str(fleet.home)).register(str(fleet.repo))

    async def story(pilot: Pilot[None], app: Top) -> None:
        hands = Hands(pilot, app)
        await hands.go("3", "alerts")
        await hands.row_is(key="one")
        app.feed.detach((app.screen.watch_alerts,))  # type: ignore[attr-defined]
        Commands(str(fleet.home)).ack_alert(1)
        await hands.refused("a", "Acknowledge: No open alert 1.", "`holdfast alerts --all`")
        await hands.go("4", "schedules")
        await hands.point("nightly", by="name")
        await hands.asked("f", "Fire the schedule nightly now?", answer="n")
        await pilot.press("f", "f")
        await hands.asked("", "Fire the schedule nightly now?")
        await hands.told("is queued by the schedule nightly", "No supervisor is running")
        await pilot.press("p")
        await hands.told("Schedule nightly is disabled.")
        await pilot.press("p")
        await hands.told("Schedule nightly was disabled already.")
        await pilot.press("u")
        await hands.told("Schedule nightly is enabled.", "nothing fires until `holdfast up`")
        user_file(fleet, "agents = 1\n")
        await hands.refused("f", "nightly")

    play(fleet, story)
    assert len(fleet.json("ps")) == 1
