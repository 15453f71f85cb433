"""Scratch directories: for things that are half made. Whatever a killed supervisor left there, the next one removes."""

from __future__ import annotations

import contextlib
import os
import tempfile

from holdfast.base import faults
from holdfast.base.errors import WorkspaceProblem
from holdfast.workspaces.removal.trash import delete_tree

FOLDER = "scratch"


def make(home: str, purpose: str) -> str:
    """A fresh directory on the home's own file system, so that its content can be renamed into place."""
    faults.effect("scratch.make")
    folder = os.path.join(home, FOLDER)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return tempfile.mkdtemp(prefix=f"{purpose}-", dir=folder)


def drop(path: str) -> None:
    """What cannot be deleted now is no reason to fail: the next start clears it."""
    with contextlib.suppress(WorkspaceProblem, OSError):
        delete_tree(path)


def clear(home: str) -> None:
    """At start-up, with the home's lock held and every helper of an earlier supervisor ended: nobody uses it."""
    delete_tree(os.path.join(home, FOLDER))
