"""Scratch directories for half-made things. The next supervisor removes what a killed one left there."""

from __future__ import annotations

import contextlib
import os
import tempfile

from holdfast.base import faults
from holdfast.base.errors import WorkspaceProblem
from holdfast.workspaces.removal.trash import delete_tree

FOLDER = "scratch"


def make_scratch(home: str, purpose: str) -> str:
    """Create an empty directory on the home's own file system, so that its content can be renamed into place."""
    faults.effect("scratch.make")
    folder = os.path.join(home, FOLDER)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return tempfile.mkdtemp(prefix=f"{purpose}-", dir=folder)


def drop_scratch(path: str) -> None:
    """Delete a scratch directory. A failure is ignored, because the next start clears all of them."""
    with contextlib.suppress(WorkspaceProblem, OSError):
        delete_tree(path)


def clear_scratch(home: str) -> None:
    """Delete all scratch directories at start-up.

    The home's lock is held and every helper of an earlier supervisor has ended, so no process uses them.
    """
    delete_tree(os.path.join(home, FOLDER))
