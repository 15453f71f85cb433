"""The inventory of our workspaces and of the worktree entries in the repositories. It only reads, without a process.

Names that we do not use are listed as odd. What cannot be read is listed as unseen. Both are left alone.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator

from holdfast.core.cleanup.observed import LOCK_TEXT, OwnerMarker, WorkspacePath, WorktreeEntry
from holdfast.core.model import Repo
from holdfast.workspaces.git import worktree_entries
from holdfast.workspaces.names import OWNER_SUFFIX, STRANDED_PREFIX, TRASH, WORKSPACES

HALF_WRITTEN_SUFFIX = f"{OWNER_SUFFIX}.new"
_OURS = re.compile(r"[a-z0-9]+")  # the names of repositories and tasks (ids.py)
_PLACE = re.compile(r"[a-z0-9]+(--[A-Za-z0-9][A-Za-z0-9_-]*)?")  # names.of_member
_MOST = 65536  # bytes; an agent may have replaced a small file of ours by a large one


class DiskInventory:
    """One inventory of a home. Its generators fill `odd`, `unseen` and `stranded`."""

    def __init__(self, home: str) -> None:
        self._root = os.path.join(home, WORKSPACES)
        self._real_root = os.path.realpath(self._root)
        self.odd: list[str] = []
        self.unseen: list[tuple[str, str]] = []
        self.stranded: list[str] = []

    def places(self) -> Iterator[WorkspacePath]:
        """Yield every directory and every marker two levels down, without our trash."""
        for repo in self._names(self._root):
            folder = os.path.join(self._root, repo)
            if repo == TRASH:
                continue
            if not _OURS.fullmatch(repo) or not _is_directory(folder):
                self.odd.append(folder)
                continue
            yield from self._places_in(repo, folder)

    def _places_in(self, repo: str, folder: str) -> Iterator[WorkspacePath]:
        names = self._names(folder)
        self.stranded += [os.path.join(folder, name) for name in names if name.startswith(STRANDED_PREFIX)]
        names = [name for name in names if not name.startswith(STRANDED_PREFIX)]
        bare = {name.removesuffix(".new").removesuffix(OWNER_SUFFIX) for name in names}
        present = set(names)
        for name in sorted(bare):
            path = os.path.join(folder, name)
            is_there = name in present
            if not _PLACE.fullmatch(name) or (is_there and not _is_directory(path)):
                self.odd.append(path)
                continue
            yield WorkspacePath(
                path=path,
                repo=repo,
                is_there=is_there,
                mark=read_mark(path + OWNER_SUFFIX) if name + OWNER_SUFFIX in present else None,
                spare_mark=name + HALF_WRITTEN_SUFFIX in present,
                git_entry_of=_read_lock_task(_find_entry(path)) if is_there else None,
            )

    def trash(self) -> list[str]:
        """Return the content of the trash. If `places` was used before, add the trash that had to stay next to
        workspaces."""
        folder = os.path.join(self._root, TRASH)
        return [os.path.join(folder, name) for name in self._names(folder)] + self.stranded

    def entries(self, repos: Iterable[Repo]) -> Iterator[WorktreeEntry]:
        """Yield the entries of our workspaces, and the entries without a worktree that carry our lock."""
        for repo in repos:
            folder = os.path.join(repo.common_dir, "worktrees")
            for name in self._names(folder):
                found = self._entry(repo, os.path.join(folder, name))
                if found is not None:
                    yield found

    def _entry(self, repo: Repo, folder: str) -> WorktreeEntry | None:
        try:
            tree = worktree_entries.read_worktree_path(folder)
        except OSError as error:
            self.unseen.append((folder, error.strerror or str(error)))
            return None
        if tree is None:
            task = _read_lock_task(folder)
            if task is None:
                return None
            return WorktreeEntry(repo=repo.id, folder=folder, tree=None, tree_is_there=False, locked_for=task)
        if not tree.startswith(self._real_root + "/"):
            return None  # the entry belongs to the user or to another home
        path = self._root + tree.removeprefix(self._real_root)
        return WorktreeEntry(
            repo=repo.id,
            folder=folder,
            tree=path,
            tree_is_there=os.path.lexists(path),
            locked_for=_read_lock_task(folder),
        )

    def _names(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(folder))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            self.unseen.append((folder, error.strerror or str(error)))
            return []


def read_mark(path: str) -> OwnerMarker | None:
    """Return the content of a marker, or None if it is not ours. An agent can write a marker, so every field is
    checked.
    """
    said = _read(path)
    try:
        found = json.loads(said) if said else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    words = {name: found.get(name) for name in ("workspace", "task", "repo", "path")}
    if not all(isinstance(word, str) for word in words.values()):
        return None
    branch, base, member = found.get("branch"), found.get("base_commit"), found.get("member")
    return OwnerMarker(
        **{name: str(word) for name, word in words.items()},
        branch=branch if isinstance(branch, str) else None,
        base_commit=base if isinstance(base, str) else None,
        member=member if isinstance(member, str) else "",
    )


def _find_entry(tree: str) -> str | None:
    """Return the worktree entry that a work tree's `.git` file names, if that entry names the work tree in turn."""
    said = _read(os.path.join(tree, ".git"))
    if not said.startswith("gitdir: "):
        return None
    entry = os.path.join(tree, said.removeprefix("gitdir: ").rstrip("\n"))
    try:
        return entry if worktree_entries.read_worktree_path(entry) == os.path.realpath(tree) else None
    except (OSError, ValueError):
        return None


def _read_lock_task(entry: str | None) -> str | None:
    """Return the task for which Holdfast locked an entry, or None."""
    if entry is None:
        return None
    said = _read(os.path.join(entry, "locked")).strip()
    return said.removeprefix(LOCK_TEXT).split()[0] if said.startswith(LOCK_TEXT) and said != LOCK_TEXT else None


def _is_directory(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _read(path: str) -> str:
    """Return the beginning of a file, or "" if there is none. Never waits: an agent may have put a pipe there."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (OSError, ValueError):
        return ""
    try:
        return os.read(fd, _MOST).decode("utf-8", errors="surrogateescape")
    except OSError:
        return ""
    finally:
        os.close(fd)
