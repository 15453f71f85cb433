"""A cheap mark of a workspace: differs when a file was written, made or removed, or its git moved. No content is read,
and no clock is asked: a time that was set back is another time all the same."""

from __future__ import annotations

import os
from dataclasses import dataclass

from holdfast.base.files import plainly

MOST_FILES = 20_000  # beyond, git is asked at once: it does not go into what is ignored
_OF_GIT = ("index", "HEAD", "logs/HEAD")


def stamp(path: str) -> int | None:
    """None: it cannot be told cheaply, or not at all."""
    mark, left = 0, MOST_FILES
    git_dir = _git_dir(path)
    for name in _OF_GIT if git_dir is not None else ():
        mark ^= _of(os.path.join(git_dir or "", name))
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
            return None  # changing just now, or not ours to read
    return mark


def _git_dir(path: str) -> str | None:
    """As its `.git` says: a directory of its own, or a file that names the worktree's."""
    link = os.path.join(path, ".git")
    if os.path.isdir(link) and not os.path.islink(link):
        return link
    try:
        with open(link, encoding="utf-8", errors="surrogateescape", opener=plainly) as file:
            said = file.read(4096)
    except OSError:
        return None
    return os.path.join(path, said.removeprefix("gitdir: ").strip()) if said.startswith("gitdir: ") else None


def _of(path: str) -> int:
    try:
        seen = os.lstat(path)
    except OSError:
        return hash(path)
    return hash((path, seen.st_mtime_ns, seen.st_ino, seen.st_size))


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
