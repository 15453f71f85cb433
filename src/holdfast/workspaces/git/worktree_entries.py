"""Our entries under `<common dir>/worktrees`. Dropped one by one, never with `git worktree prune`: that would delete
the entries of the user's own worktrees on disks that happen to be unmounted."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time

from holdfast.base import faults
from holdfast.base.files import NotPlain, listed, plainly
from holdfast.workspaces.git.git import Git
from holdfast.workspaces.names import BRANCH_PREFIX
from holdfast.workspaces.removal.trash import delete_tree
from holdfast.workspaces.snapshots.collect_files import blocks

ASIDE = "holdfast.new-"  # in the common directory, beside `worktrees`, under which git takes everything for an entry
TRIES = 100  # git counts a name up when it is taken; so do we


def can_make_entry(common_dir: str) -> bool:
    """Whether an entry is nothing but the four files that every git since 2.5 writes: no extension of the format (refs
    in tables, a config of each worktree), no sparse checkout to copy, no special permissions. Else git has to do it."""
    if os.path.exists(os.path.join(common_dir, "info", "sparse-checkout")):
        return False
    with open(os.path.join(common_dir, "config"), encoding="utf-8", errors="surrogateescape", opener=plainly) as file:
        settings = file.read().lower()
    return not any(word in settings for word in ("[extensions", "sharedrepository", "[include"))


def make_entry(common_dir: str, path: str, branch: str, lock: str) -> None:
    """A worktree without any files at `path`, which does not exist, on a branch that is checked out nowhere else. The
    caller holds the repo lock and has cleared what an earlier try left."""
    common, aside = os.path.realpath(common_dir), aside_of(common_dir, path)
    target = os.path.join(common, "worktrees", os.path.basename(path))
    faults.effect("entry.make")
    os.makedirs(path)
    link = os.path.join(os.path.realpath(path), ".git")
    os.mkdir(aside)
    for name, content in (("HEAD", f"ref: refs/heads/{branch}"), ("commondir", "../.."), ("gitdir", link)):
        _write(os.path.join(aside, name), f"{content}\n")
    _write(os.path.join(aside, "locked"), lock)
    name = _put_in_place(aside, target)
    _write(link, f"gitdir: {name}\n")
    faults.passed("entry.made")


def aside_of(common_dir: str, path: str) -> str:
    return os.path.join(common_dir, ASIDE + os.path.basename(path))


def drop_aside(common_dir: str, path: str) -> None:
    """What a making that was killed left. The name is the workspace's own."""
    if os.path.lexists(aside_of(common_dir, path)):
        delete_tree(aside_of(common_dir, path))


def _put_in_place(aside: str, target: str) -> str:
    for number in range(TRIES):
        name = f"{target}{number or ''}"
        os.makedirs(os.path.dirname(target), exist_ok=True)  # the user's git removes it when it is empty
        try:
            faults.effect("entry.rename")
            os.rename(aside, name)
        except FileNotFoundError:
            continue
        except OSError:
            if not os.path.lexists(name):
                raise
            continue
        return name
    raise FileExistsError(f"{target} and {TRIES} names like it are taken")


def _write(path: str, content: str) -> None:
    faults.effect("entry.write")
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(content)


STALE_AFTER = 1.0  # seconds; git holds the lock of a ref for milliseconds
HELD_PATIENCE = 10.0  # ... and is waited for, when somebody's git is at work
OUR_LOCK = "holdfast "  # how the reason begins for which entries of ours are locked
_UNBORN = {"HEAD", "commondir", "gitdir", "locked"}  # with an empty `gitdir`, a power cut can leave them too


def entry_of(common_dir: str, path: str) -> str | None:
    """The admin directory whose worktree is at `path`, or None."""
    folder = os.path.join(common_dir, "worktrees")
    likely = os.path.basename(path)
    try:
        names = sorted(os.listdir(folder), key=lambda name: (not name.startswith(likely), name))
    except FileNotFoundError:
        return None
    for name in names:
        entry = os.path.join(folder, name)
        if worktree_of(entry) == os.path.realpath(path):
            return entry
    return None


def worktree_of(entry: str) -> str | None:
    """The path of the worktree that an admin directory stands for."""
    try:
        link = _content(os.path.join(entry, "gitdir")).rstrip("\n")
    except (NotADirectoryError, IsADirectoryError, NotPlain):
        return None  # nothing that git made
    # A newer git can write it relative to the entry (worktree.useRelativePaths).
    return os.path.realpath(os.path.join(entry, os.path.dirname(link))) if link else None


async def drop_branch_lock(git: Git, common_dir: str, branch: str | None) -> None:
    """R-TREE-15: what a killed git left. Only called when no process of the task lives and no helper of ours is on it.
    The user's own gc locks every branch for a moment, ours too."""
    if branch is not None and branch.startswith(BRANCH_PREFIX):
        for folder in ("refs/heads", "logs/refs/heads"):
            await drop_stale_lock(git, common_dir, os.path.join(common_dir, folder, f"{branch}.lock"))


