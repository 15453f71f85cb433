"""A shell in a task's workspace. While it is open, the workspace is not removed."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from holdfast.api.queries import Queries
from holdfast.base import faults
from holdfast.base.errors import Conflict, Refused
from holdfast.workspaces.removal import in_use

if TYPE_CHECKING:
    from holdfast.api.tasks.models import TaskDetails
    from holdfast.api.work.models import TaskWorkspace


# How to enter a workspace whose strategy needs more than a plain shell in its directory: (home, task, command) → argv.
# `task` is the row of `Queries.task`. `command` is a line for the shell, or None.
Entry = Callable[[str, "TaskDetails", str | None], Sequence[str]]


def _in_container(home: str, task: TaskDetails, command: str | None) -> Sequence[str]:
    from holdfast.containers.shell import shell_argv  # imported here: only users of containers pay for it

    return shell_argv(home, dict(task), command)


ENTRIES: dict[str, Entry] = {"container": _in_container}


def open_shell(queries: Queries, task: TaskDetails, command: str | None) -> int:
    """Run a shell until it ends and return its exit code. Processes that the shell started hold the workspace too, even
    if we are killed."""
    home, workspace = queries.home, task["workspace"]
    refuse_missing(task, workspace)
    held = in_use.lock_shared(home, workspace["id"])
    if held is None:
        raise Conflict(f"The workspace of task {task['id']} is being removed right now; its work is saved.")
    try:
        # again: the workspace may have been removed before we had the lock
        refuse_missing(task, queries.task(task["id"])["workspace"])
        entry = ENTRIES.get(workspace["strategy"])
        argv = entry(home, task, command) if entry is not None else _plain(command)
        code = _run(argv, str(workspace["path"]), held)
    finally:
        os.close(held)
        _record_left(home, task["id"])
    return code


def refuse_missing(task: TaskDetails, workspace: TaskWorkspace) -> None:
    if workspace["state"] not in ("ready", "preserved"):
        raise Conflict(
            f"Task {task['id']} has no workspace now. `holdfast diff {task['id']}` shows its work; `holdfast why "
            f"{task['id']}` shows where the work is."
        )
    if workspace["path"] is None or not os.path.isdir(workspace["path"]):
        raise Refused(f"The workspace {workspace['path']} is not on disk. `holdfast doctor` says more.")


def _plain(command: str | None) -> list[str]:
    shell = os.environ.get("SHELL") or "/bin/sh"
    return [shell] if command is None else [shell, "-c", command]


def _run(argv: Sequence[str], path: str, held: int) -> int:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    faults.effect("shell.start")
    try:
        process = subprocess.Popen(
            list(argv), cwd=path, env={**environment, "PWD": path}, pass_fds=(held,), restore_signals=True
        )
    except OSError as error:
        raise Refused(f"{argv[0]} could not be started: {error.strerror}. Set SHELL to another shell.") from error
    interrupts = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is meant for the program in the shell
    try:
        code = process.wait()
    finally:
        signal.signal(signal.SIGINT, interrupts)
    return code if code >= 0 else 128 - code


def _record_left(home: str, task_id: str) -> None:
    """Record that the shell has left the workspace, so that a clean-up does not wait for it."""
    from holdfast.api.commands import change_store

    change_store(home, lambda tx: tx.preserved.freed(task_id))
