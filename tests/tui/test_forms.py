"""F13, issue 20: a new task, messages, pull requests, and actions on marked rows, by keys alone."""

from __future__ import annotations

import contextlib
import sqlite3

from tests.clis import install
from tests.fleet import Fleet, wait_until
from tests.tui.hands import Hands
from tests.tui.screen import play, text_of, until, until_seen
from tests.tui.terminal import needs_tmux, terminal
from textual import events
from textual.pilot import Pilot

from holdfast.api.commands import Commands
from holdfast.tui.app import Top
from holdfast.tui.widgets.dialogs import Question
from holdfast.tui.widgets.form import Form


def test_a_task_is_added_from_an_empty_list(fleet: Fleet) -> None:
    """The checks of `add` are shown in the form, which keeps what was typed; a prompt has lines and is not markup."""
    Commands(str(fleet.home))  # makes the home
    fleet.env["PATH"] = install(fleet.root / "bin", "claude")

    async def story(pilot: Pilot[None], app: Top) -> None:
        hands = Hands(pilot, app)
        await until_seen(pilot, "No tasks are unfinished", "+ New task")
        await hands.writes("+", "", "", "", "root")
        await until_seen(pilot, "A new task", "Repository", str(fleet.repo)[:40], "root", "Ctrl+D: add")
        await pilot.press("ctrl+d")
        await hands.form_says("The permission must be read, edit or full, not 'root'. Nothing was queued.")
        await pilot.press(*["backspace"] * 4, *"edit", "ctrl+d")
        await hands.form_says("The prompt is empty: say what the agent should do.")
        await pilot.press("shift+tab", "shift+tab", *"cluade", "shift+tab")
        await pilot.press(*"fix", "space", "left_square_bracket", *"red]", "enter", *"then", "space", *"test", "ctrl+d")
        await hands.form_says("Did you mean 'claude'?", "fix [red]", "then test")
        await pilot.press("tab", *["backspace"] * 6, *"claude", "tab", *"make", "space", *"test", "enter")
        await hands.told("Queued ")
        await until_seen(pilot, "1 task, unfinished or ended lately", "fix [red] then test", "claude")

    play(fleet, story, size=(80, 24))
    [row] = fleet.json("ps")
    shown = fleet.show(row["id"])
    assert (shown["prompt"], shown["agent"]) == ("fix [red]\nthen test", "claude")
    with contextlib.closing(sqlite3.connect(fleet.home / "holdfast.db")) as store:
        [stored] = map(str, store.execute("SELECT * FROM tasks"))
    assert "make test" in stored
    assert '"permission":"edit"' in stored.replace(" ", "")


def test_keys_typed_before_a_form_is_drawn_are_neither_lost_nor_commands(fleet: Fleet) -> None:
    """Over a slow line letters come at once; on the list they would pause and cancel the task. A draft is kept."""
    task = fleet.queue("true")

    async def story(pilot: Pilot[None], app: Top) -> None:
        hands = Hands(pilot, app)
        await hands.point(task)
        for opened in ("+", "T"):
            await hands.writes(opened, "pause c y q\nx")
            app.post_message(events.Paste("pasted\nlines"))
            await until_seen(pilot, "pause c y q", "xpasted", "lines", "Esc: leave")
            await hands.back()
            await pilot.press("plus" if opened == "+" else opened)
            await until_seen(pilot, "pause c y q", "xpasted")
            await hands.back()
        await pilot.press("slash", *"a+T")
        await until_seen(pilot, "have 'a+T'")
        await pilot.resize_terminal(42, 20)
        await pilot.press("escape", "plus")
        screen = await until_seen(pilot, "A new task", "pause c y q", "Ctrl+D: add")
        assert all(len(line) <= 42 for line in screen.splitlines())

    play(fleet, story)
    assert fleet.kinds(task) == ["task.queued"]


def test_a_finished_task_goes_on_with_a_message(fleet: Fleet) -> None:
    """From its own screen; without words nothing is sent."""
    task = fleet.queue("cat >> told; git add told; git commit -qm told", prompt="first")
    fleet.up("--agents", 1)
    fleet.wait_state(task, "completed")

    async def story(pilot: Pilot[None], app: Top) -> None:
        hands = Hands(pilot, app)
        await hands.open(task)
        await pilot.press("T", "ctrl+d")
        await hands.form_says(f"{task}  completed  first", "The prompt is empty")
        await pilot.press(*"tests", "space", *"too", "ctrl+d")
        await hands.told(f"Sent to {task}", "It was completed and is queued again.")
        await until(pilot, lambda: len(fleet.show(task)["runs"]) == 2, "it has a second run")

    play(fleet, story)
    fleet.wait_state(task, "completed")
    assert "tests too" in fleet.file_on_branch(f"holdfast/{task}", "told")


