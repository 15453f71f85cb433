"""The gate before the `.git` of a clone, which an agent wrote: git runs there only with a path that this module
returns.

git follows what stands in a git directory: a link as a ref or a reflog, a `commondir`, alternates. So an agent in a
container could make our git read or write files of this machine. A clone that we made has none of these.
"""

from __future__ import annotations

import os

from holdfast.base.errors import WorkspaceProblem
from holdfast.core.model import Strategy, Workspace

OWN_GIT = (Strategy.CLONE, Strategy.CONTAINER)  # their workspaces have a `.git` of their own
LARGEST_GIT_FILE = 1 << 30  # bytes of a file in a git directory other than its objects


def trust_clone_git_dir(workspace: Workspace) -> str | None:
    """Return the clone's own `.git` for a call of git. None: the agent removed it, or the workspace is not a clone.

    Raise WorkspaceProblem if a file in `.git` would lead git out of that directory. Call this only when no process of
    the agent lives, because the agent could change the directory again.
    """
    path = find_clone_git_dir(workspace) if workspace.strategy in OWN_GIT else None
    if path is not None:
        _refuse_special_files(path)
    return path


def find_clone_git_dir(workspace: Workspace) -> str | None:
    """Return the clone's own `.git`, or None if the agent removed it. Raise WorkspaceProblem if it leads elsewhere.

    That check is enough to look for a file in the directory. git may run there only after `trust_clone_git_dir`.
    """
    path = os.path.join(workspace.path, ".git")
    if not os.path.lexists(path):
        return None
    for name in ("", "objects", "objects/pack", "objects/info", "refs"):
        if os.path.islink(os.path.join(path, name)):
            raise WorkspaceProblem(f"{os.path.join(path, name)} is a link to another place, so it is not trusted")
    if not os.path.isdir(path):
        raise WorkspaceProblem(f"{path} points to another repository, so it is not trusted")
    for name in ("commondir", "objects/info/alternates"):
        if os.path.lexists(os.path.join(path, name)):
            raise WorkspaceProblem(f"{os.path.join(path, name)} names another repository, so it is not trusted")
    return path


def _refuse_special_files(git_dir: str) -> None:
    """Raise WorkspaceProblem for a link, pipe, socket or device in a clone's git directory, or a giant file.

    git itself makes no links there, but it would write through an agent's link, to files that the agent of a container
    cannot reach itself. git would also wait for a pipe forever, and read a sparse file of any length.
    """
    waiting, objects = [git_dir], os.path.join(git_dir, "objects")
    while waiting:
        folder = waiting.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif not entry.is_file(follow_symlinks=False):
                    raise WorkspaceProblem(f"{entry.path} is not a plain file, so it is not trusted")
                elif not f"{folder}/".startswith(f"{objects}/") and entry.stat().st_size > LARGEST_GIT_FILE:
                    raise WorkspaceProblem(f"{entry.path} is larger than 1 GiB, so it is not read")
