"""The owner marker: a file next to a workspace that proves it is ours. Nothing without a marker is ever deleted."""

from __future__ import annotations

import contextlib
import json
import os

from holdfast.base import faults
from holdfast.base.files import open_private, open_regular_file
from holdfast.core.model import Workspace
from holdfast.workspaces.names import OWNER_SUFFIX


def write_marker(workspace: Workspace) -> None:
    """Write the marker, before the directory is created."""
    os.makedirs(os.path.dirname(workspace.path), mode=0o700, exist_ok=True)
    target = path_of(workspace)
    faults.effect("marker.write")
    with open(target + ".new", "w", encoding="utf-8", opener=open_private) as file:
        json.dump(
            {
                "workspace": workspace.id,
                "task": workspace.task_id,
                "repo": workspace.repo_id,
                "path": workspace.path,
                "branch": workspace.branch,
                "base_commit": workspace.base_commit,
                **({"member": workspace.member} if workspace.member else {}),
            },
            file,
        )
        file.flush()
        os.fsync(file.fileno())
    os.rename(target + ".new", target)
    _sync(os.path.dirname(target))  # otherwise a power loss could keep the workspace but lose the marker
    faults.passed("marker.written")


def path_of(workspace: Workspace) -> str:
    """Return the path of a workspace's marker."""
    return workspace.path + OWNER_SUFFIX


def _sync(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def remove_marker(workspace: Workspace) -> None:
    """Remove the marker, after the directory is gone. The marker of a later workspace of the task stays."""
    target = path_of(workspace)
    if read_owner(workspace.path) == workspace.id:
        faults.effect("marker.remove")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(target)
    with contextlib.suppress(OSError):
        os.rmdir(os.path.dirname(workspace.path))  # the repository's folder, if this was the last workspace in it


def read_owner(path: str) -> str | None:
    """Return the id of the workspace for which `path` was created, or None without a marker of ours."""
    try:
        with open(path + OWNER_SUFFIX, encoding="utf-8", opener=open_regular_file) as file:
            return str(json.load(file)["workspace"])
    except (OSError, ValueError, KeyError, TypeError):
        return None  # the marker is missing, or an agent overwrote it
