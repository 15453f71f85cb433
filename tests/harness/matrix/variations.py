"""More lives of workspaces. The short run leaves most of them out: `make faults` plays them, and `--scenario`."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from tests.harness.matrix.steps import COMMIT, add, events_tell, insist, state, task_id, up_to_the_end, write
from tests.harness.matrix.world import World

from holdfast.api.commands import Commands, NewTask
from holdfast.api.queries import Queries
from holdfast.api.work import workspaces
from holdfast.base import clock
from holdfast.checker.evidence import Evidence
from holdfast.store.open import open_store
from holdfast.store.port.transaction import Transaction

_COMMIT = COMMIT.replace("\n", " || :\n")  # after a crash there may be nothing left to commit
# Whatever a tree can hold at once. Repeated after a crash, it comes to the same.
DIRTY = (
    write("committed.txt", "committed")
    + _COMMIT
    + "git checkout -q --detach\n"
    + write("detached.txt", "on no branch")
    + _COMMIT
    + write("staged.txt", "staged once")
    + "git add staged.txt\n"
    + write("staged.txt", "changed after it was staged")
    + write("new name.txt", "untracked")
    + "rm -f README.md; chmod +x src/app.py; ln -sfn /nowhere link\n"
)


def dirty(world: World) -> None:
    """It fails with commits on its branch and on none, staged, unstaged, untracked, deleted and changed files."""
    add(world, "leave a mess", DIRTY + "exit 1")
    world.up("up")


def dirty_success(world: World) -> None:
    """It says that all is well, on a HEAD that is on no branch: nothing of it can be committed for it."""
    add(world, "end in a mess", DIRTY)
    world.up("up")


def setup_fails(world: World) -> None:
    """Its workspace cannot be furnished: no agent runs, and nothing stays."""
    settings = {"HOLDFAST_WORKSPACE_SETUP": "'touch half-made && exit 7'"}
    add(world, "never start", write("never.txt", "never"), settings=settings)
    world.up("up")


def kept(world: World) -> None:
    """Completed, kept all the same, then dropped by an operator."""
    add(world, "stay", write("kept.txt", "kept") + _COMMIT, keep_workspace=True)
    up_to_the_end(world, "up")
    if state(world, "stay") == "completed":
        stayed = task_id(world, "stay")
        insist(world, "clean", lambda: workspaces.clean(str(world.home), [stayed]), lambda: False)
    up_to_the_end(world, "up2")


def copied(world: World) -> None:
    """In a copy of the checkout, with what the user has not committed."""
    (world.repo / "notes.txt").write_text("the user's own")
    script = "grep -q own notes.txt || exit 9\n" + write("plain.txt", "plain") + "rm -f README.md\n"
    add(world, "work in a copy", script, workspace="directory:copy")
    world.up("up")


def go_back(world: World) -> None:
    """Paused until somebody pays; meanwhile its tree changed and its branch moved on. It is resumed from a checkpoint;
    what came after that stays."""
    _add_billed(world, "go back")
    up_to_the_end(world, "up")
    if state(world, "go back") != "paused":
        return
    paused = Queries(str(world.home)).task(task_id(world, "go back"))
    env = {**os.environ, "WITNESS": str(world.witness), "HOLDFAST_TASK_ID": str(paused["id"])}
    later = write("later.txt", "later") + _COMMIT + write("before.txt", "changed later")
    subprocess.run(["sh", "-c", later], cwd=paused["workspace"]["path"], env=env, check=True)
    # Where the disk refused the one at its pause, which is told and costs nothing else, it continues from what is
    # there.
    _resume(world, "go back", checkpoint=1 if paused["checkpoints"] else None)
    up_to_the_end(world, "up2")


def tree_lost(world: World) -> None:
    """Paused; somebody deletes its directory; it continues from its last checkpoint."""
    _add_billed(world, "be lost")
    up_to_the_end(world, "up")
    if state(world, "be lost") != "paused":
        return
    paused = Queries(str(world.home)).task(task_id(world, "be lost"))
    subprocess.run(["rm", "-rf", str(paused["workspace"]["path"])], check=True)
    _resume(world, "be lost")
    up_to_the_end(world, "up2")


# Asks for a checkpoint, again after a while, until the store has one.
_CHECKPOINT = """import json, os, sqlite3, time
store = "file:" + os.environ["WORLD"] + "/home/holdfast.db?mode=ro"
asked = 0.0
while True:
    if time.monotonic() - asked > 2:
        asked = time.monotonic()
        with open(os.environ["HOLDFAST_CHANNEL"] + "/reports", "a") as file:
            file.write(json.dumps({"token": os.environ["HOLDFAST_RUN_TOKEN"], "report": "checkpoint"}) + chr(10))
    try:
        if sqlite3.connect(store, uri=True).execute("SELECT count(*) FROM checkpoints WHERE files > 0").fetchone()[0]:
            break
    except sqlite3.OperationalError:
        pass
    time.sleep(0.02)
