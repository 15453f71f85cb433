"""Deleting a branch of ours so that a kill leaves no lock in anybody's way.

`git update-ref -d` locks all packed refs of the repository, also for a branch that is not packed. Killed, it leaves
that lock, and from then on nobody can delete a branch there or collect garbage. A branch that is a file of its own goes
under its own lock, as git would do it; a packed one needs git, under a note that says whose lock it is if one is left.
"""

from __future__ import annotations

import contextlib
import os

from holdfast.base import faults
from holdfast.workspaces.git import refs
from holdfast.workspaces.git.git import Git, GitFailed
from holdfast.workspaces.git.repo_lock import repo_lock
from holdfast.workspaces.git.worktree_entries import drop_branch_lock, drop_stale_lock
from holdfast.workspaces.names import DELETING_NOTE


async def delete_branch(git: Git, common_dir: str, ref: str, tip: str) -> None:
    """Delete it if it still stands at `tip`; else git says what is wrong."""
    async with repo_lock(common_dir):
        await heal(git, common_dir)
        await drop_branch_lock(git, common_dir, ref.removeprefix("refs/heads/"))  # of an earlier try that was killed
        if _delete_file(common_dir, ref, tip):
            return
        note = os.path.join(common_dir, DELETING_NOTE)
        faults.effect("branch.note")
        with open(note, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(f"{ref}\n")
        try:
            await git.run("update-ref", "-d", ref, tip, cwd=common_dir)
        except GitFailed as error:
            if error.answered:
                os.unlink(note)  # it came to its end: a lock that is there now is somebody else's
            raise
        os.unlink(note)


async def heal(git: Git, common_dir: str) -> None:
    """Remove what a deletion of ours that was killed left locked. The caller holds the repo lock: none is under way."""
    note = os.path.join(common_dir, DELETING_NOTE)
    if os.path.lexists(note):
        for name in ("packed-refs.new", "packed-refs.lock"):  # under the second, git writes the first
            if _is_younger(os.path.join(common_dir, name), note):
                await drop_stale_lock(git, common_dir, os.path.join(common_dir, name))
        faults.effect("branch.heal")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(note)


def _is_younger(lock: str, note: str) -> bool:
    """One that was there before our deletion began is not ours."""
    with contextlib.suppress(FileNotFoundError):
        return os.lstat(lock).st_mtime_ns >= os.lstat(note).st_mtime_ns
    return False


def _delete_file(common_dir: str, ref: str, tip: str) -> bool:
    """False: that is not all there is to it."""
    path = os.path.join(common_dir, ref)
    faults.effect("branch.lock")
    try:
        os.close(os.open(f"{path}.lock", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
    except OSError:
        return False
    try:
        if not os.path.isfile(path) or not refs.is_only_a_file(common_dir, ref, tip):
            return False
        faults.effect("branch.unlink")
        os.unlink(path)
        _drop_reflog(common_dir, ref)
    finally:
        os.unlink(f"{path}.lock")
    for folder in (os.path.dirname(path), os.path.dirname(os.path.join(common_dir, "logs", ref))):
        with contextlib.suppress(OSError):
            os.rmdir(folder)  # as git does, when it was the last
    return not refs.is_packed(common_dir, ref)  # somebody may have packed it meanwhile


def _drop_reflog(common_dir: str, ref: str) -> None:
    with contextlib.suppress(OSError):
        faults.effect("branch.reflog")
        os.unlink(os.path.join(common_dir, "logs", ref))
