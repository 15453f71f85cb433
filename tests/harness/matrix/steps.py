"""The steps that scenarios are made of: commands as a person gives them, and what the agents' shell scripts do."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import apsw
from tests.harness.matrix import git_faults
from tests.harness.matrix.world import World

from holdfast.api.commands import Commands, NewTask
from holdfast.api.queries import Queries
from holdfast.base.errors import Unavailable
from holdfast.checker.witness import blob_id

RAN = (
    """printf '{"ran":"%s","task":"%s"}\\n' "$HOLDFAST_RUN_ID" "$HOLDFAST_TASK_ID" >> "$WITNESS"\n"""
    f""": > "$WORLD/{git_faults.RAN}"\n"""
)


def write(path: str, text: str) -> str:
    """Shell: write a file, then tell the witness."""
    blob = blob_id(text.encode())
    line = f'{{"wrote":"{path}","task":"%s","blob":"{blob}"}}\\n'
    told = line.replace('"', '\\"')
    return f"""printf '%s' '{text}' > '{path}' && printf "{told}" "$HOLDFAST_TASK_ID" >> "$WITNESS"\n"""


COMMIT = "git add -A && git -c user.name=A -c user.email=a@localhost commit -qm work\n"


def add(
    world: World,
    prompt: str,
    script: str,
    *,
    role: str = "add",
    settings: Mapping[str, str] | None = None,
    **options: object,
) -> None:
    """Queue a task in a process of its own. If that died before it could say so, it is asked again."""

    def work() -> None:
        os.environ.update(settings or {})
        task = Commands(str(world.home)).add(
            NewTask(prompt=prompt, directory=str(world.repo), command=("sh", "-c", RAN + script), **options)  # type: ignore[arg-type]  # options of NewTask
        )
        world.acknowledge(task.id)

    insist(world, role, work, lambda: state(world, prompt) != "missing")


def insist(world: World, role: str, work: Callable[[], object], is_done: Callable[[], object]) -> None:
    """As a person would: a command that died or failed is given once more, unless it has done its work all the same.
    One that was refused because something is still being removed gets a supervisor first, as its message says."""
    if world.client(role, work) or is_done():
        return
    if not world.client(f"{role}-again", work):
        world.up(f"{role}-up")
        world.client(f"{role}-at-last", work)


def up_to_the_end(world: World, role: str) -> None:
    """A supervisor until nothing is left to do; if it dies, the next one does the rest."""
    if world.up(role) != 0:
        world.up(f"{role}-again")


def retry(world: World, prompt: str) -> None:
    if state(world, prompt) == "failed":
        failed = task_id(world, prompt)
        again = lambda: commands_of(world).retry(failed, fresh=False)  # noqa: E731 - opened in the child, after the fork
        insist(world, "retry", again, lambda: state(world, prompt) != "failed")


def task(world: World, prompt: str) -> Mapping[str, object] | None:
    if not (world.home / "holdfast.db").exists():
        return None
    try:
        found = [row for row in Queries(str(world.home)).tasks(everything=True) if row["prompt"] == prompt]
    except Unavailable:
        return None  # its making was interrupted: the next command continues with it
    return found[-1] if found else None


def state(world: World, prompt: str) -> str:
    row = task(world, prompt)
    return str(row["state"]) if row else "missing"


def task_id(world: World, prompt: str) -> str:
    row = task(world, prompt)
    return str(row["id"]) if row else ""


def events_tell(world: World, kind: str) -> bool:
    return any(event["kind"] == kind for event in Queries(str(world.home)).events())


def commands_of(world: World) -> Commands:
    return Commands(str(world.home), create=False)


def litter(world: World, task_id: str) -> None:
    """Behind Holdfast's back: leftovers of every kind around a preserved workspace."""
    row = Queries(str(world.home)).task(task_id)["workspace"] if task_id else None
    if row is None or row["state"] != "preserved":
        return  # the fault came before there was anything to litter
    path = Path(str(row["path"]))
    (world.home / "workspaces" / ".trash" / "aaaaaaaaaa" / "deep").mkdir(parents=True)
    gone = path.with_name("bbbbbbbbbb")
    mark = {"workspace": "cccccccccc", "task": gone.name, "repo": path.parent.name, "path": str(gone)}
    gone.with_name(f"{gone.name}.owner.json").write_text(json.dumps(mark))
    half = world.repo / ".git" / "worktrees" / "half"
    half.mkdir(parents=True)
    (half / "locked").write_text(f"holdfast task={task_id}")
    path.with_name(f"{task_id}.owner.json").write_text("an agent wrote over it")
    base = Queries(str(world.home)).state(task_id)["base_commit"]
    (world.repo / ".git" / "refs" / "heads" / "holdfast" / f"{task_id}-r7").write_text(f"{base}\n")


def forget_row(world: World, task_id: str) -> None:
    """As a backup that is older than the workspace would: only its marker knows it."""
    if task_id and Queries(str(world.home)).task(task_id)["workspace"]["state"] == "preserved":
        connection = apsw.Connection(str(world.home / "holdfast.db"))
        connection.set_busy_timeout(10_000)
        connection.execute("UPDATE workspaces SET state = 'gone' WHERE task_id = ?", (task_id,))
        connection.close()
