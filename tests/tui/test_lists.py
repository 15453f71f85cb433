"""R-CRASH-10: the screens of schedules and workspaces, against real files, trees and a real supervisor."""

from __future__ import annotations

import os

import pytest
from tests.acceptance.schedules.test_schedules import table, write
from tests.fleet import Fleet
from tests.tui.screen import play, text_of, until, until_seen
from textual.pilot import Pilot

from holdfast.tui.app import Top
from holdfast.tui.screens import schedules


def test_schedules_with_their_next_fires_in_their_zones(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-CRASH-10, R-CRON-04: when each fires next and fired last, what is wrong with its file; a file that changes is
    seen; Enter opens the last task. No escape of a prompt gets through."""
    monkeypatch.setattr(schedules, "FILES_EVERY", 0.5)  # a test does not wait five seconds for a file
    fleet.cli("init", "--no-file")
    nightly = table(
        "nightly", fleet.repo, "echo \x1b[31mred\x1b[0m words", "0 2 * * *", timezone="Europe/Berlin", misfire="skip"
    )
    weekly = table("weekly", fleet.repo, cron="0 6 * * MON", enabled=False)
    write(fleet, nightly, weekly)
    fired = fleet.json("schedule", "fire", "nightly")[0]["task"]

    async def story(pilot: Pilot[None], app: Top) -> None:
        await pilot.press("4")
        await until_seen(pilot, "nightly", "02:00 Europe/Berlin", f"ago: {fired} queued", "1 of 2 enabled")
        await until_seen(pilot, "at 02:00 every day", "misfire skip", "echo red words", "nothing fires (U starts one)")
        seen = await until_seen(pilot, "Fired: ", f"task {fired} queued", "Next: in ")
        line = next(line for line in seen.splitlines() if "Next: in " in line)
        assert line.count("02:00 Europe/Berlin") >= 2
        await pilot.press("down")
        await until_seen(pilot, "weekly: at 06:00", "Enabled: no")
        await pilot.press("slash", *"night", "enter")
        await until(pilot, lambda: "weekly" not in text_of(app), "only what has the word is listed")
        await pilot.press("enter")
        await until(pilot, lambda: type(app.screen).__name__ == "TaskView", "its task is open")
        await pilot.press("escape")
        await until_seen(pilot, "nightly", "1 of 2 enabled")
        await pilot.press("escape")
        await until_seen(pilot, "weekly", "nightly")
        await pilot.press("slash", *"disabled", "enter")  # a word on the screen, though in no file
        await until(pilot, lambda: "nightly" not in (text := text_of(app)) and "weekly" in text, "weekly is listed")
        await pilot.press("escape")
        await until_seen(pilot, "weekly", "nightly")
        write(fleet, nightly, weekly, table("hourly", fleet.repo, cron="0 * * * *"))
        await until_seen(pilot, "hourly", "2 of 3 enabled")
        write(fleet, nightly, table("broken", fleet.repo, cron="61 * * * *"))
        await until_seen(pilot, "not taken:", "nightly", "trouble")

    play(fleet, story, size=(200, 40))


def test_workspaces_with_their_sizes_and_what_is_not_ours(fleet: Fleet) -> None:
    """R-CRASH-10, R-CLEAN-08: what is at work, what is preserved and until when, how large each is, and what lies there
    that is not ours. Enter opens the task; what is foreign is left alone."""
    kept = fleet.add("keep this", "--keep-workspace", command=("sh", "-c", "head -c 5000000 /dev/zero > big"))
    busy = fleet.add("at work", command=("sleep", "1000"))
    fleet.up()
    path = fleet.wait_started(busy)["workspace"]["path"]
    fleet.wait_state(kept, "completed")
    foreign = os.path.join(os.path.dirname(path), "plain")
    os.mkdir(foreign)

    async def story(pilot: Pilot[None], app: Top) -> None:
        await pilot.press("5")
        await until_seen(pilot, kept, "preserved", "4.8 MiB", "for 6d", busy, "running", "ready")
        await until_seen(pilot, "foreign", "1 beside them", "2 workspaces, ", "1 preserved", "of disk free")
        await until(pilot, lambda: "so far" not in text_of(app), "all are measured")
        await pilot.press("s")
        await until_seen(pilot, "the largest first")
        await pilot.press("home")
        await until_seen(pilot, f"Workspace of {kept} (completed), preserved")
        await pilot.press("s", "s")
        await until_seen(pilot, "what is not ours first")
        await pilot.press("home")
        await until_seen(pilot, foreign, "left alone")
        await pilot.press("x")
        await until_seen(pilot, "It does not belong to a task of this home.", "Nothing was changed.")
        await pilot.press("escape")
        await until(pilot, lambda: type(app.screen).__name__ == "WorkspacesView", "the refusal is closed")
        await pilot.press("end", "slash", *"ready", "enter")
        await until_seen(pilot, "1 workspace, ", f"Workspace of {busy} (running), ready")
        await pilot.press("enter")
        await until(pilot, lambda: type(app.screen).__name__ == "TaskView", "its task is open")

    play(fleet, story, size=(200, 40))
    fleet.cli("down", "--now")
