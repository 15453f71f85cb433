"""R-CRASH-10: the line of keys has only actions that work for the row with the cursor, state by state."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.fleet import Fleet, wait_until

from holdfast.api.commands import Commands, NewTask
from holdfast.api.fleet.rows import rows_of
from holdfast.api.queries import Queries
from holdfast.base.errors import Conflict
from holdfast.core.workflows.draft import AgentChoice, StageDraft, WorkflowDraft
from holdfast.tui.actions.table import about

# action → the command of the same effect. Only those that the state of a task decides.
COMMANDS = {
    "approve": ("approve", "ID"),
    "pause": ("pause", "ID"),
    "resume": ("resume", "ID"),
    "cancel": ("cancel", "ID"),
    "retry": ("retry", "ID"),
    "retry_fresh": ("retry", "ID", "--fresh"),
    "send": ("send", "ID", "more"),
}
WORK = "echo x >> door; git add door; git commit -qm door"


def paused(fleet: Fleet) -> str:
    task = fleet.queue("true")
    fleet.cli("pause", task)
    return task


def ended(fleet: Fleet, script: str, state: str) -> str:
    task = fleet.queue(script)
    fleet.up("--idle-exit", "0s")
    fleet.wait_state(task, state)
    fleet.wait_clean()
    return task


def awaiting(fleet: Fleet) -> str:
    stage = StageDraft(name="build", chosen=AgentChoice(command=("sh", "-c", WORK)), approval=True)
    with fleet.as_its_user():
        draft = WorkflowDraft(name="shop", stages=(stage,))
        task = Commands(str(fleet.home)).add(NewTask(prompt="x", directory=str(fleet.repo), workflow=draft)).id
    fleet.up("--idle-exit", "0s")
    fleet.wait_state(task, "paused")
    return task


def cancelled(fleet: Fleet) -> str:
    task = fleet.queue("true")
    fleet.cli("cancel", task)
    return task


def merged(fleet: Fleet) -> str:
    task = ended(fleet, WORK, "completed")
    fleet.cli("merge", task)
    return task


def running(fleet: Fleet) -> str:
    task = fleet.queue("sleep 600")
    fleet.up()
    fleet.wait_state(task, "running")
    wait_until(lambda: fleet.show(task)["runs"], "its agent works")
    return task


# state → how a task gets there, and the keys that are offered then
STATES: dict[str, tuple[Callable[[Fleet], str], str]] = {
    "queued": (lambda fleet: fleet.queue("true"), "pcT"),
    "running": (running, "pcTwK"),
    "paused": (paused, "ucT"),
    "awaits approval": (awaiting, "aAucwK"),
    "failed": (lambda fleet: ended(fleet, f"{WORK}; exit 3", "failed"), "rTRmP"),
    "completed": (lambda fleet: ended(fleet, WORK, "completed"), "TmP"),
    "merged": (merged, "T"),
    "cancelled": (cancelled, "rTR"),
}


@pytest.mark.parametrize("state", STATES)
def test_only_keys_that_work_are_offered(fleet: Fleet, state: str) -> None:
    """The keys of each state, from a real row. The store refuses each of the commands that is not offered."""
    reach, expected = STATES[state]
    task = reach(fleet)
    [row] = rows_of(Queries(str(fleet.home)), [task])
    offered = [action for action in about("task") if "task" in action.about and action.when(dict(row))]
    assert "".join(action.key for action in offered) == expected
    names = {action.name for action in offered}
    for name, words in COMMANDS.items():
        if name not in names:
            done = fleet.cli(*(task if word == "ID" else word for word in words), code=None)
            assert done.returncode == Conflict.exit_code, (name, done.stdout, done.stderr)
