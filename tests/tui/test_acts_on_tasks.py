"""R-CRASH-10: everything that can be done to a task by a key, against a real supervisor and real agents."""

from __future__ import annotations

from pathlib import Path

from tests.fleet import Fleet, wait_until
from tests.tui.hands import Hands
from tests.tui.screen import play, until, until_seen
from textual.pilot import Pilot

from holdfast.api.commands import Commands, NewTask
from holdfast.core.workflows.draft import AgentChoice, StageDraft, WorkflowDraft
from holdfast.tui.app import Top


def test_a_running_task_is_held_let_go_and_ended(fleet: Fleet) -> None:
    """R-CRASH-10: pause, resume and cancel of a task whose agent works; what the supervisor did is told when it did it;
    what a state does not allow is refused, with the reason and the next command."""
    task = fleet.add_scenario({"print": "working"}, {"sleep": "600s"})
    fleet.up("--agents", 1)
    fleet.wait_started(task)

    async def story(pilot: Pilot[None], app: Top) -> None:
        hands = Hands(pilot, app)
        await hands.point(task)
        await hands.row_is(state="running")
        await hands.refused("u", f"Resume: Task {task} is running, not paused")
        await hands.refused("r", "only a failed or cancelled task can be retried")
        await hands.refused("R", "only a failed or cancelled task can be retried")
        await hands.refused("m", f"Merge: Task {task} is running: its branch may still change", "holdfast why")
        await hands.refused("x", "needs its workspace")
        await hands.refused("a", "waits for nobody's approval", f"holdfast why {task}")
        await hands.writes("A", "more tests")
        await pilot.press("ctrl+d")
        await hands.form_says("What should be changed?", "waits for nobody's approval")
        await hands.back()
        await pilot.press("p")
        await hands.told(f"Asked the supervisor to pause {task}.")
        await hands.told(f"Paused {task}.")
        await hands.row_is(state="paused")
        await hands.refused("p", f"Task {task} is paused already", f"holdfast why {task}")
        await pilot.press("u")
        await hands.told("that spends no resume")
        await until(pilot, lambda: len(fleet.show(task)["runs"]) == 2, "it has a second run")
        await hands.row_is(state="running")
        await hands.asked("c", f"Cancel task {task}?", "Its agent is ended; its work is saved.", answer="n")
        await hands.asked("c", f"Cancel task {task}?")
        await hands.told(f"Cancelled {task}.")

    play(fleet, story)
    shown = fleet.show(task)
    assert (shown["state"], len(shown["runs"])) == ("cancelled", 2)
    assert "from holdfast top" in shown["reason"]


