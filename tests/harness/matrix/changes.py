"""People who change tasks: another priority, and a retry with another prompt. The words arrive once."""

from __future__ import annotations

from tests.harness.matrix.steps import add, commands_of, insist, state, task, task_id, up_to_the_end, write
from tests.harness.matrix.world import World

from holdfast.api.queries import Queries
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
