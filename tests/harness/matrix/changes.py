"""People who change tasks: another priority, a retry with another prompt, and a cancel of several in batches."""

from __future__ import annotations

from tests.harness.matrix.steps import (
    add,
    commands_of,
    events_tell,
    insist,
    state,
    task,
    task_id,
    up_to_the_end,
    write,
)
from tests.harness.matrix.world import World

from holdfast.api.commands import cancel_in, pause
from holdfast.api.queries import Queries
from holdfast.api.tasks import batches
from holdfast.api.tasks.changes import Given, parse_changes, set_task
from holdfast.core.tasks.changes import TaskChange

WRONG, RIGHT = "do it wrong", "do it right"
EXPECTED = {RIGHT: ("completed",)}
# Each run keeps what its agent really received, and fails unless that is the right prompt.
_SCRIPT = (
    'cat > "$WORLD/told-$HOLDFAST_RUN_ID"\n'
    f'case "$(cat "$WORLD/told-$HOLDFAST_RUN_ID")" in *"{RIGHT}"*) ;; *) exit 3;; esac\n'
)


def retold(world: World) -> None:
    add(world, WRONG, write("early.txt", "early") + _SCRIPT + write("right.txt", "right"))
    up_to_the_end(world, "up")
    if state(world, WRONG) == "failed":
        failed = task_id(world, WRONG)
        wanted = parse_changes(["priority=3", "label.tried=yes"])
        change = lambda: set_task(Queries(str(world.home)), failed, wanted)  # noqa: E731 - opened in the child
        insist(world, "set", change, lambda: (task(world, WRONG) or {}).get("priority") == 3)
        given = Given(change=TaskChange(prompt=RIGHT))
        again = lambda: commands_of(world).retry(failed, fresh=False, given=given)  # noqa: E731 - likewise
        insist(world, "retry", again, lambda: state(world, WRONG) == "missing")
    up_to_the_end(world, "up2")


def problems(world: World) -> list[str]:
    """The task was changed as a whole, and one completed run was given the new prompt once."""
    found = task(world, RIGHT)
    if found is None:
        return []
    row = Queries(str(world.home)).task(task_id(world, RIGHT))
    lost = [] if (row["priority"], row["labels"]) == (3, {"tried": "yes"}) else [f"lost: a change of {row['id']}"]
    done = [run for run in row["runs"] if run["outcome"] == "completed"]
    told = [(world.root / f"told-{run['id']}").read_text() for run in done]
    count = sum(words.count(RIGHT) for words in told)
    if count != 1 or [one["run"] for one in row["messages"]] == [None]:
        lost.append(f"{'twice' if count > 1 else 'lost'}: {len(done)} completed runs got the new prompt {count} times")
    return lost


# -- several at once ---------------------------------------------------------------------------------------------------

WORKS, WAITS, PAUSES, LATER, OVER = "work in bulk", "wait in bulk", "pause in bulk", "come later", "be over in bulk"
BULK = (WORKS, WAITS, OVER, PAUSES, LATER)  # in batches of two; the task that is over refuses
EXPECTED_OF_BULK = dict.fromkeys(BULK, ("cancelled",))
_HALF = "half-a-batch"


def cancelled_in_bulk(world: World) -> None:
    add(world, WORKS, write("works.txt", "works") + "(setsid sleep 1000 &) \n touch $WORLD/working; exec sleep 1000")
    for number, prompt in enumerate((WAITS, OVER, PAUSES, LATER)):
        add(world, prompt, "exit 9", role=f"add{number}", delay=86400.0)
    over, pauses = task_id(world, OVER), task_id(world, PAUSES)
    cancel = lambda: commands_of(world).cancel(over, "")  # noqa: E731 - opened in the child
    insist(world, "over", cancel, lambda: state(world, OVER) == "cancelled")
    insist(world, "pause", lambda: pause(str(world.home), pauses), lambda: state(world, PAUSES) == "paused")
    world.start("up")
    world.wait_until((world.root / "working").exists, "the agent works", while_running="up")
    insist(world, "cancel", lambda: _cancel(world), lambda: _is_cancelled(world))
    world.wait("up")


def _cancel(world: World) -> None:
    batches.MOST = 2
    ids = [task_id(world, prompt) for prompt in BULK]
    changed = _changed(world)
    if (ids[0] in changed) != (ids[1] in changed):  # what a process that was killed has left of the first batch
        (world.root / _HALF).touch()
    for _batch in batches.change_batches(str(world.home), ids, lambda tx, one: cancel_in(tx, one, "matrix", "in bulk")):
        pass


def _changed(world: World) -> set[str]:
    queries = Queries(str(world.home))
    cancelled = {row["id"] for row in queries.tasks(everything=True) if row["state"] == "cancelled"}
    asked = {str(event["task"]) for event in queries.events() if event["kind"] == "run.stopping"}
    return cancelled | asked | {str(row["task"]) for row in queries.pending_requests()}


def _is_cancelled(world: World) -> bool:
    return all(state(world, prompt) == "cancelled" for prompt in BULK[1:]) and (
        state(world, WORKS) == "cancelled" or events_tell(world, "run.stopping")
    )


def problems_of_bulk(world: World) -> list[str]:
    return ["lost: half of a batch was changed"] if (world.root / _HALF).exists() else []
