"""R-CRASH-10: the screen opens, shows what runs, and acts by a key."""

from __future__ import annotations

import pytest
from tests.fleet import Fleet
from tests.tui.screen import play, until, until_seen
from textual.pilot import Pilot

from holdfast.api.commands import pause
from holdfast.api.queries import Queries
from holdfast.tui.app import Top
from holdfast.tui.feed import Watch
from holdfast.tui.screens.task.screen import TaskView


def test_a_queued_task_is_seen_and_cancelled_by_a_key(fleet: Fleet) -> None:
    """R-CRASH-10: what destroys is asked first; what was done is told, and seen."""
    task = fleet.add("write a poem", command=("sleep", "100"))

    async def story(pilot: Pilot[None], _app: Top) -> None:
        await until_seen(pilot, task, "queued", "write a poem", "no supervisor is running")
        await pilot.press("c")
        await until_seen(pilot, f"Cancel task {task}?")
        await pilot.press("n")
        assert fleet.show(task)["state"] == "queued"
        await pilot.press("c")
        await until_seen(pilot, f"Cancel task {task}?")
        await pilot.press("y")
        await until_seen(pilot, f"Cancelled {task}.")

    play(fleet, story)
    assert fleet.show(task)["state"] == "cancelled"


def test_a_refusal_says_why_and_what_to_do(fleet: Fleet) -> None:
    task = fleet.add("write a poem", command=("sleep", "100"))

    async def story(pilot: Pilot[None], _app: Top) -> None:
        await until_seen(pilot, task)
        await pilot.press("u")
        await until_seen(pilot, "Resume: ", task, "nothing was changed.")
        await pilot.press("escape", "question_mark")
        await until_seen(pilot, "Keys: fleet", "Cancel")

    play(fleet, story)
    assert fleet.show(task)["state"] == "queued"


def test_what_was_read_for_a_screen_below_a_dialog_is_not_lost(fleet: Fleet) -> None:
    """R-CRASH-10: what arrives while another screen is on top is on this one when it comes back. (A reader that found
    nothing new says nothing, so that what is dropped once would be missing until the next change.)"""
    task = fleet.queue("sleep 100")

    async def story(pilot: Pilot[None], app: Top) -> None:
        app.open_task(task)
        await until_seen(pilot, task, "queued")
        view = app.screen
        assert isinstance(view, TaskView)
        await pilot.press("question_mark")
        await until_seen(pilot, "Keys: task")
        pause(str(fleet.home), task)
        watch = view._task_watch
        app.post_message(Top.Read(watch, watch.read(Queries(str(fleet.home)))))  # on its way when the dialog came
        await pilot.press("escape")
        await until_seen(pilot, "paused", "u Resume")

    play(fleet, story)


def test_a_mistake_of_ours_is_told_in_words(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    """R-CRASH-10: no hundred lines of code on the terminal, and nothing of what the program had in memory."""
    fleet.queue("sleep 100", prompt="a secret")

    async def story(pilot: Pilot[None], app: Top) -> None:
        await until_seen(pilot, "a secret")
        read = Watch("mistake", lambda queries: queries.tasks(everything=True), lambda rows: rows["no such"])
        app.feed.attach([read])
        await until(pilot, lambda: app._exception, "it went wrong")

    with pytest.raises(TypeError):
        play(fleet, story)
    words = " ".join("".join(capsys.readouterr()).split())
    assert "because of a defect in Holdfast at test_first_look.py:" in words
    assert "TypeError" in words
    assert "secret" not in words
    assert "Traceback" not in words
