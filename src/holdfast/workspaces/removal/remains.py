"""The last step of every removal: what is in the trash, what was half made, and our marker."""

from __future__ import annotations

import os

from holdfast.base.concurrency import in_thread
from holdfast.base.folders import listed
from holdfast.core.model import Workspace
from holdfast.workspaces import names
from holdfast.workspaces.removal import owner_marker
from holdfast.workspaces.removal.trash import delete_tree


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
