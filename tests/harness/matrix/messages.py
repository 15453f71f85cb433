"""People who send messages: to tasks that have completed and failed, and to one at work. Their words arrive once."""

from __future__ import annotations

from tests.harness.matrix.branches import git_output
from tests.harness.matrix.steps import COMMIT, add, insist, state, task, task_id, up_to_the_end, write
from tests.harness.matrix.world import World

from holdfast.api.queries import Queries
from holdfast.api.tasks.messages import send_message

ENDED, FAILED, WORKING = "be told after the end", "be told after a failure", "be told at work"
EXPECTED = {ENDED: ("completed",), FAILED: ("completed",), WORKING: ("completed",)}
WORDS = "and a second file"
_COMMIT = COMMIT.replace("\n", " || :\n")  # after a crash there may be nothing left to commit
# Each run keeps what its agent really received, and does what it says.
_TOLD = 'cat > "$WORLD/told-$HOLDFAST_RUN_ID"; told=$(cat "$WORLD/told-$HOLDFAST_RUN_ID")\n'
_HOLD = "touch $WORLD/working; until [ -e $WORLD/go-on ]; do sleep 0.01; done\n"


def sent(world: World) -> None:
    add(world, WORKING, _script("working", hold=_HOLD), role="add1")
    world.start("up")
    world.wait_until((world.root / "working").exists, "the agent works", while_running="up")
    _send(world, "send1", WORKING)
    (world.root / "go-on").touch()
    world.wait("up")
    add(world, ENDED, _script("ended"), role="add2")
    add(world, FAILED, _script("failed", hold=write("failed-0", "saved") + "exit 3\n"), role="add3")
    up_to_the_end(world, "up2")
    _send(world, "send2", ENDED)
    _send(world, "send3", FAILED)
    up_to_the_end(world, "up3")


def _script(name: str, hold: str = "") -> str:
    first, second = write(f"{name}-1", "first"), write(f"{name}-2", "second")
    return f'{_TOLD}case "$told" in *"{WORDS}"*) {first}{second};; *) {hold}{first};; esac\n{_COMMIT}'


def _send(world: World, role: str, prompt: str) -> None:
    if state(world, prompt) == "missing":
        return
    to = task_id(world, prompt)
    is_sent = lambda: Queries(str(world.home)).task(to)["messages"]  # noqa: E731 - one fact
    insist(world, role, lambda: send_message(str(world.home), to, WORDS), is_sent)


def problems(world: World) -> list[str]:
    """One completed run was given the words, and the work of both rounds is on the branch."""
    found = []
    for prompt, name in ((WORKING, "working"), (ENDED, "ended"), (FAILED, "failed")):
        if task(world, prompt) is None:
            continue
        row = Queries(str(world.home)).task(task_id(world, prompt))
        given = [one["run"] for one in row["messages"]]
        if len(given) != 1 or given[0] is None:
            found.append(f"{'twice' if len(given) > 1 else 'lost'}: the messages to '{prompt}' went to runs {given}")
        done = [run for run in row["runs"] if run["outcome"] == "completed"]
        told = [(world.root / f"told-{run['id']}").read_text() for run in done]
        if (count := sum(WORDS in words for words in told)) != 1:
            found.append(f"{'twice' if count else 'lost'}: {count} completed runs of '{prompt}' got the words")
        names = git_output(world, "ls-tree", "--name-only", row["branch"] or "HEAD").split()
        wanted = [f"{name}-1", f"{name}-2"]
        if any(run["outcome"] == "failed" for run in row["runs"]):
            wanted.append(f"{name}-0")  # salvaged, and taken up by the next round
        found += [f"lost: {file} is not on the branch" for file in wanted if file not in names]
    return found
