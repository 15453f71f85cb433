"""Our branches, made and deleted as files: each call of git costs a process, and a killed one may leave a lock.

`git update-ref -d` locks all packed refs of the repository, even for a branch that is not packed. If git is killed, the
lock stays, and from then on no branch can be deleted there and no garbage collected. So a branch that is only a file is
deleted under its own lock, as git would do it. A packed branch needs git. Before that call we write a note, which
shows that a lock left behind is ours.
"""

from __future__ import annotations

import contextlib
import os

from holdfast.base import faults
from holdfast.workspaces.git import refs
from holdfast.workspaces.git.git import Git, GitFailed
from holdfast.workspaces.git.repo_lock import hold_repo_lock
from holdfast.workspaces.git.worktree_entries import drop_branch_lock, drop_stale_lock
from holdfast.workspaces.names import DELETING_NOTE


def create_branch(common_dir: str, branch: str, commit: str) -> bool:
    """Make a branch that does not exist. False: nothing was made, and the caller has to let git make the branch or
    report why it cannot.

    The caller knows that refs are files here, and holds the repo lock.
    """
    ref = f"refs/heads/{branch}"
    path = os.path.join(common_dir, ref)
    if not refs.is_commit_id(commit) or refs.is_blocked_by_packed(common_dir, ref):
        return False
    try:
        faults.effect("branch.make")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        lock = os.open(f"{path}.lock", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except OSError:
        return False  # a folder that the user's git is removing, or a file where a folder should be
    try:
        with open(lock, "w", encoding="ascii") as file:
            file.write(f"{commit}\n")
        if os.path.lexists(path):
            raise FileExistsError(path)
        faults.effect("branch.name")
        os.rename(f"{path}.lock", path)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{path}.lock")
        return False
    faults.passed("branch.made")
    return True


async def delete_branch(git: Git, common_dir: str, ref: str, tip: str) -> None:
    """Delete the branch if it is still at `tip`. Otherwise git fails with the reason."""
    async with hold_repo_lock(common_dir):
        await drop_deletion_locks(git, common_dir)
        await drop_branch_lock(git, common_dir, ref.removeprefix("refs/heads/"))  # left by an earlier, killed deletion
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
                os.unlink(note)  # git ended by itself, so a lock that exists now is not ours
            raise
        os.unlink(note)


async def drop_deletion_locks(git: Git, common_dir: str) -> None:
    """Remove the locks that a killed deletion of ours left. The caller holds the repo lock, so no deletion runs."""
    note = os.path.join(common_dir, DELETING_NOTE)
    if os.path.lexists(note):
        for name in ("packed-refs.new", "packed-refs.lock"):  # git writes the first while it holds the second
            if _is_younger(os.path.join(common_dir, name), note):
                await drop_stale_lock(git, common_dir, os.path.join(common_dir, name))
        faults.effect("branch.heal")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(note)


def _is_younger(lock: str, note: str) -> bool:
    """True if the lock is not older than our note. An older lock is not ours."""
    with contextlib.suppress(FileNotFoundError):
        return os.lstat(lock).st_mtime_ns >= os.lstat(note).st_mtime_ns
    return False


def _delete_file(common_dir: str, ref: str, tip: str) -> bool:
    """Delete a branch that is only a file. False: the file is locked, or the branch is (also) packed or elsewhere."""
    path = os.path.join(common_dir, ref)
    faults.effect("branch.lock")
    try:
        os.close(os.open(f"{path}.lock", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
    except OSError:
        return False
    try:
        if not os.path.isfile(path) or not refs.is_only_loose(common_dir, ref, tip):
            return False
        faults.effect("branch.unlink")
        os.unlink(path)
        _drop_reflog(common_dir, ref)
    finally:
        os.unlink(f"{path}.lock")
    for folder in (os.path.dirname(path), os.path.dirname(os.path.join(common_dir, "logs", ref))):
        with contextlib.suppress(OSError):
            os.rmdir(folder)  # git also removes a folder that has become empty
    return not refs.is_packed(common_dir, ref)  # the user's git may have packed the branch meanwhile


def _drop_reflog(common_dir: str, ref: str) -> None:
    with contextlib.suppress(OSError):
        faults.effect("branch.reflog")
        os.unlink(os.path.join(common_dir, "logs", ref))
