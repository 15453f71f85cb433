"""The last step of every removal: what is in the trash, what was half made, and our marker."""

from __future__ import annotations

import asyncio

from holdfast.core.model import Workspace
from holdfast.workspaces import marker, names
from holdfast.workspaces.trash import delete_tree


async def delete_remains(home: str, workspace: Workspace) -> None:
    """May take long; may be interrupted and repeated. Deleting runs in a thread: it starts no process."""
    for path in (names.trash_path(home, workspace.id), names.half_made_path(home, workspace.id)):
        await asyncio.to_thread(delete_tree, path)
    marker.remove(workspace)
