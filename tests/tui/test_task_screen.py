"""R-CRASH-10: one task on the screen: its agent's words as they come, what happened, and what is left of its work."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tests.fleet import Fleet, wait_until
from tests.swarm import draft, queue_swarm, wait_members
from tests.tui.screen import play, text_of, until, until_seen
from tests.tui.test_crashes import is_put_away
from textual.pilot import Pilot

from holdfast.api.work import diff
from holdfast.tui.app import Top
from holdfast.tui.feed import Watch
from holdfast.tui.screens.task.screen import TaskView
from holdfast.tui.widgets.text_view import Paper

AT_ONCE = {"HOLDFAST_RETENTION_EVENTS": "1ms", "HOLDFAST_RETENTION_RUNS": "1ms", "HOLDFAST_RETENTION_TASKS": "1ms"}


def shown(app: Top) -> Paper:
    """The page's text."""
    return next(paper for paper in app.screen.query(Paper) if paper.parent and paper.parent.has_class("-open"))


def test_an_agent_at_work_is_followed_on_every_page(fleet: Fleet) -> None:
    """R-CRASH-10: what it says now, why it is where it is, budgets left, events, runs, checkpoints, changes."""
    go, end = fleet.root / "go", fleet.root / "end"
    task = fleet.add_scenario(
        {"say": "I begin with [bold]the[/bold] \x1b[31mhaiku\x1b[2J\u202e of\tautumn"},
        {"tool": {"name": "Bash", "input": "pytest -q", "for": "10ms"}},
        {"write": {"path": "haiku.txt", "text": "--- old\n\x1b[2Jpond\n"}},
        {"report": {"kind": "checkpoint", "message": "the first verse"}},
        {"wait_for": str(go)},
        {"say": "and here is the frog"},
        {"wait_for": str(end)},
        {"write": {"path": "frog.txt", "text": "plop\n"}},
        {"stderr": "the frog was heard to croak"},
        {"exit": 3},
        options=("--label", "kind=poem"),
    )
    child = fleet.queue("true", prompt="translate it", parent=task, delay=9000.0)
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
        await until_seen(
            pilot, "[Diff]", "its changes: 1 file changed, 2 insertions(+)", "haiku.txt", "+--- old", "+pond"
        )
        await pilot.press("left")
        await until_seen(pilot, "[Family]", "subtask", child, "translate it")
        await pilot.press("enter")
        await until_seen(pilot, f"task {child}", "There is no run yet")
        await pilot.press("y")
        await until_seen(pilot, "parent", task)
        await pilot.press("escape")
        await until_seen(pilot, "subtask", child)
        await pilot.press("right", "right")
        await until_seen(pilot, "[Output]")
        go.touch()
        await until_seen(pilot, "and here is the frog", "running", "run 1 of 1")
        end.touch()
        await until_seen(pilot, "and here is the frog", "failed", "run 1 of 1")
        await pilot.press("E")
        await until_seen(pilot, "standard error of run 1", "the frog was heard to croak")
        await pilot.press("E", "left")
        await until_seen(pilot, "[Diff]", "plop", "2 files changed")
        await pilot.press("i")
        await until_seen(pilot, "Why it is failed", "holdfast retry")
        await pilot.press("t")
        await until_seen(pilot, "the last words on its standard error", "the frog was heard to croak")
        await until(pilot, lambda: is_put_away(fleet), "its workspace is removed: before, a retry is refused")
        await pilot.press("r")
        await until_seen(pilot, "scripted, run 2")
        await pilot.press("o")
        await until_seen(pilot, "run 2 of 2")
        await pilot.press("comma")
        await until_seen(pilot, "run 1 of 2", "Bash  pytest -q")
        await pilot.press("escape")
        await until_seen(pilot, "PROMPT")

    play(fleet, story, size=(80, 24))


