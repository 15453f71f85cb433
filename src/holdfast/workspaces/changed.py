"""Did anything change in a workspace? Asked before an agent is said to go in circles: work on files is progress."""

from __future__ import annotations

import os

MOST_FILES = 20_000  # beyond, a look would cost more than it tells


def changed_since(path: str, wall: float) -> str | None:
    """The first file or directory below `path` that changed after `wall`, by its name; None: none of those looked at.

    git's own directory does not count: looking at the state of a work tree already writes there.
    """
    left = MOST_FILES
    waiting = [path]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    left -= 1
                    if left < 0:
                        return None
                    if entry.name == ".git":
                        continue
                    if entry.stat(follow_symlinks=False).st_mtime > wall:
                        return os.path.relpath(entry.path, path)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError:
            continue  # gone meanwhile, or not ours to read
    return None
