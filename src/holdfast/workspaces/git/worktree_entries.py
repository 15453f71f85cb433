"""Our entries under `<common dir>/worktrees`: created whole, and dropped one by one.

`git worktree add` first writes zeros into the entry's HEAD, and the branch some milliseconds later. A `gc`, `fetch` or
`fsck` of the user in between fails with "bad object worktrees/…/HEAD", and an automatic gc repeats the error for a day.
A git that is killed in between leaves an entry that names no worktree. So we write an entry elsewhere and rename it
into place (ADR 0017).

`git worktree prune` is never used. It would delete the entries of the user's own worktrees on unmounted disks.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
from collections.abc import Iterator

from holdfast.base import faults
from holdfast.base.files import NotRegularFile, listed, open_regular_file
from holdfast.workspaces.git.config_file import allow, parse_config, render_config
from holdfast.workspaces.git.git import Git
from holdfast.workspaces.names import BRANCH_PREFIX
from holdfast.workspaces.removal.trash import delete_tree
from holdfast.workspaces.snapshots.collect_files import may_block

ASIDE = "holdfast.new-"  # in the common directory, not in `worktrees`: git takes everything there for an entry
_SPARSE = ("core.sparsecheckout", "core.sparsecheckoutcone", "index.sparse")
TRIES = 100  # if a name is taken, we append a number, as git does


def can_make_entry(common_dir: str) -> bool:
    """True if an entry needs only the four files that every git since 2.5 writes. Otherwise git must create it.

    The repository then has no format extension (reftables, a config per worktree), no sparse checkout to copy, and no
    special permissions.
    """
    if os.path.exists(os.path.join(common_dir, "info", "sparse-checkout")):
        return False
    with open(
        os.path.join(common_dir, "config"), encoding="utf-8", errors="surrogateescape", opener=open_regular_file
    ) as file:
        settings = file.read().lower()
    return not any(word in settings for word in ("[extensions", "sharedrepository", "[include"))


def make_entry(common_dir: str, path: str, branch: str, lock: str) -> None:
    """Create a worktree without files at `path`, which does not exist, on a branch that is checked out nowhere else.

    The caller holds the repo lock and has removed the leftovers of earlier tries.
    """
    common, aside = os.path.realpath(common_dir), aside_path(common_dir, path)
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


def prepare_for_git(common_dir: str) -> None:
    """Make the folder of the entries. git sees the folder through a link in a config view, and could not create it
    through that link."""
    os.makedirs(os.path.join(common_dir, "worktrees"), exist_ok=True)


def complete_entry(common_dir: str, path: str) -> None:
    """Complete an entry that git made with a config view: the worktree names the entry by the repository's own path.

    In a repository with a configuration per worktree, the entry gets the settings of a sparse checkout.
    """
    entry = find_entry(common_dir, path)
    if entry is None:
        return
    shared = os.path.join(common_dir, "config.worktree")
    if os.path.isfile(shared) and os.path.exists(os.path.join(entry, "info", "sparse-checkout")):
        with open(shared, encoding="utf-8", errors="surrogateescape", opener=open_regular_file) as file:
            found = [setting for setting in allow(parse_config(file.read())) if setting[0] in _SPARSE]
        _write(os.path.join(entry, "config.worktree"), render_config(found))
    _write(os.path.join(path, ".git"), f"gitdir: {os.path.realpath(entry)}\n")


def aside_path(common_dir: str, path: str) -> str:
    return os.path.join(common_dir, ASIDE + os.path.basename(path))


def drop_half_made(common_dir: str, path: str) -> None:
    """Delete an entry that a killed `make_entry` left outside `worktrees`. Its name contains the workspace's name."""
    if os.path.lexists(aside_path(common_dir, path)):
        delete_tree(aside_path(common_dir, path))


def _put_in_place(aside: str, target: str) -> str:
    for number in range(TRIES):
        name = f"{target}{number or ''}"
        os.makedirs(os.path.dirname(target), exist_ok=True)  # the user's git removes the folder when it is empty
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


STALE_AFTER = 1.0  # seconds; git holds the lock of a ref only for milliseconds
HELD_PATIENCE = 10.0  # seconds to wait while another program's git is running in the repository
LOCK_REASON_PREFIX = "holdfast "  # the beginning of the lock reason in our entries
_INCOMPLETE = {"HEAD", "commondir", "gitdir", "locked"}  # with an empty `gitdir`; a power cut can leave all four files


def find_entry(common_dir: str, path: str) -> str | None:
    """Return the entry whose worktree is at `path`, or None."""
    folder = os.path.join(common_dir, "worktrees")
    likely = os.path.basename(path)
    try:
        names = sorted(os.listdir(folder), key=lambda name: (not name.startswith(likely), name))
    except FileNotFoundError:
        return None
    for name in names:
        entry = os.path.join(folder, name)
        if read_worktree_path(entry) == os.path.realpath(path):
            return entry
    return None


def read_worktree_path(entry: str) -> str | None:
    """Return the path of the worktree that an entry names, or None."""
    try:
        link = _content(os.path.join(entry, "gitdir")).rstrip("\n")
    except (NotADirectoryError, IsADirectoryError, NotRegularFile):
        return None  # not created by git
    # A newer git can write the path relative to the entry (worktree.useRelativePaths).
    return os.path.realpath(os.path.join(entry, os.path.dirname(link))) if link else None


