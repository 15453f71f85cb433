"""Trash: moving trees away and deleting them, with the rights of their owner. `delete_tree.py` walks the trees.

The last step of every removal is here too: it deletes what is in the trash, what was half-made, and our marker.
"""

from __future__ import annotations

import os
import shlex

from holdfast.base import faults
from holdfast.base.concurrency import run_in_thread
from holdfast.base.errors import NoPermission, WorkspaceProblem
from holdfast.base.files import listed
from holdfast.core.model import Workspace
from holdfast.workspaces import names
from holdfast.workspaces.removal import owner_marker
from holdfast.workspaces.removal.delete_tree import Deleter


def move_to_trash(source: str, target: str) -> bool:
    """Rename `source` to `target`. False: `source` does not exist.

    A rename is instant for any size and does not touch the content. The marker of `source` gets a second name first,
    because root deletes only trash with a marker. A directory of another user (from a container that ran as root) can
    be renamed only within its parent. Its new name there marks it as trash.
    """
    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
    try:
        _link_marker(source, target)
        faults.effect("trash.rename")
        os.rename(source, target)
    except FileNotFoundError:
        return False
    except PermissionError as error:
        _rename_in_place(source, target, error)
    except OSError as error:
        raise _rename_problem(source, error) from error
    faults.passed("trash.renamed")
    return True


def _link_marker(source: str, target: str) -> None:
    """Link the marker into the trash. A hard link is complete at once, and survives when the first name is reused."""
    try:
        faults.effect("trash.mark")
        os.link(source + names.OWNER_SUFFIX, target + names.TRASHED_SUFFIX)
    except OSError:
        return  # no marker, already linked, or no hard links here: the user's own deletion does not need the marker


def _rename_in_place(source: str, target: str, why: OSError) -> None:
    try:
        faults.effect("trash.strand")
        os.rename(source, names.stranded_path(source, os.path.basename(target)))
    except OSError:
        raise _rename_problem(source, why) from why


def _rename_problem(source: str, error: OSError) -> WorkspaceProblem:
    return WorkspaceProblem(f"{source} could not be renamed into the trash ({error.strerror}); it was left as it is.")


def is_needed_marker(path: str) -> bool:
    """True for the marker of trash that still exists. Without the marker, root could not delete that trash."""
    entry = path.removesuffix(names.TRASHED_SUFFIX)
    if entry == path:
        return False
    trash, name = os.path.split(entry)
    workspaces = os.path.dirname(trash)
    places = [os.path.join(workspaces, repo, f"{names.STRANDED_PREFIX}{name}") for repo in listed(workspaces)]
    return any(os.path.lexists(place) for place in (entry, *places))


def delete_tree(path: str) -> None:
    """Delete `path` and everything below it. A missing path is fine. An interrupted deletion can be repeated.

    Raises WorkspaceProblem with the first obstacle if something could not be deleted (another mount, no permission).
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
    """Return the commands to type: only root may remove the content of another user's directories (R-TREE-09)."""
    return (
        f". Look at it, then `sudo rm -rf --one-file-system -- {shlex.quote(path)}`; "
        "`sudo holdfast service install --system` has root remove such things before every start"
    )


async def delete_remains(home: str, workspace: Workspace) -> None:
    """Delete all remains of a workspace. This can take long: it runs in a thread, and can be repeated."""
    trash = os.path.dirname(names.trash_path(home, workspace.id))
    # Includes half-made trees (`-half-made`) and the marker (`.trashed.json`), which sorts last.
    ours = [
        name
        for name in listed(trash)
        if name == workspace.id or name.startswith((f"{workspace.id}-", f"{workspace.id}."))
    ]
    for name in (workspace.id, f"{workspace.id}-half-made"):
        await run_in_thread(delete_tree, names.stranded_path(workspace.path, name))
    for name in ours:
        await run_in_thread(delete_tree, os.path.join(trash, name))
    owner_marker.remove_marker(workspace)