def test_a_failed_task_goes_again_and_its_workspace_goes(fleet: Fleet) -> None:
    """R-CRASH-10, R-CLEAN-08: retry, retry from the base, keep and clean, from the task's own screen and from that of
    the workspaces; nothing is removed before somebody said yes."""
    found = fleet.root / "found"
    task = fleet.queue(
        f'[ -e new ] && echo used >> "{found}" || echo fresh >> "{found}"; echo work > new; exit 1',
        preserve_on_failure=True,
    )
    waiting = fleet.queue("true", delay=3600.0)
    fleet.up("--agents", 1)
    path = Path(fleet.wait_state(task, "failed")["workspace"]["path"])

    def is_put_away(number: int) -> bool:
        shown = fleet.show(task)
        return (shown["state"], shown["workspace"]["state"], len(shown["runs"])) == ("failed", "preserved", number)

    wait_until(lambda: is_put_away(1), "its workspace is preserved")

    async def story(pilot: Pilot[None], app: Top) -> None:
        hands = Hands(pilot, app)
        await hands.point(waiting)
        await hands.refused("w", f"Task {waiting} has no workspace now.", f"holdfast diff {waiting}")
        await hands.refused("m", "is queued: its branch may still change")
        await hands.open(task)
        await hands.refused("p", f"Task {task} is failed already")
        await hands.refused("c", f"Task {task} is failed already; there is nothing to cancel.")
        await hands.refused("w", "This terminal cannot be handed over", f"`holdfast shell {task}`")
        await pilot.press("r")
        await hands.told(f"Queued {task} again, from where it stopped.")
        await until(pilot, lambda: is_put_away(2), "it failed a second time, in the same tree")
        await hands.row_is(state="failed")
        await hands.asked("R", "from its base?", "Its work so far is saved", answer="n")
        await hands.asked("R", "from its base?")
        await hands.told(f"Queued {task} again, from its base.")
        await until(pilot, lambda: is_put_away(3), "it failed a third time, in a new tree")
        await hands.back()
        await hands.go("5", "workspaces")
        await hands.point(fleet.show(task)["workspace"]["id"])
        await hands.row_is(state="preserved")
        await pilot.press("K")
        await hands.told(f"The workspace of {task} is kept until you drop it.")
        await hands.asked("x", f"Drop the preserved workspace of task {task}?", str(path), answer="n")
        assert fleet.show(task)["workspace"]["state"] == "preserved"
        await hands.asked("x", "It is salvaged first")
        await hands.told(f"The workspace of {task} will be salvaged and removed.")
        await until(pilot, lambda: fleet.show(task)["workspace"]["state"] == "gone", "it is gone")
        await hands.open(task)
        await hands.refused("x", "has no preserved workspace", "holdfast workspaces")

    play(fleet, story)
    assert found.read_text().split() == ["fresh", "used", "fresh"]
    assert not path.exists()
    assert fleet.show(task)["salvages"], "its work was saved"


def test_what_a_person_decides(fleet: Fleet) -> None:
    """R-CRASH-10, R-RES-11: approve, ask for changes and merge; a merge is asked first, and says what it moves."""
    told = fleet.root / "told"
    build = f'cat >> "{told}"; echo x >> door; git add door; git commit -qm door'
    stage = StageDraft(name="build", chosen=AgentChoice(command=("sh", "-c", build)), approval=True)
    with fleet.as_its_user():
        new = NewTask(
            prompt="mend the door", directory=str(fleet.repo), workflow=WorkflowDraft(name="shop", stages=(stage,))
        )
        task = Commands(str(fleet.home)).add(new).id
    fleet.up("--agents", 1)
    fleet.wait_state(task, "paused")

    async def story(pilot: Pilot[None], app: Top) -> None:
        hands = Hands(pilot, app)
        await hands.point(task)
        await hands.row_is(state="paused")
        await pilot.press("d")
        await until_seen(pilot, "door", "+x")
        await hands.back()
        await pilot.press("A", "ctrl+d")
        await hands.form_says(
            "What should be changed?", "You entered no text.", f"{task} still waits for your approval"
        )
        await hands.back()
        await hands.says("A", "paint it red", "What should be changed?")
        await hands.told("asks for changes; it goes again")
        await until(pilot, lambda: len(fleet.show(task)["runs"]) == 2, "it went again")
        await until(pilot, lambda: fleet.show(task)["state"] == "paused", "it waits again")
        await hands.row_is(state="paused")
        await pilot.press("a")
        await hands.told("approved by", "nothing is left to do")
        await until(pilot, lambda: fleet.show(task)["state"] == "completed", "it is done")
        await hands.open(task)
        (fleet.repo / ".git" / "MERGE_HEAD").write_text(fleet.git("rev-parse", "HEAD") + "\n")
        await hands.refused("m", f"{fleet.repo} has an unfinished merge.", "merge --abort")
        (fleet.repo / ".git" / "MERGE_HEAD").unlink()
        await hands.asked("m", "(2 commits) into main?", f"Your checkout {fleet.repo} is updated too.", answer="n")
        assert not (fleet.repo / "door").exists()
        await hands.asked("m", "into main?")
        await hands.told("is merged into main (fast-forward")
        await pilot.press("m")
        await hands.told("main has all of", "already")

    play(fleet, story)
    assert "paint it red" in told.read_text()
    assert (fleet.repo / "door").read_text() == "x\nx\n"