async def drop_branch_lock(git: Git, common_dir: str, branch: str | None) -> None:
    """Remove the branch lock that a killed git left (R-TREE-15).

    Call this only when no process of the task lives and no helper of ours works on the branch. The user's own gc locks
    every branch for a moment, including ours.
    """
    if branch is not None and branch.startswith(BRANCH_PREFIX):
        for folder in ("refs/heads", "logs/refs/heads"):
            await drop_stale_lock(git, common_dir, os.path.join(common_dir, folder, f"{branch}.lock"))


async def drop_stale_lock(git: Git, common_dir: str, lock: str) -> None:
    """Remove a lock that a git of ours may have left. A young lock is watched first.

    If the user's gc loses its lock while it waits for the processor, it deletes commits that were made meanwhile. So
    the lock stays while another program's git runs in the repository. Code that needs the lock then fails with its own
    error.
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
    """Remove `index.lock` and other locks at any depth of our entry, without following links (R-TREE-15).

    Pipes are removed too. They hold no data, but every git that reads all worktrees, the user's too, would wait for
    them forever.
    """
    waiting = [entry]
    while waiting:
        folder = waiting.pop()
        with contextlib.suppress(OSError), os.scandir(folder) as found:
            for item in found:
                if item.is_dir(follow_symlinks=False):
                    waiting.append(item.path)
                elif item.name.endswith(".lock"):
                    await drop_stale_lock(git, common_dir, item.path)
                elif may_block(item):
                    faults.effect("admin.pipe")
                    os.unlink(item.path)


def drop_entry(common_dir: str, path: str) -> bool:
    """Remove the entry of the workspace at `path`, locked or not, whole or half-made. Caller holds the repo lock."""
    drop_half_made(common_dir, path)
    entry = find_entry(common_dir, path)
    if entry is None:
        return _drop_incomplete(common_dir, path)
    drop_known_entry(common_dir, entry)
    _drop_incomplete(common_dir, path)
    return True


def drop_known_entry(common_dir: str, entry: str) -> None:
    """Remove an entry that is known to be ours. The caller holds the repo lock."""
    faults.effect("admin.drop")
    # Delete `gitdir` last: as long as it exists, a repeated call finds the entry.
    for name in os.listdir(entry):
        if name != "gitdir":
            delete_tree(os.path.join(entry, name))
    delete_tree(entry)
    with contextlib.suppress(OSError):
        os.rmdir(os.path.join(common_dir, "worktrees"))  # git also removes the folder after the last entry
    faults.passed("admin.dropped")


def is_checked_out(common_dir: str, branch: str, *, but_locked: bool = False) -> bool:
    """True if the main checkout or any worktree, including the user's, is on that branch.

    `but_locked`: skip locked entries. Ours are locked, each on its own branch, and a crash storm leaves hundreds.
    """
    worktrees = os.path.join(common_dir, "worktrees")
    entries = [os.path.join(worktrees, name) for name in listed(worktrees)]
    if but_locked:
        entries = [entry for entry in entries if not os.path.lexists(os.path.join(entry, "locked"))]
    heads = [common_dir, *entries]
    for folder in heads:
        with (
            contextlib.suppress(OSError),
            open(os.path.join(folder, "HEAD"), encoding="utf-8", errors="replace", opener=open_regular_file) as file,
        ):
            if file.read().strip() == f"ref: refs/heads/{branch}":
                return True
    return False


def list_checkouts(common_dir: str, checkout: str | None = None) -> Iterator[tuple[str, str]]:
    """Yield (path of a work tree, its git directory). `checkout`: the main work tree, if its `.git` is elsewhere."""
    settings = dict(parse_config(_content(os.path.join(common_dir, "config"))))
    if settings.get("core.bare", "").lower() not in ("true", "yes", "on", "1"):
        yield (
            os.path.dirname(common_dir) if os.path.basename(common_dir) == ".git" else checkout or common_dir,
            common_dir,
        )
    folder = os.path.join(common_dir, "worktrees")
    for entry in (os.path.join(folder, name) for name in listed(folder)):
        path = read_worktree_path(entry)
        if path is not None:
            yield path, entry


def _drop_incomplete(common_dir: str, path: str) -> bool:
    """Remove entries of the workspace that name no worktree.

    Git was killed between creating the entry and writing `gitdir`, or we were killed between deleting the files and
    the directory. The entry has the workspace's name, and holds at most a lock of ours.
    """
    folder = os.path.join(common_dir, "worktrees")
    ours = re.compile(re.escape(os.path.basename(path)) + r"\d*")  # git appends a number to a name that is taken
    dropped = [_drop_if_incomplete(os.path.join(folder, name)) for name in listed(folder) if ours.fullmatch(name)]
    return any(dropped)


def _drop_if_incomplete(entry: str) -> bool:
    if not os.path.isdir(entry) or set(listed(entry)) - _INCOMPLETE or _content(os.path.join(entry, "gitdir")):
        return False
    lock = _content(os.path.join(entry, "locked"))
    if lock and not lock.startswith(LOCK_REASON_PREFIX):
        return False
    for name in sorted(_INCOMPLETE):
        delete_tree(os.path.join(entry, name))
    with contextlib.suppress(OSError):
        faults.effect("admin.rmdir")
        os.rmdir(entry)
        return True
    return False


def _content(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", opener=open_regular_file) as file:
            return file.read()
    except FileNotFoundError:
        return ""
