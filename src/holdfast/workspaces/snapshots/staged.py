"""What an agent's index holds: staged content, and every side of a conflict."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from holdfast.base.errors import is_passing
from holdfast.workspaces.git.git import GitFailed
from holdfast.workspaces.git.index_entries import Entry
from holdfast.workspaces.snapshots.private_index import Desk


@dataclass(kw_only=True, slots=True)
class Staged:
    tree: str | None = None  # None: there is no index, or it is unmerged
    stages: list[Entry] = field(default_factory=list)  # of an unmerged index: all of it that HEAD does not say
    damaged: bool = False
    lost: list[str] = field(default_factory=list)


async def read_staged(table: Desk, git_dir: str | None, head: str | None) -> Staged:
    """Read from a copy of its own: writing a tree notes things in the index."""
    index = os.path.join(table.path, "staged")
    if git_dir is None or not table.copy_index(git_dir, index):
        return Staged()
    try:
        return Staged(tree=(await table.run("write-tree", borrow=True, index=index)).strip())
    except GitFailed as error:
        if is_passing(error) or not error.answered:
            raise  # a full disk, say: what was staged is not to be given up for that
    try:
        entries = await table.entries(index)
    except GitFailed as error:
        if not error.answered:
            raise
        return Staged(damaged=True, lost=["the index, which git cannot read"])
    if all(entry.stage == 0 for entry in entries):
        return Staged(damaged=True, lost=["staged content, which is not in the repository any more"])
    committed = {(entry.mode, entry.oid, entry.path) for entry in await table.entries()} if head else set()
    ours = [entry for entry in entries if entry.stage or (entry.mode, entry.oid, entry.path) not in committed]
    return Staged(stages=ours)
