"""Where one salvage is put together: a git directory of its own, with the shadow's objects and a private index.

The index begins as a copy of the agent's, brought to its HEAD: files that git knows to be unchanged are not read again,
and are not mistaken for changes where a checkout differs from what is committed (line ends, LFS). Nothing else of the
agent's index is believed: not its flags, not what is staged.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from holdfast.base import faults
from holdfast.base.concurrency import in_thread
from holdfast.base.files import NotPlain, listed, plainly
from holdfast.workspaces import scratch
from holdfast.workspaces.git.git import GitFailed
from holdfast.workspaces.git.index_entries import QUESTION, Entry, parse, touched
from holdfast.workspaces.snapshots.shadow_repo import Shadow

GITLINK = "160000"
NOTHING = "0"  # the mode that removes an entry


@dataclass(frozen=True, slots=True)
class Listing:
    """What differs between the index and the work tree."""

    untracked: tuple[str, ...]
    changed: tuple[str, ...]  # modified, of another type, or gone
    complaints: str  # directories that git could not open


class Desk:
    def __init__(self, shadow: Shadow, path: str, work_tree: str) -> None:
        self.path = path
        self.shadow = shadow
        self.work_tree = work_tree
        self.index = os.path.join(path, "index")

    async def run(self, *arguments: str, borrow: bool = False, stdin: bytes = b"", index: str | None = None) -> str:
        """Git with the desk's index (or another one of it) and, where there is one, the work tree."""
        tree = self.work_tree if os.path.isdir(self.work_tree) else self.path
        return await self.shadow.run(
            *arguments, git_dir=self.path, work_tree=tree, index=index or self.index, borrow=borrow, stdin=stdin
        )

    async def seed(self, git_dir: str | None, head: str | None) -> bool:
        """An index that equals HEAD, with what the agent's own knows of unchanged files. False: it knows nothing."""
        base = [head] if head is not None else ["--empty"]
        if git_dir is not None and head is not None and self.copy_index(git_dir, self.index):
            try:
                await self.run("read-tree", "--reset", *base, borrow=True)
                return True
            except GitFailed as error:
                if not error.answered:
                    raise
                faults.effect("desk.reseed")
                os.unlink(self.index)  # damaged: start from what is committed, and read every file
        await self.run("read-tree", *base)
        return False

    def copy_index(self, git_dir: str, target: str) -> bool:
        """With its time: git tells by it which files may have changed right after they were looked at."""
        try:
            copy_plain(os.path.join(git_dir, "index"), target)
            for name in listed(git_dir):
                if name.startswith("sharedindex."):
                    copy_plain(os.path.join(git_dir, name), os.path.join(self.path, name))
        except (FileNotFoundError, IsADirectoryError, NotPlain):
            return False
        return True

    async def entries(self, index: str | None = None) -> list[Entry]:
        out = await self.run(*QUESTION, borrow=True, index=index)
        return parse(out)

    async def distrust(self, entries: Iterable[Entry]) -> None:
        """Let git read files again whose times differ by a part of a second. git compares whole seconds, so a file that
        was written twice in one, with the time of the first restored, would count as unchanged."""
        found = await in_thread(touched, self.work_tree, list(entries))
        await self.put([(entry.mode, entry.oid, entry.path) for entry in found])

    async def unhide(self, entries: Iterable[Entry]) -> None:
        """Look at every file, also at those that the agent told git not to look at."""
        hidden = [entry.path for entry in entries if entry.hidden]
        present = [entry.path for entry in entries if entry.absent and self.is_on_disk(entry.path)]
        if hidden:
            await self.run("update-index", "--no-assume-unchanged", "-z", "--stdin", stdin=_nul(hidden))
        if present:
            await self.run("update-index", "--no-skip-worktree", "-z", "--stdin", stdin=_nul(present))

    def is_on_disk(self, path: str) -> bool:
        return os.path.lexists(os.path.join(self.work_tree, path))

    async def listing(self, litter: Sequence[str] = ()) -> Listing:
        """What git would add or remove, but for untracked `litter`."""
        but = [f"--exclude={pattern}" for pattern in litter]
        arguments = ["ls-files", "-t", "--others", "--modified", "--deleted", "--exclude-standard", *but, "-z"]
        code, out, err = await self.shadow.ask(
            *arguments, git_dir=self.path, work_tree=self.work_tree, index=self.index
        )
        if code != 0:
            raise GitFailed(arguments, code, err)
        found = [(line[0], line[2:]) for line in out.split("\0") if line]
        return Listing(
            untracked=tuple(path for tag, path in found if tag == "?"),
            changed=tuple(dict.fromkeys(path for tag, path in found if tag != "?")),
            complaints=err,
        )

    async def ignored_like(self, patterns: Sequence[str]) -> list[str]:
        """Untracked files that match a pattern, ignored or not."""
        options = [f"--exclude={pattern}" for pattern in patterns]
        out = await self.run("ls-files", "--others", "--ignored", "-z", *options)
        return [path for path in out.split("\0") if path and not path.endswith("/")]

    async def take(self, paths: Sequence[str]) -> None:
        """Put files as they are on disk into the index, and their content into the shadow."""
        faults.effect("desk.take")
        await self.run("update-index", "--add", "--replace", "-z", "--stdin", stdin=_nul(paths))

    async def drop(self, paths: Sequence[str]) -> None:
        """Take what is gone out of the index."""
        await self.put([(NOTHING, "0" * 40, path) for path in paths])

    async def put(self, lines: Iterable[tuple[str, str, str]], index: str | None = None) -> None:
        """(mode, object, path) as they are, whatever is on disk."""
        text = _nul(f"{mode} {oid}\t{path}" for mode, oid, path in lines)
        if text:
            await self.run("update-index", "-z", "--index-info", stdin=text, index=index)

    def unlock(self) -> None:
        """What a git that died left on our own index."""
        with contextlib.suppress(FileNotFoundError):
            faults.effect("desk.unlock")
            os.unlink(f"{self.index}.lock")

    async def tree(self) -> str:
        return (await self.run("write-tree")).strip()


@asynccontextmanager
async def desk(shadow: Shadow, home: str, work_tree: str) -> AsyncIterator[Desk]:
    path = scratch.make(home, "salvage")
    try:
        faults.effect("desk.make")
        for name, text in (("HEAD", "ref: refs/heads/none"), ("commondir", shadow.path)):
            with open(os.path.join(path, name), "w", encoding="utf-8") as file:
                file.write(f"{text}\n")
        yield Desk(shadow, path, work_tree)
    finally:
        scratch.drop(path)


def copy_plain(source: str, target: str) -> None:
    """A plain file, with its times. No link: an agent's may lead to a device that never ends, or to what is not its."""
    if os.path.islink(source):
        raise NotPlain(errno.ELOOP, "It is a link", source)
    faults.effect("desk.copy")
    with open(source, "rb", opener=plainly) as reading, open(target, "wb") as writing:
        shutil.copyfileobj(reading, writing)
        seen = os.fstat(reading.fileno())
    os.utime(target, ns=(seen.st_atime_ns, seen.st_mtime_ns))


def _nul(texts: Iterable[str]) -> bytes:
    return b"".join(text.encode(errors="surrogateescape") + b"\0" for text in texts)
