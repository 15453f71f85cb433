"""R-CRASH-10: the fleet screen: what runs, what waits and why, found by words, in the order that is wanted."""

from __future__ import annotations

import re

import pytest
from tests.fleet import Fleet, wait_until
from tests.tui.hands import Hands
from tests.tui.screen import play, text_of, until, until_seen
from textual.pilot import Pilot

from holdfast.tui.app import Top
from holdfast.tui.widgets.grid import Grid

ODD = "\x1b[31mred\x1b[0m \u202eturned\ttabbed 日本語 [bold]markup[/bold]"


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ended stays listed for as long as a slow machine needs."""
    monkeypatch.setattr("holdfast.api.fleet.filter.LINGER", 3600.0)
    monkeypatch.setattr("holdfast.api.fleet.view.LINGER", 3600.0)


def ids_of(screen: str) -> list[str]:
    """The tasks in the order of their lines."""
    return re.findall(r"^([a-z2-9]{10}) (?:queued|running|paused|failed|completed|cancelled) ", screen, re.MULTILINE)


def test_every_task_is_seen_with_its_reason(fleet: Fleet) -> None:
    """R-CRASH-10: live, with reasons; a filter, another order, finished ones on demand."""
    at_work = fleet.queue("echo begun; exec sleep 1000", prompt="hold the fort")
    fleet.up("--agents", 1)
    fleet.wait_started(at_work)
    follower = fleet.add("build upon it", "--after", at_work, command=("true",))
    second = fleet.add("a second one", "--label", "team=web", command=("true",))
    odd = fleet.add(ODD, command=("true",))
    held = fleet.add("not now", command=("true",))
    fleet.cli("pause", held, "--why", "deploy first")
    ended = fleet.add("old hat", command=("true",))
    fleet.cli("cancel", ended)

    async def story(pilot: Pilot[None], app: Top) -> None:
        grid = app.screen.query_one(Grid)
        screen = await until_seen(
            pilot, at_work, follower, second, odd, held, ended, "6 tasks, unfinished or ended lately"
        )
        lines = {line[:10]: line for line in screen.splitlines() if line[10:11] == " "}
        assert "running" in lines[at_work]
        assert f"after {at_work} (run" in lines[follower]
        assert "1 ahead of it" in lines[second]  # the follower was added before it
        assert "until you resume it: paused" in lines[held]
        assert "red turned tabbed 日本語 [bold]mark" in lines[odd]
        assert ids_of(screen) == [at_work, held, follower, second, odd, ended]
        heard = re.compile(rf"^{at_work} running +command +\d+[smh] +(now|\d+[smh]) +hold the fort", re.MULTILINE)
        await until(pilot, lambda: heard.search(text_of(app)), "a sign of life is seen")

        await pilot.press("slash", *"team=web")
        await until_seen(pilot, "1 of 6 tasks have 'team=web'", second)
        await pilot.press("enter")
        await until(pilot, lambda: app.focused is grid, "the list has the keys again")
        await pilot.press("escape")
        await until_seen(pilot, "6 tasks", odd)
        await pilot.press("slash", *"!state:queued after", "escape")  # dropped again before it is of use
        await until_seen(pilot, "6 tasks", odd)

        await pilot.press("s")
        screen = await until_seen(pilot, "as added")
        assert ids_of(screen) == [at_work, follower, second, odd, held, ended]
        await pilot.press("S")
        screen = await until_seen(pilot, "as added, subtasks below, backwards")
        assert ids_of(screen)[0] == ended

        fleet.cli("cancel", held)  # seen without a key
        await until(pilot, lambda: any(row["state"] == "cancelled" and row["id"] == held for row in grid.rows), "seen")
        await pilot.press("e")
        await until_seen(pilot, "finished ones too", held)

    play(fleet, story)
    fleet.cli("cancel", at_work)
    fleet.wait_state(at_work, "cancelled")


def test_the_cursor_stays_with_its_task(fleet: Fleet) -> None:
    """R-CRASH-10: what a key is about does not change under the finger, even at 80×24 and in 40 columns."""
    tasks = [fleet.queue("true", prompt=f"task {number}") for number in range(30)]

    async def story(pilot: Pilot[None], app: Top) -> None:
        grid = app.screen.query_one(Grid)
        await until_seen(pilot, tasks[0], "30 tasks")
        await pilot.press("end")
        await until(pilot, lambda: grid.row is not None and grid.row["id"] == tasks[-1], "the cursor is on the last")
        await pilot.press("up")
        await until_seen(pilot, f"{tasks[-2]} queued: no supervisor is running")
        for each in tasks[:5]:
            fleet.cli("cancel", each)
        urgent = fleet.queue("true", prompt="urgent", priority=9)
        await until(pilot, lambda: len(grid.rows) == 31 and grid.rows[0]["id"] == urgent, "the new order is there")
        assert grid.row is not None
        assert grid.row["id"] == tasks[-2]
        await pilot.resize_terminal(40, 12)
        screen = await until_seen(pilot, "PROMPT", "task 28", "WHY")
        assert "AGENT" not in screen
        assert all(len(line) <= 40 for line in screen.splitlines())
        await pilot.press("home")
        await until_seen(pilot, "urgent")

    play(fleet, story, size=(80, 24))
    wait_until(lambda: fleet.show(tasks[0])["state"] == "cancelled", "it is cancelled")


def test_a_message_covers_nothing_on_a_narrow_screen(fleet: Fleet) -> None:
    """At 42 columns the message has lines of its own: every task and the line of keys stay visible."""
    tasks = [fleet.queue("true", prompt=f"task {word}") for word in ("alpha", "beta", "gamma")]

    async def story(pilot: Pilot[None], app: Top) -> None:
        hands = Hands(pilot, app)
        await hands.point(tasks[0])
        app.notify("It is queued again, and its next run gets the message that you have just written")
        text = await until_seen(pilot, "It is queued again", "just written", "alpha", "beta", "gamma", "? Help")
        lines = text.splitlines()
        said = [number for number, line in enumerate(lines) if "queued again" in line or "just written" in line]
        listed = [number for number, line in enumerate(lines) if "task alpha" in line or "task gamma" in line]
        assert not set(said) & set(range(min(listed), max(listed) + 1))
        assert not app.screen.query("Toast")

    play(fleet, story, size=(42, 24))
