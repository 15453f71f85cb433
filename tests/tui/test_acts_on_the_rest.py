"""R-CRASH-10: everything that can be done by a key to workers, alerts, schedules and what is held back."""

from __future__ import annotations

import os
import signal

from tests.acceptance.config.test_config import user_file
from tests.fleet import Fleet
from tests.integration.api.test_alerts import hold
from tests.tui.hands import Hands
from tests.tui.screen import play
from tests.tui.test_crashes import raise_alert
from textual.pilot import Pilot

from holdfast.api.commands import Commands
from holdfast.core.dispatch.holds import Scope
from holdfast.tui.actions.handlers import confirm_stop_worker_now
from holdfast.tui.actions.table import ACTIONS
from holdfast.tui.app import Top

CREW = 'agent = "command"\nagents = 0\n[command]\nargv = ["sh"]\n[[worker]]\nname = "web"\nlabels = { area = "web" }\n'


def nightly(fleet: Fleet) -> str:
    return f'[[schedule]]\nname = "nightly"\ncron = "0 3 * * *"\nprompt = "look around"\nrepo = "{fleet.repo}"\n'


def test_workers_alerts_and_schedules(fleet: Fleet) -> None:
    """R-CRASH-05, R-CRASH-06, R-CRASH-10: a worker is stopped (asked first while it works), started, restarted; the
    alert of one whose agent was killed restarts it; alerts are acknowledged one by one and all at once; a schedule
    is fired once, though its key was pressed twice. What somebody else did meanwhile is refused with what to type."""
    user_file(fleet, CREW + nightly(fleet))
    Commands(str(fleet.home)).register(str(fleet.repo))
    task = fleet.queue("exec sleep 1000", labels={"area": "web"})
    fleet.up()
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
        await hands.told("Worker web is started.", f"It continues with its task {task}.")
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
        seen_idle = {"name": "web", "task": None}  # by a screen that is a moment behind
        assert task in (confirm_stop_worker_now(str(fleet.home), seen_idle) or "")
        await hands.asked("c", "Stop worker web now?", "the task stays queued")
        await hands.told("is being ended")
        await hands.row_is(state="stopped", task=None)
        await pilot.press("r")
        await hands.told("Worker web is restarted.")
        await hands.row_is(state="working", task=task)

        raise_alert(fleet, "unsaved:1", "It was not saved")
        raise_alert(fleet, "two", "Number two", "warning")
        raise_alert(fleet, "three", "Number three", "warning")
        await hands.go("3", "alerts")
        await hands.row_is(key="unsaved:1")
        await hands.refused("r", "Restart: There is nothing to restart here.", "Do `this`.")
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
        hold(fleet, Scope.PROVIDER, "acme")
        await pilot.press("L")
        await hands.told("Released: provider:acme.")
        await pilot.press("L")
        await hands.told("Nothing is held back.")

        raise_alert(fleet, "six", "Number six")
        await hands.row_is(key="six")
        alert = hands.row()
        Commands(str(fleet.home)).ack_all_alerts()
        app.actions.act(ACTIONS["ack"], [alert])  # as by a key on a screen that is a moment behind
        await hands.refused("", f"Acknowledge: No open alert {alert['id']}.", "`holdfast alerts --all`")

        await hands.go("4", "schedules")
        await hands.row_is(name="nightly")
        await hands.asked("f", "Fire the schedule nightly now?", answer="n")
        await pilot.press("f", "f")
        await hands.asked("", "Fire the schedule nightly now?")
        await hands.told("is queued by the schedule nightly")
        await pilot.press("p")
        await hands.told("Schedule nightly is disabled.")
        await pilot.press("p")
        await hands.told("Schedule nightly was disabled already.")
        await pilot.press("u")
        await hands.told("Schedule nightly is enabled.")
        schedule = hands.row()
        user_file(fleet, CREW)
        app.actions.act(ACTIONS["fire"], [schedule])
        await hands.asked("", "Fire the schedule nightly now?")
        await hands.refused("", "Fire: The schedule nightly is not in its file any more.")

    play(fleet, story)
    assert fleet.json("alerts") == []
    assert [row["schedule"] for row in map(fleet.show, ids(fleet)) if row["id"] != task] == ["nightly"]


def ids(fleet: Fleet) -> list[str]:
    return [row["id"] for row in fleet.json("ps", "--all")]
