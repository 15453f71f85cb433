"""Putting trees away and deleting them, as the user who owns them. `delete_tree.py` has the walk."""

from __future__ import annotations

import os
import shlex

from holdfast.base import faults
from holdfast.base.concurrency import in_thread
from holdfast.base.errors import NoPermission, WorkspaceProblem
from holdfast.base.files import listed
from holdfast.core.model import Workspace
from holdfast.workspaces import names
from holdfast.workspaces.removal import owner_marker
from holdfast.workspaces.removal.delete_tree import Deleter


def move_away(source: str, target: str) -> bool:
    """Rename `source` to `target`: instant whatever its size, and its content is not touched. False: not there.

    The marker of `source` follows first: root deletes from the trash only what carries one. A directory of somebody
    else (a container ran as root) may be renamed only where it lies: then that is done, under a name of the trash.
    """
    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
    try:
        _mark(source, target)
        faults.effect("trash.rename")
        os.rename(source, target)
    except FileNotFoundError:
        return False
    except PermissionError as error:
        _strand(source, target, error)
    except OSError as error:
        raise _not_renamed(source, error) from error
    faults.passed("trash.renamed")
    return True


def _mark(source: str, target: str) -> None:
    """The same file under a second name: whole at once, and it stays when the first name is given to the next one."""
    try:
        faults.effect("trash.mark")
        os.link(source + names.OWNER_SUFFIX, target + names.TRASHED_SUFFIX)
    except OSError:
        return  # no marker, one of an earlier try, or no hard links here: the user's own deletion does not need it


def _strand(source: str, target: str, why: OSError) -> None:
    try:
        faults.effect("trash.strand")
        os.rename(source, names.stranded_path(source, os.path.basename(target)))
    except OSError:
        raise _not_renamed(source, why) from why


def _not_renamed(source: str, error: OSError) -> WorkspaceProblem:
    return WorkspaceProblem(f"{source} could not be renamed into the trash ({error.strerror}); it was left as it is.")


def is_needed_marker(path: str) -> bool:
    """Whether it is the marker of something that is still there: without it root could not delete that."""
    entry = path.removesuffix(names.TRASHED_SUFFIX)
    if entry == path:
        return False
    trash, name = os.path.split(entry)
    workspaces = os.path.dirname(trash)
    places = [os.path.join(workspaces, repo, f"{names.STRANDED_PREFIX}{name}") for repo in listed(workspaces)]
    return any(os.path.lexists(place) for place in (entry, *places))


def delete_tree(path: str) -> None:
    """Remove `path` and all below it. Missing is fine. Interrupted, it can be repeated.

    Raises WorkspaceProblem, naming the first obstacle, when something had to stay (another mount, no permission).
    """
    faults.effect("trash.delete")
    try:
        parent = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    deleter = Deleter(may_chmod=True, point=faults.effect)
    try:
        gone = deleter.delete(parent, os.path.basename(path), path)
    finally:
        os.close(parent)
    faults.passed("trash.deleted")
    if not gone:
        why = f"{path} could not be deleted whole: {deleter.obstacles[0]} ({deleter.obstacle_count} obstacle(s))"
        raise NoPermission(why + _remedy(path)) if deleter.denied else WorkspaceProblem(why)


def _remedy(path: str) -> str:
    """R-TREE-09: only root may remove what somebody else's directories hold."""
    return (
        f". Look at it, then `sudo rm -rf --one-file-system -- {shlex.quote(path)}`; "
        "`sudo holdfast service install --system` has root remove such things before every start"
    )


async def delete_remains(home: str, workspace: Workspace) -> None:
    """May take long; may be interrupted and repeated. Deleting runs in a thread: it starts no process."""
    trash = os.path.dirname(names.trash_path(home, workspace.id))
    # Also what was half made (`-half-made`), and the marker (`.trashed.json`): it comes last, in the order of names.
    ours = [
        name
        for name in listed(trash)
        if name == workspace.id or name.startswith((f"{workspace.id}-", f"{workspace.id}."))
    ]
    for name in (workspace.id, f"{workspace.id}-half-made"):
        await in_thread(delete_tree, names.stranded_path(workspace.path, name))
    for name in ours:
        await in_thread(delete_tree, os.path.join(trash, name))
    owner_marker.remove(workspace)
