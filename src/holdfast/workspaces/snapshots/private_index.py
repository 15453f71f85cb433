"""The private index in which one snapshot is assembled: a scratch git directory that uses the shadow's objects.

The index begins as a copy of the agent's index, set to the agent's HEAD. So files that git knows to be unchanged are
not read again. They are also not mistaken for changes if a checkout differs from the committed content (line ends,
LFS). Nothing else of the agent's index is trusted: neither its flags nor the staged content.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from holdfast.base import faults
from holdfast.base.concurrency import run_in_thread
from holdfast.base.dataclass import dataclass
from holdfast.base.errors import WorkspaceProblem
from holdfast.base.files import (
    FileTooLarge,
    NotRegularFile,
    copy_data,
    create_plain,
    folder_beneath,
    listed,
    open_beneath,
    open_plain,
    stat_beneath,
)
from holdfast.workspaces import scratch
from holdfast.workspaces.git.clone_git_dir import LARGEST_GIT_FILE
from holdfast.workspaces.git.git import GitFailed
from holdfast.workspaces.git.index_entries import LIST_ENTRIES, IndexEntry, find_touched_entries, parse_entries
from holdfast.workspaces.removal.trash import delete_tree
from holdfast.workspaces.snapshots.shadow_repo import ShadowRepo

GITLINK = "160000"
REMOVED_MODE = "0"  # the mode that removes an entry


@dataclass(frozen=True, slots=True)
class TreeDifferences:
    """The differences between the index and the work tree."""

    untracked: tuple[str, ...]
    changed: tuple[str, ...]  # modified, of another type, or gone
    complaints: str  # git's errors about directories that it could not open


class PrivateIndex:
    """A scratch git directory with a private index, over the shadow's objects and a work tree."""

    def __init__(self, shadow: ShadowRepo, path: str, work_tree: str) -> None:
        self.path = path
        self.shadow = shadow
        self.work_tree = work_tree
        self.index = os.path.join(path, "index")

    async def run(self, *arguments: str, borrow: bool = False, stdin: bytes = b"", index: str | None = None) -> str:
        """Run git with the private index (or `index`) and, if the work tree exists, with the work tree."""
        tree = self.work_tree if os.path.isdir(self.work_tree) else self.path
        return await self.shadow.run(
            *arguments, git_dir=self.path, work_tree=tree, index=index or self.index, borrow=borrow, stdin=stdin
        )

    async def start_from_head(self, git_dir: str | None, head: str | None) -> bool:
        """Make the index equal to HEAD, with the agent's data on unchanged files. False: there is no such data."""
        base = [head] if head is not None else ["--empty"]
        if git_dir is not None and head is not None and self.copy_index(git_dir, self.index):
            try:
                await self.run("read-tree", "--reset", *base, borrow=True)
                return True
            except GitFailed as error:
                if not error.answered:
                    raise
                faults.effect("desk.reseed")
                os.unlink(self.index)  # damaged: start from the commit, and read every file
        await self.run("read-tree", *base)
        return False

    def copy_index(self, git_dir: str, target: str) -> bool:
        """Copy the agent's index with its mtime, by which git detects files that changed right after their check."""
        try:
            copy_plain(os.path.join(git_dir, "index"), target)
            for name in listed(git_dir):
                if name.startswith("sharedindex."):
                    copy_plain(os.path.join(git_dir, name), os.path.join(self.path, name))
        except (FileNotFoundError, IsADirectoryError, NotRegularFile):
            return False
        return True

    async def entries(self, index: str | None = None) -> list[IndexEntry]:
        out = await self.run(*LIST_ENTRIES, borrow=True, index=index)
        return parse_entries(out)

    async def recheck_times(self, entries: Iterable[IndexEntry]) -> None:
        """Make git read files again whose times differ by a fraction of a second.

        git compares whole seconds. It would miss a file that was written twice within one second, if the time of the
        first write was restored.
        """
        found = await run_in_thread(find_touched_entries, self.work_tree, list(entries))
        await self.put([(entry.mode, entry.oid, entry.path) for entry in found])

    async def unhide_files(self, entries: Iterable[IndexEntry]) -> None:
        """Make git examine every file, including those that the agent has hidden from git."""
        hidden = [entry.path for entry in entries if entry.hidden]
        present = [entry.path for entry in entries if entry.absent and self.is_on_disk(entry.path)]
        if hidden:
            await self.run("update-index", "--no-assume-unchanged", "-z", "--stdin", stdin=_nul(hidden))
        if present:
            await self.run("update-index", "--no-skip-worktree", "-z", "--stdin", stdin=_nul(present))

    def is_on_disk(self, path: str) -> bool:
        try:
            stat_beneath(self.work_tree, path)
        except OSError:
            return False
        return True

    async def list_differences(self, litter: Sequence[str] = ()) -> TreeDifferences:
        """List what git would add or remove, without untracked `litter`."""
        but = [f"--exclude={pattern}" for pattern in litter]
        arguments = ["ls-files", "-t", "--others", "--modified", "--deleted", "--exclude-standard", *but, "-z"]
        code, out, err = await self.shadow.ask(
            *arguments, git_dir=self.path, work_tree=self.work_tree, index=self.index
        )
        if code != 0:
            raise GitFailed(arguments, code, err)
        found = [(line[0], line[2:]) for line in out.split("\0") if line]
        return TreeDifferences(
            untracked=tuple(path for tag, path in found if tag == "?"),
            changed=tuple(dict.fromkeys(path for tag, path in found if tag != "?")),
            complaints=err,
        )

    async def list_matching(self, patterns: Sequence[str]) -> list[str]:
        """Return the untracked files that match a pattern, ignored or not."""
        options = [f"--exclude={pattern}" for pattern in patterns]
        out = await self.run("ls-files", "--others", "--ignored", "-z", *options)
        return [path for path in out.split("\0") if path and not path.endswith("/")]

    async def take(self, paths: Sequence[str], most: int) -> list[str]:
        """Add files as they are on disk to the index, and their content to the shadow. Return the unreadable ones.

        `most`: bytes of one file; a longer one counts as unreadable. git reads copies of ours. git looks for links on
        the way to a file only once, and an agent in a container could put a link to a directory of this machine there
        while git reads.
        """
        copies = os.path.join(self.path, "taken")
        try:
            copied, closed = await run_in_thread(_copy_files, self.work_tree, copies, list(paths), most)
            if copied:
                faults.effect("desk.take")
                words = ("update-index", "--add", "--replace", "-z", "--stdin")
                await self.shadow.run(*words, git_dir=self.path, work_tree=copies, index=self.index, stdin=_nul(copied))
        finally:
            await run_in_thread(delete_tree, copies)
        return closed

    async def drop(self, paths: Sequence[str]) -> None:
        """Remove files that are gone from the index."""
        await self.put([(REMOVED_MODE, "0" * 40, path) for path in paths])

    async def put(self, lines: Iterable[tuple[str, str, str]], index: str | None = None) -> None:
        """Write (mode, object, path) entries into the index, whatever is on disk."""
        text = _nul(f"{mode} {oid}\t{path}" for mode, oid, path in lines)
        if text:
            await self.run("update-index", "-z", "--index-info", stdin=text, index=index)

    def unlock(self) -> None:
        """Remove the lock that a killed git left on the private index."""
        with contextlib.suppress(FileNotFoundError):
            faults.effect("desk.unlock")
            os.unlink(f"{self.index}.lock")

    async def tree(self) -> str:
        return (await self.run("write-tree")).strip()


