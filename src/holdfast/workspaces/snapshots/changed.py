"""Did anything change in a workspace? Asked before an agent is said to go in circles: work on files is progress."""

from __future__ import annotations

import os
from dataclasses import dataclass

MOST_FILES = 20_000  # beyond, a look would cost more than it tells


@dataclass(frozen=True, slots=True)
class Change:
    """What a look at a workspace found."""

    name: str | None = None  # the first file or directory that changed; None: none of those looked at
    saw_all: bool = True  # False: "none" says nothing about the rest


def changed_since(path: str, wall: float) -> Change:
    """Whether `path` or anything below it changed after `wall`.

    git's own directory does not count: looking at the state of a work tree already writes there.
    """
    left, saw_all = MOST_FILES, True
    waiting = [path]
    while waiting:
        directory = waiting.pop()
        try:
            if os.stat(directory, follow_symlinks=False).st_mtime > wall:
                return Change(os.path.relpath(directory, path))
            with os.scandir(directory) as entries:
                for entry in entries:
                    left -= 1
                    if left < 0:
                        return Change(saw_all=False)
                    if entry.name == ".git":
                        continue
                    try:
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(entry.path)
                        elif entry.stat(follow_symlinks=False).st_mtime > wall:
                            return Change(os.path.relpath(entry.path, path))
                    except OSError:
                        saw_all = False  # gone meanwhile
        except OSError:
            saw_all = False  # gone meanwhile, or not ours to read
    return Change(saw_all=saw_all)
