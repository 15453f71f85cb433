"""A schedule of every second in the matrix, on the real clock: whoever is killed at whatever step, no second of it gets
two tasks, and it continues."""

from __future__ import annotations

import json
from collections import Counter

from tests.harness.matrix.steps import RAN, add, up_to_the_end, write
from tests.harness.matrix.world import World

from holdfast.api.queries import Queries

TICK, WAIT = "tick", "wait for two ticks"
_ENOUGH = 2
_SCRIPT = RAN + write("tick.txt", "tick") + 'echo "$HOLDFAST_TASK_ID" >> $WORLD/ticked\n'
_COUNT = f'[ "$(sort -u $WORLD/ticked 2>/dev/null | wc -l)" -ge {_ENOUGH} ]'


def every_second(world: World) -> None:
    """A supervisor does not stay for a schedule: a task that waits for its tasks keeps it."""
    world.configure(
        f'agent = "command"\n[command]\nargv = {json.dumps(["sh", "-c", _SCRIPT])}\n'
        f'[[schedule]]\nname = "{TICK}"\nprompt = "{TICK}"\n'
        f'repo = {json.dumps(str(world.repo))}\ncron = "* * * * * *"\n'
    )
    add(world, WAIT, f"until {_COUNT}; do sleep 0.02; done\n" + write("waited.txt", "waited"))
    up_to_the_end(world, "up")


def problems(world: World) -> list[str]:
    """R-CRON-02: every fire is another second, with one task of its own."""
    queries = Queries(str(world.home))
    fired = [event for event in queries.events() if event["kind"] == "schedule.fired"]
    ticks = [row["id"] for row in queries.tasks(everything=True) if row["prompt"] == TICK]
    seconds = Counter(event["data"]["fire_time"] for event in fired)
    wrong = [
        f"twice: the second {moment:.0f} was fired {count} times" for moment, count in seconds.items() if count > 1
    ]
    if sorted(ticks) != sorted(str(event["task"]) for event in fired):
        wrong.append(f"leaked: {len(ticks)} tasks of {len(fired)} fires")
    if len(fired) < _ENOUGH:
        wrong.append(f"lost: {len(fired)} fires, and somebody waited for {_ENOUGH}")
    return wrong
