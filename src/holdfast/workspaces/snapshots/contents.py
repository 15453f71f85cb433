"""What is in a tree that an agent shaped: counted without recursion, and refused where a commit could not hold it."""

from __future__ import annotations

import contextlib
import os
import stat

from holdfast.base.errors import WorkspaceProblem


def refuse_what_git_cannot_hold(path: str, own_git: bool = False) -> tuple[int, int]:
    """(files, bytes) of a tree. Raises WorkspaceProblem when git would leave something out in silence.

    A nested repository becomes a mere link; a directory that we may not read is skipped by `git add` with exit code 0.
    `own_git`: it is a clone, whose own `.git` is looked after elsewhere.
    """
    if not own_git and os.path.isdir(os.path.join(path, ".git")):
        raise WorkspaceProblem(f"{path} is a repository of its own, whose history a commit cannot hold")
    if own_git:
        _refuse_links(os.path.join(path, ".git"))
    files = size = 0
    waiting = [path]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                listed = list(entries)
        except OSError as error:
            raise WorkspaceProblem(f"{folder} cannot be read ({error.strerror})") from error
        for entry in listed:
            if entry.name == ".git" and folder == path and own_git:
                continue
            if entry.name == ".git" and folder != path:
                raise WorkspaceProblem(f"{folder} is a repository of its own, which a commit cannot hold")
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
            else:
                files += 1
                size += entry.stat(follow_symlinks=False).st_size
    return files, size


_READ_BY_GIT = (".git", ".gitignore", ".gitattributes", ".gitmodules")


def refuse_pipes(tree: str, git_dir: str | None) -> None:
    """Raises WorkspaceProblem where git would open a pipe and wait for ever, in a tree or in its git directory."""
    waiting = [(tree, _READ_BY_GIT), *([] if git_dir is None else [(git_dir, None)])]
    while waiting:
        folder, names = waiting.pop()
        with contextlib.suppress(OSError), os.scandir(folder) as entries:  # what cannot be read, the salvage tells
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append((entry.path, names))
                elif (names is None or entry.name in names) and blocks(entry):
                    raise WorkspaceProblem(f"{entry.path} is no plain file: git would wait for what comes out of it")


def blocks(entry: os.DirEntry[str]) -> bool:
    """Whether opening it may take for ever: a pipe, a socket, a device, or a link to one."""
    try:
        mode = entry.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _refuse_links(git_dir: str) -> None:
    """git makes none there, and would write through them: to files that the agent of a container cannot reach."""
    waiting = [git_dir]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif not entry.is_file(follow_symlinks=False):
                    raise WorkspaceProblem(f"{entry.path} is no plain file, so it is not trusted")
