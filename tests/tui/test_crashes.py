"""R-CRASH-10: an agent that is killed is on screen at once; the third time it is an alert on every screen, with what
was recovered, and a key starts the worker again."""

from __future__ import annotations

import os
import signal
import time

import pytest
from tests.acceptance.config.test_config import user_file
from tests.fleet import STRICT, Fleet
from tests.tui.screen import play, text_of, until, until_seen
from textual.pilot import Pilot

from holdfast.api.queries import Queries
from holdfast.tui.app import Top

WORKER = 'agents = 0\n[[worker]]\nname = "web"\nrestart = true\n'


def has_spoken(fleet: Fleet, number: int) -> bool:
    """Whether its last words are written: an agent that is killed while it starts has none."""
    said = fleet.root / "said"
    return said.exists() and len(said.read_text().splitlines()) >= number


async def kill_agent(pilot: Pilot[None], fleet: Fleet, task: str, number: int) -> float:
    """`kill -9` of its agent in that run, from outside; when that was."""
    runs = await until(
        pilot,
        lambda: [run for run in fleet.show(task)["runs"] if (run["number"], run["state"]) == (number, "started")],
        f"run {number} of {task} works",
    )
    await until(pilot, lambda: has_spoken(fleet, number), "its last words are written")
    at = time.monotonic()
    os.kill(runs[0]["pid"], signal.SIGKILL)
    return at


def is_put_away(fleet: Fleet) -> bool:
    return all(row["state"] in ("preserved", "gone") for row in Queries(str(fleet.home)).workspaces(everything=True))


