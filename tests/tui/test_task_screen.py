"""R-CRASH-10: one task on the screen: its agent's words as they come, what happened, and what is left of its work."""

from __future__ import annotations

from tests.fleet import Fleet, wait_until
from tests.tui.screen import play, text_of, until_seen
from textual.pilot import Pilot

from holdfast.interfaces.tui.app import Top
from holdfast.interfaces.tui.task.paper import Paper


async def opened(pilot: Pilot[None], app: Top, task: str, page: str = "") -> None:
    app.open_task(task)
    await until_seen(pilot, f"task {task}", "[Output]")
    if page:
        await pilot.press(page)


def shown(app: Top) -> Paper:
    """The page's text."""
    return next(paper for paper in app.screen.query(Paper) if paper.parent and paper.parent.has_class("-open"))


def test_an_agent_at_work_is_followed_on_every_page(fleet: Fleet) -> None:
    """R-CRASH-10: what it says now, why it is where it is, budgets left, events, runs, checkpoints, changes."""
    go = fleet.root / "go"
    task = fleet.add_scenario(
        {"say": "I begin with [bold]the[/bold] \x1b[31mhaiku\x1b[2J\u202e of\tautumn"},
        {"tool": {"name": "Bash", "input": "pytest -q", "for": "10ms"}},
        {"write": {"path": "haiku.txt", "text": "--- old\n\x1b[2Jpond\n"}},
        {"report": {"kind": "checkpoint", "message": "the first verse"}},
        {"wait_for": str(go)},
        {"say": "and here is the frog"},
        {"write": {"path": "frog.txt", "text": "plop\n"}},
        {"stderr": "the frog was heard to croak"},
        {"exit": 3},
        options=("--label", "kind=poem"),
    )
    fleet.up()
    wait_until(lambda: fleet.show(task)["checkpoints"], "the tree was kept")

    async def story(pilot: Pilot[None], app: Top) -> None:
        await until_seen(pilot, task, "running")
        await pilot.press("enter")
        text = await until_seen(pilot, "I begin with [bold]the[/bold] haiku of  autumn", "Bash  pytest -q", "following")
        assert "\x1b" not in text
        assert "\u202e" not in text
        await pilot.press("i")
        await until_seen(pilot, "Why it is running", "Budgets left", "runs ", " left, ")
        assert "kind=poem" in shown(app).text()
        assert "Health:" in shown(app).text()
        await pilot.press("e")
        await until_seen(pilot, "run.started", "checkpoint.saved", "TIME")
        await pilot.press("t")
        await until_seen(pilot, "[Runs]", "started", "pid ")
        await pilot.press("v")
        await until_seen(pilot, "checkpoint 1", f"holdfast resume {task} --checkpoint 1")
        await pilot.press("enter")
        await until_seen(pilot, "checkpoint 1 (d: its changes now): 1 file changed", "+pond")
        await pilot.press("d")
        await until_seen(pilot, "its changes: 1 file changed, 2 insertions(+)", "haiku.txt", "+--- old", "+pond")
        await pilot.press("right")
        await until_seen(pilot, "[Output]")
        go.touch()
        await until_seen(pilot, "and here is the frog", "failed", "run 1 of 1")
        await pilot.press("E")
        await until_seen(pilot, "standard error of run 1", "the frog was heard to croak")
        await pilot.press("E", "left")
        await until_seen(pilot, "[Diff]", "plop", "2 files changed")
        await pilot.press("i")
        await until_seen(pilot, "Why it is failed", "holdfast retry")
        await pilot.press("t")
        await until_seen(pilot, "the last words on its standard error", "the frog was heard to croak")
        await pilot.press("r")
        await until_seen(pilot, "scripted, run 2")
        await pilot.press("o")
        await until_seen(pilot, "run 2 of 2")
        await pilot.press("comma")
        await until_seen(pilot, "run 1 of 2", "Bash  pytest -q")
        await pilot.press("escape")
        await until_seen(pilot, "PROMPT")

    play(fleet, story, size=(80, 24))


def test_a_task_that_was_purged_and_a_log_that_is_gone_are_told(fleet: Fleet) -> None:
    """R-CRASH-10: the screen outlives what it shows: nothing is pressed on a task that is not there any more."""
    task = fleet.queue("echo first words; touch a; exit 0")
    fleet.up()
    fleet.wait_state(task, "completed")
    run = fleet.show(task)["runs"][0]["id"]

    async def story(pilot: Pilot[None], app: Top) -> None:
        await opened(pilot, app, task)
        await until_seen(pilot, "first words", "completed")
        (fleet.home / "runs" / run / "out.log").unlink()
        await until_seen(pilot, "gone: `retention.runs`")
        text = text_of(app)
        assert "first words" in text

    play(fleet, story)