@asynccontextmanager
async def open_private_index(shadow: ShadowRepo, home: str, work_tree: str) -> AsyncIterator[PrivateIndex]:
    path = scratch.make_scratch(home, "salvage")
    try:
        faults.effect("desk.make")
        for name, text in (("HEAD", "ref: refs/heads/none"), ("commondir", shadow.path)):
            with open(os.path.join(path, name), "w", encoding="utf-8") as file:
                file.write(f"{text}\n")
        yield PrivateIndex(shadow, path, work_tree)
    finally:
        scratch.drop_scratch(path)


def copy_plain(source: str, target: str) -> None:
    """Copy a regular file with its times. Links are refused: one may name an endless device or another's file.

    Raises WorkspaceProblem for a giant file, which may be a sparse one of any length.
    """
    faults.effect("desk.copy")
    with open(open_beneath(*os.path.split(source)), "rb") as reading, open(target, "wb") as writing:
        try:
            copy_data(reading.fileno(), writing.fileno(), LARGEST_GIT_FILE)
        except FileTooLarge as error:
            raise WorkspaceProblem(f"{source} is larger than 1 GiB, so it is not read") from error
        seen = os.fstat(reading.fileno())
    os.utime(target, ns=(seen.st_atime_ns, seen.st_mtime_ns))


def _copy_files(tree: str, target: str, paths: Sequence[str], most: int) -> tuple[list[str], list[str]]:
    """Copy files and links to `target`. Return the copied paths, and the unreadable ones. A path in neither list has
    just changed.

    The list may name a link and also files below it, if the agent has exchanged a directory. So nothing is written by
    its path: that could go through our own copy of the link. `most`: a longer file counts as unreadable.
    """
    copied, closed = [], []
    os.makedirs(target, exist_ok=True)
    for path in paths:
        folder, _, name = path.rpartition("/")
        faults.effect("desk.stage")
        try:
            with folder_beneath(tree, folder) as theirs, folder_beneath(target, folder, make=True) as ours:
                _copy_file(name, theirs, ours, most)
        except (PermissionError, FileTooLarge):
            closed.append(path)
        except (FileNotFoundError, FileExistsError, NotADirectoryError, NotRegularFile):
            continue
        else:
            copied.append(path)
    return copied, closed


def _copy_file(name: str, theirs: int, ours: int, most: int) -> None:
    """Copy one file or link from one open directory into another. Nothing that is there is followed or overwritten."""
    if stat.S_ISLNK(os.stat(name, dir_fd=theirs, follow_symlinks=False).st_mode):
        os.symlink(os.readlink(name, dir_fd=theirs), name, dir_fd=ours)
        return
    with open(open_plain(name, theirs), "rb") as reading, open(create_plain(name, ours), "wb") as writing:
        seen = os.fstat(reading.fileno())
        copy_data(reading.fileno(), writing.fileno(), most)
        os.fchmod(writing.fileno(), 0o755 if seen.st_mode & stat.S_IXUSR else 0o644)
        os.utime(writing.fileno(), ns=(seen.st_atime_ns, seen.st_mtime_ns))


def _nul(texts: Iterable[str]) -> bytes:
    return b"".join(text.encode(errors="surrogateescape") + b"\0" for text in texts)