def test_three_kills_are_seen_alerted_once_and_the_worker_restarted_by_a_key(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-CRASH-04, R-CRASH-06, R-CRASH-09, R-CRASH-10: each death within a second; auto_restart's states; one alert, on
    every screen and over dialogs; one ring; restarted by hand."""
    rings: list[float] = []
    monkeypatch.setattr(Top, "bell", lambda _app: rings.append(time.monotonic()))
    user_file(fleet, WORKER)
    task = fleet.queue(f"printf 'bro\\033[31mken pipe\\n' >&2; echo yes >> {fleet.root}/said; exec sleep 1000")
    fleet.up()

    async def story(pilot: Pilot[None], app: Top) -> None:
        await pilot.press("2")
        await until_seen(pilot, "web", "working", task, "0/3", "by itself")
        killed = await kill_agent(pilot, fleet, task, 1)
        await until_seen(pilot, "CRASH, ", task, "killed by signal 9")
        took = time.monotonic() - killed
        assert took < (1 if STRICT else 20)
        if STRICT:
            print(f"on screen {took:.2f} s after the kill")
        await until_seen(pilot, "1/3", "It is queued to run", "working", "│ broken pipe")
        await kill_agent(pilot, fleet, task, 2)
        await until_seen(pilot, "2/3", "2 of 3 within 10m")
        assert rings == []
        await kill_agent(pilot, fleet, task, 3)
        seen = await until_seen(pilot, "3/3", "benched", "continues by itself in", "CRITICAL and 1 more", "(3: alerts)")
        assert "CRASH, " not in seen, "the alert tells it already"
        for screen in ("1", "4", "5", "3"):
            await pilot.press(screen)
            await until_seen(pilot, "CRITICAL", f"task {task}")
        await until_seen(pilot, "Worker web is benched", "Recent crashes: 3 within 10m", "│ broken pipe", "Recovered: ")
        await pilot.press("question_mark")
        await until_seen(pilot, "Keys: alerts", "CRITICAL")
        await pilot.press("escape")
        await until(pilot, lambda: "Keys: alerts" not in text_of(app), "help is closed")
        await pilot.press("2")
        await until_seen(pilot, "WORKER", "3/3", "benched")
        await pilot.press("r")
        await until_seen(pilot, "0/3", "web is waiting", "restarted by", f"Task {task} crashed too often")
        await until(pilot, lambda: is_put_away(fleet), "its workspace is removed: before, a retry is refused")
        await pilot.press("1")
        await until_seen(pilot, "PROMPT", "failed", task)
        await pilot.press("r")
        await until_seen(pilot, "running", task)
        await until(pilot, lambda: "CRITICAL" not in text_of(app), "the alerts are over")
        await pilot.press("3")
        await until_seen(pilot, "No alerts: nothing needs you. 2 crashes of the last hour were recovered.")
        await pilot.press("e")
        await until_seen(pilot, "c3 crash", "c2 crash", "c1 crash", "2 over", "1 over")

    play(fleet, story, bell=True)
    assert 1 <= len(rings) <= 2, "one for the worker, one for the task; or one, if both were seen together"


def raise_alert(fleet: Fleet, key: str, message: str, level: str = "critical", **details: object) -> None:
    """As a supervisor does it."""
    from holdfast.api.commands import Commands
    from holdfast.base import clock
    from holdfast.core.model import Level

    Commands(str(fleet.home)).write(
        lambda tx: tx.events.raise_alert(key, message, "Do `this`.", clock.now(), level=Level(level), details=details)
    )


def tell_ending(fleet: Fleet, run: str, outcome: str) -> None:
    """As the store tells of an agent's end, before it is decided what follows."""
    from holdfast.api.commands import Commands
    from holdfast.base import clock
    from holdfast.core.model import Event

    told = Event(
        kind="agent.terminated",
        component="processes",
        task_id="sometask",
        run_id=run,
        message="ended",
        reason="it died",
        data={"outcome": outcome},
    )
    Commands(str(fleet.home)).write(lambda tx: tx.events.emit(told, clock.now()))


def test_alerts_the_worst_first_ring_once_per_episode(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-CRASH-06, R-CRASH-10: also when top is left and opened again, or the same alert is raised again meanwhile; a
    new episode rings again. What an agent wrote neither moves nor colours anything, at 40 columns, over a dialog."""
    rings: list[str] = []
    monkeypatch.setattr(Top, "bell", lambda _app: rings.append("ring"))
    raise_alert(fleet, "one", "The first\x1b[2J one", error_text="\x1b[31mred[/] \u202eevil\ttab\n" + "long " * 500)
    raise_alert(fleet, "two", "A word of warning", "warning")

    async def rung_for_what_is_open(pilot: Pilot[None], _app: Top) -> None:
        await until_seen(pilot, "CRITICAL (3: alerts): The first one Do `this`.")
        raise_alert(fleet, "one", "The first one")
        for run, outcome in enumerate(("external_kill", "cancelled", "crashed", "out_of_memory", "timeout")):
            tell_ending(fleet, f"run{run}", outcome)
        await pilot.press("3")
        seen = await until_seen(pilot, "CRITICAL: alert 1,", "2 times", "│ red[/] evil", "CRASH and 2 more", "it died")
        lines = seen.splitlines()
        listed = [line.split()[:2] for line in lines if line.split()[1:2] in (["critical"], ["warning"])]
        assert listed == [["1", "critical"], ["2", "warning"]]
        assert max(map(len, lines)) <= 80

    async def not_again_and_once_more(pilot: Pilot[None], app: Top) -> None:
        await until_seen(pilot, "CRITICAL")
        assert rings == ["ring"]
        await pilot.press("3")
        await until_seen(pilot, "critical", "warning")
        await pilot.press("a")
        await until(pilot, lambda: "CRITICAL" not in text_of(app), "it is acknowledged, and gone from the banner")
        await until_seen(pilot, "WARNING: alert 2,")
        await pilot.press("e")
        await until_seen(pilot, "over", "The first one", "warning")
        await pilot.press("slash", *"!word")
        await until(pilot, lambda: "A word" not in text_of(app), "the filter keeps what has no such word")
        await pilot.press("escape")
        await until_seen(pilot, "A word", "The first one")
        raise_alert(fleet, "one", "The first one, again")
        await until_seen(pilot, "CRITICAL", "again")
        await pilot.press("question_mark")
        await until_seen(pilot, "Keys: alerts", "CRITICAL")

    play(fleet, rung_for_what_is_open, bell=True, size=(80, 24))
    assert rings == ["ring"]
    play(fleet, not_again_and_once_more, bell=True, size=(40, 16))
    assert rings == ["ring", "ring"]