async def drop_stale_lock(git: Git, common_dir: str, lock: str) -> None:
    """Remove a lock that a git of ours may have left; one that is young is watched before it goes.

    The user's gc that waits for the processor, its lock taken from it, deletes what was committed meanwhile: while a
    git of somebody else is at work in the repository, the lock stays, and whoever needs it says so.
    """
    seen, since = _identity(lock), time.monotonic()
    while seen is not None and time.time() - seen[1] < STALE_AFTER and time.monotonic() - since < STALE_AFTER:
        await asyncio.sleep(0.02)
        if (now := _identity(lock)) != seen:
            seen, since = now, time.monotonic()
    while seen is not None and git.may_be_held(lock, (common_dir, os.path.dirname(common_dir))):
        if time.monotonic() - since > HELD_PATIENCE:
            return
        await asyncio.sleep(0.1)
        seen = _identity(lock)
    if seen is not None:
        with contextlib.suppress(OSError):
            faults.effect("lock.drop")
            os.unlink(lock)


def _identity(path: str) -> tuple[int, float] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime


async def drop_entry_locks(git: Git, common_dir: str, entry: str) -> None:
    """R-TREE-15: `index.lock` and the like, at any depth of our own entry; links are not followed. A pipe there holds
    nothing, but every git that looks at all worktrees, the user's too, would wait at it for ever."""
    waiting = [entry]
    while waiting:
        folder = waiting.pop()
        with contextlib.suppress(OSError), os.scandir(folder) as found:
            for item in found:
                if item.is_dir(follow_symlinks=False):
                    waiting.append(item.path)
                elif item.name.endswith(".lock"):
                    await drop_stale_lock(git, common_dir, item.path)
                elif blocks(item):
                    faults.effect("admin.pipe")
                    os.unlink(item.path)


def drop_entry(common_dir: str, path: str) -> bool:
    """Remove our admin entry, locked or not, whole or half made. The caller holds the repo lock."""
    drop_aside(common_dir, path)
    entry = entry_of(common_dir, path)
    if entry is None:
        return _drop_unborn(common_dir, path)
    drop(common_dir, entry)
    _drop_unborn(common_dir, path)
    return True


def drop(common_dir: str, entry: str) -> None:
    """Remove an admin entry, of which it is known that it is ours. The caller holds the repo lock."""
    faults.effect("admin.drop")
    # `gitdir` goes last: while it is there a repetition finds the entry.
    for name in os.listdir(entry):
        if name != "gitdir":
            delete_tree(os.path.join(entry, name))
    delete_tree(entry)
    with contextlib.suppress(OSError):
        os.rmdir(os.path.join(common_dir, "worktrees"))  # as git does, when it was the last
    faults.passed("admin.dropped")


def is_checked_out(common_dir: str, branch: str, *, but_locked: bool = False) -> bool:
    """Whether the checkout itself or any worktree, whoever's, is on that branch. `but_locked`: ours are locked, each on
    a branch of its own, and after a storm there are hundreds."""
    worktrees = os.path.join(common_dir, "worktrees")
    entries = [os.path.join(worktrees, name) for name in listed(worktrees)]
    if but_locked:
        entries = [entry for entry in entries if not os.path.lexists(os.path.join(entry, "locked"))]
    heads = [common_dir, *entries]
    for folder in heads:
        with (
            contextlib.suppress(OSError),
            open(os.path.join(folder, "HEAD"), encoding="utf-8", errors="replace", opener=plainly) as file,
        ):
            if file.read().strip() == f"ref: refs/heads/{branch}":
                return True
    return False


def _drop_unborn(common_dir: str, path: str) -> bool:
    """An entry that stands for no worktree: git was killed between making it and writing where it leads, or we were
    between its files and its directory. Its name is the workspace's, and nothing is in it but a lock of ours."""
    folder = os.path.join(common_dir, "worktrees")
    ours = re.compile(re.escape(os.path.basename(path)) + r"\d*")  # git counts up when a name is taken
    dropped = [_drop_if_unborn(os.path.join(folder, name)) for name in listed(folder) if ours.fullmatch(name)]
    return any(dropped)


def _drop_if_unborn(entry: str) -> bool:
    if not os.path.isdir(entry) or set(listed(entry)) - _UNBORN or _content(os.path.join(entry, "gitdir")):
        return False
    lock = _content(os.path.join(entry, "locked"))
    if lock and not lock.startswith(OUR_LOCK):
        return False
    for name in sorted(_UNBORN):
        delete_tree(os.path.join(entry, name))
    with contextlib.suppress(OSError):
        faults.effect("admin.rmdir")
        os.rmdir(entry)
        return True
    return False


def _content(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", opener=plainly) as file:
            return file.read()
    except FileNotFoundError:
        return ""
