"""Cheap detection of changes in a workspace, from file times only.

It is used before an agent is reported as going in circles, because work on files is progress. No content is read. The
stamp compares times for equality only, so a clock that was set back does no harm.
"""

from __future__ import annotations

import os

from holdfast.base.dataclass import dataclass
from holdfast.base.files import open_regular_file

MOST_FILES = 20_000  # above that, git is called instead: it skips ignored files
_OF_GIT = ("index", "HEAD", "logs/HEAD")


def compute_stamp(path: str) -> int | None:
    """Return a number that changes when a file is written, created or removed, or when the git state changes.

    None: the workspace is too large, cannot be read, or is changing right now.
    """
    mark, left = 0, MOST_FILES
    git_dir = _git_dir(path)
    for name in _OF_GIT if git_dir is not None else ():
        mark ^= _file_stamp(os.path.join(git_dir or "", name))
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
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    seen = entry.stat(follow_symlinks=False)
                    mark ^= hash((entry.path, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino, seen.st_size))
        except OSError:
            return None  # changing right now, or not readable for us
    return mark


def _git_dir(path: str) -> str | None:
    """Return the git directory that `.git` is or names: the clone's own, or the one of the worktree."""
    link = os.path.join(path, ".git")
    if os.path.isdir(link) and not os.path.islink(link):
        return link
    try:
        with open(link, encoding="utf-8", errors="surrogateescape", opener=open_regular_file) as file:
            said = file.read(4096)
    except OSError:
        return None
    return os.path.join(path, said.removeprefix("gitdir: ").strip()) if said.startswith("gitdir: ") else None


def _file_stamp(path: str) -> int:
    try:
        seen = os.lstat(path)
    except OSError:
        return hash(path)
    return hash((path, seen.st_mtime_ns, seen.st_ino, seen.st_size))


@dataclass(frozen=True, slots=True)
class FoundChange:
    """The result of a search for changes in a workspace."""

    name: str | None = None  # the first file or directory that changed; None: none of the examined ones
    saw_all: bool = True  # False: not everything was examined, so None proves nothing


def find_change_since(path: str, wall: float) -> FoundChange:
    """Search `path` and everything below it for a change after `wall`.

    git's own directory is skipped, because even reading the state of a work tree writes to it.
    """
    left, saw_all = MOST_FILES, True
    waiting = [path]
    while waiting:
        directory = waiting.pop()
        try:
            if os.stat(directory, follow_symlinks=False).st_mtime > wall:
                return FoundChange(os.path.relpath(directory, path))
            with os.scandir(directory) as entries:
                for entry in entries:
                    left -= 1
                    if left < 0:
                        return FoundChange(saw_all=False)
                    if entry.name == ".git":
                        continue
                    try:
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(entry.path)
                        elif entry.stat(follow_symlinks=False).st_mtime > wall:
                            return FoundChange(os.path.relpath(entry.path, path))
                    except OSError:
                        saw_all = False  # the file vanished meanwhile
        except OSError:
            saw_all = False  # the directory vanished meanwhile, or is not readable for us
    return FoundChange(saw_all=saw_all)