def test_marked_tasks_are_acted_on_together(fleet: Fleet) -> None:
    """One question with the count; a refusal of one does not stop the others, and is told; hidden rows are left out."""
    tasks = [fleet.queue("true", prompt=f"job-{letter} [b]") for letter in "abcde"]

    async def story(pilot: Pilot[None], app: Top) -> None:
        hands = Hands(pilot, app)

        def states() -> list[str]:
            return [fleet.show(task)["state"] for task in tasks]

        await hands.point(tasks[0])
        await pilot.press("space", "space", "space")
        await until_seen(pilot, "3 marked; 5 tasks", "* ")
        await hands.asked("p", "Pause: 3 marked tasks?", f"{tasks[0]}  queued  job-a [b]", answer="n")
        assert states() == ["queued"] * 5
        await hands.asked("p", "Pause: 3 marked tasks?", tasks[2])
        await hands.told("Pause: 3 tasks.")
        assert states() == ["paused"] * 3 + ["queued"] * 2
        await until_seen(pilot, "\n5 tasks, unfinished")
        await pilot.press("asterisk")
        await until_seen(pilot, "5 marked")
        await pilot.press("u")
        await hands.asked("", "Resume: 5 marked tasks?")
        await hands.refused("", "2 of 5 were refused.", f"{tasks[3]}: Task {tasks[3]} is queued, not paused")
        assert states() == ["queued"] * 5
        await pilot.press("space", "slash", *"job", "enter", "asterisk", "slash", *"-e", "enter")
        await until_seen(pilot, "5 marked (4 of them not listed, so actions leave them out)", "1 of 5 tasks")
        await hands.asked("c", f"Cancel task {tasks[4]}?", "[b]")
        await hands.told(f"Cancelled {tasks[4]}.")
        assert states() == ["queued"] * 4 + ["cancelled"]
        await pilot.press("escape")
        await until_seen(pilot, "unfinished or ended lately")
        for each in tasks[:2]:
            await hands.point(each)
            await pilot.press("space")
        await until_seen(pilot, "2 marked; ")
        await hands.says("T", "more", "A message to 2 marked tasks", "What should the agent do now?")
        await hands.told("Send: 2 tasks.")
        await pilot.press("space", "escape")
        await until(pilot, lambda: " marked; " not in text_of(app), "Escape drops the marks")
        assert not isinstance(app.screen, Question | Form)

    play(fleet, story)
    assert [len(fleet.show(task)["messages"]) for task in tasks] == [1, 1, 0, 0, 0]


@needs_tmux
def test_a_pull_request_is_opened_in_the_terminal(fleet: Fleet) -> None:
    """What `gh` prints stays until Enter, because the screen comes back over it; without `gh` it is only pushed."""
    task = fleet.queue("echo x > door; git add door; git commit -qm door", prompt="the door")
    fleet.up("--agents", 1)
    fleet.wait_state(task, "completed")
    fleet.git("init", "--quiet", "--bare", str(fleet.root / "remote.git"))
    fleet.git("remote", "add", "origin", str(fleet.root / "remote.git"))
    tools = fleet.root / "tools"
    tools.mkdir()
    (tools / "gh").write_text("#!/bin/sh\necho see https://x.example/pull/7\n")
    (tools / "gh").chmod(0o755)
    path = f"{tools}:/usr/bin:/bin"
    with terminal(fleet, env={"PATH": path}) as seen:
        seen.top()
        seen.until_seen("the door", "P Pull request")
        seen.press("P")
        seen.until_seen(f"Push holdfast/{task} to", "into main?")
        seen.press("y")
        seen.until_seen("see https://x.example/pull/7", "Enter goes back")
        seen.press("Enter")
        seen.until_seen("its pull request is open", "the door")
        (tools / "gh").unlink()
        seen.press("P")
        seen.until_seen("show where to open a pull request into main?")
        seen.press("y")
        seen.until_seen("Enter goes back")
        seen.press("Enter")
        seen.until_seen("is pushed. It is on the remote.")
        seen.press("q")
        seen.until_seen("ended: 0")
    tip = fleet.git("rev-parse", f"holdfast/{task}")
    wait_until(lambda: fleet.git("rev-parse", f"holdfast/{task}", cwd=fleet.root / "remote.git") == tip, "it is pushed")


def test_no_pull_request_while_an_alert_about_changed_commands_is_open(fleet: Fleet) -> None:
    """F4: refused before the question; after `alerts ack` the question is asked."""
    hook = fleet.repo / ".git" / "hooks" / "pre-push"
    task = fleet.queue(f"echo evil > {hook}; echo x > door; git add door; git commit -qm door", prompt="the door")
    fleet.git("init", "--quiet", "--bare", str(fleet.root / "remote.git"))
    fleet.git("remote", "add", "origin", str(fleet.root / "remote.git"))
    fleet.up("--agents", 1)
    fleet.wait_state(task, "completed")

    async def story(pilot: Pilot[None], app: Top) -> None:
        hands = Hands(pilot, app)
        await hands.point(task)
        await hands.refused("P", "Nothing was pushed: an alert about", "hooks/pre-push", "holdfast alerts ack")
        fleet.cli("alerts", "ack", "--all")
        await hands.asked("P", f"Push holdfast/{task} to", answer="n")

    play(fleet, story)
    assert fleet.git("for-each-ref", cwd=fleet.root / "remote.git") == ""