def test_members_long_logs_gates_and_a_task_that_is_purged(fleet: Fleet) -> None:
    """R-CRASH-10: every member of a stage is heard; a long log is read where somebody looks; what is gone is
    said to be."""
    go = fleet.root / "go"
    scripts = {
        "loud": f"seq -f 'loud line %07.0f' 60000; until [ -e {go} ]; do sleep 0.05; done; printf 'the last of it'",
        "shy": f"echo 'shy → words'; until [ -e {go} ]; do sleep 0.05; done",
    }
    task = queue_swarm(fleet, draft(scripts))
    supervisor = fleet.up("--agents", 2)
    wait_members(fleet, task, 2)
    runs = {run["member"]: run for run in fleet.show(task)["runs"]}

    async def story(pilot: Pilot[None], app: Top) -> None:
        await until_seen(pilot, task, "running")
        app.open_task(task, "runs")
        await until_seen(pilot, "[Runs]", "/loud", "/shy")
        await pilot.press("home" if runs["loud"]["number"] == 1 else "end", "enter")
        await until_seen(pilot, "[Output]", f"run {runs['loud']['number']} of 2", "loud line 0060000", "following")
        await pilot.press("pageup")
        await until_seen(pilot, "G follows")
        top = shown(app).text().partition("\n")[0]
        assert top > "loud line 0050000"  # only the end was read
        await pilot.press("g")
        await until_seen(pilot, "loud line 0000001", "below, G follows")
        await pilot.press("pagedown", "pagedown")
        await until_seen(pilot, "loud line 0000040")
        go.touch()
        fleet.wait_state(task, "completed")
        await pilot.press("G")
        await until_seen(pilot, "loud line 0060000", "the last of it", "completed")
        await pilot.press("comma" if runs["loud"]["number"] == 2 else "full_stop")
        await until_seen(pilot, "shy → words", f"run {runs['shy']['number']} of 2")
        await pilot.press("n")
        await until_seen(pilot, "members of", "2 of 2 completed")
        await pilot.resize_terminal(40, 20)
        await until_seen(pilot, "< [Results] >", "2 of 2 completed")
        await pilot.press("o")
        await until_seen(pilot, "< [Output] >", "shy → words")
        supervisor.terminate()
        supervisor.wait(timeout=60)
        fleet.up(env=AT_ONCE)
        await until_seen(pilot, f"Task {task} was purged", "shy → words")
        await until_seen(pilot, "deleted: `retention.runs`")
        await pilot.press("i", "e", "t", "v", "d")
        await until_seen(pilot, "< [Diff] >", "Task not found")
        await pilot.press("c")
        await until_seen(pilot, "There is nothing")
        await pilot.press("escape")
        await until_seen(pilot, "No task")

    play(fleet, story, size=(100, 24))


def test_a_task_in_a_restored_store_and_a_comparison_that_takes_long(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-CRASH-10: what a restore undid is not told as if it had happened; a page that was left for another and is
    wanted again is not empty; a digit leads from a task to its list."""
    task, backup = fleet.add("write a poem", command=("true",)), fleet.root / "backup.db"
    fleet.cli("backup", backup)
    fleet.cli("pause", task)
    begun, may_end, glance = threading.Event(), threading.Event(), diff.diff_for_screen
    may_end.set()

    def slow(*words: Any) -> Any:
        begun.set()
        assert may_end.wait(60)
        return glance(*words)

    monkeypatch.setattr(diff, "diff_for_screen", slow)

    async def story(pilot: Pilot[None], app: Top) -> None:
        await until_seen(pilot, task, "paused")
        app.open_task(task, "events")
        await until_seen(pilot, "[Events]", "task.paused")
        await asyncio.to_thread(fleet.cli, "restore", backup, "--yes")
        await until(pilot, lambda: "task.paused" not in text_of(app), "what was undone is not told")
        await until_seen(pilot, "[Events]", "task.queued")

        await pilot.press("d")
        problem = f"Task {task} has no workspace, branch or saved work"
        await until_seen(pilot, "[Diff]", problem)
        begun.clear()
        may_end.clear()
        await pilot.press("d")
        await until(pilot, begun.is_set, "it is compared again")
        view = app.screen
        assert isinstance(view, TaskView)
        view._open_diff(1)
        await until_seen(pilot, "git is comparing")
        await pilot.press("d")
        may_end.set()
        await until_seen(pilot, problem)

        page = view.pages["info"]
        await page.query_one(Paper).remove()  # as when a screen is left: what was read for it comes too late
        app.post_message(app.Read(Watch("info", page.read, page.seen), {}))  # type: ignore[attr-defined]
        await pilot.press("1")
        await until_seen(pilot, "PROMPT", task)
        assert len(app.screen_stack) == 1

    play(fleet, story)