"""


def vanished(world: World) -> None:
    """Its agent removes its own directory after a checkpoint, and exits with 0: that is not a success."""
    (world.root / "checkpoint.py").write_text(_CHECKPOINT)
    ask = f"{sys.executable} -I -S $WORLD/checkpoint.py\n"
    add(world, "vanish", write("saved.txt", "saved") + ask + "gone=$PWD; cd /; rm -rf $gone; exit 0")
    up_to_the_end(world, "up")


def vanished_told(world: World) -> list[str]:
    """Return what is missing: the event, the alert or the salvage of the last checkpoint."""
    found = task_id(world, "vanish")
    if not found or state(world, "vanish") != "failed":
        return []  # the checks of the matrix report it
    task = Queries(str(world.home)).task(found)
    alerts = [row for row in Evidence(str(world.home)).tables["alerts"] if row["key"].startswith("vanished:")]
    parts = {
        "reason": task["failure_reason"] == "workspace_gone",
        "event": events_tell(world, "workspace.vanished"),
        "alert": bool(alerts),
        "salvage": bool(task["salvages"]),
    }
    return [f"silent: its workspace vanished: no {name}" for name, is_there in parts.items() if not is_there]


def _add_billed(world: World, prompt: str) -> None:
    steps: list[dict[str, Any]] = [
        {"do": "write", "with": {"path": "before.txt", "text": "before"}, "run": 1},
        {"do": "limit", "with": {"kind": "billing"}, "run": 1},
        {"do": "write", "with": {"path": "after.txt", "text": "after"}, "run": None},
    ]

    def work() -> None:
        added = Commands(str(world.home)).add(NewTask(prompt=prompt, directory=str(world.repo), scenario=steps))
        world.acknowledge(added.id)

    insist(world, "add", work, lambda: state(world, prompt) != "missing")


def _resume(world: World, prompt: str, checkpoint: int | None = None) -> None:
    resumed = task_id(world, prompt)

    def work() -> None:
        def both(tx: Transaction) -> None:
            if checkpoint is not None:
                tx.checkpoints.choose(resumed, checkpoint, "the matrix", clock.now())
            tx.tasks.resume(resumed, "the matrix", clock.now())

        open_store(str(world.home), create=False).write(both)

    insist(world, "resume", work, lambda: state(world, prompt) != "paused")


def directory(world: World) -> None:
    add(world, "work in a directory", write("plain.txt", "plain"), workspace="directory")
    world.up("up")


def clone(world: World) -> None:
    """A commit, and a leftover: both are brought into the user's repository before the clone goes."""
    script = write("done.txt", "done") + COMMIT + write("left.txt", "left")
    add(world, "work in a clone", script, workspace="clone")
    world.up("up")


def held(world: World) -> None:
    """The machine has no room at first: the task waits, and runs when there is."""
    add(world, "wait for room", write("done.txt", "done"))
    if world.up_held("up") != 0:
        world.up("up-again")


def expiry(world: World) -> None:
    """Kept by an operator while it waits, for no time at all: preserved at its end, salvaged, removed."""
    add(world, "expire", write("kept.txt", "kept") + "exit 1")
    pin = lambda: workspaces.keep(str(world.home), task_id(world, "expire"), 0.0)  # noqa: E731 - in the child
    insist(world, "keep", pin, lambda: events_tell(world, "workspace.pinned"))
    up_to_the_end(world, "up")
    world.up("up-to-expire")  # the first one may have gone when it had nothing left to do
