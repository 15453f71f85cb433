"""Reclaim of disk space from salvages and checkpoints that were dropped.

A reclaim needs the shadow's lock exclusively. A salvage that begins meanwhile waits. If a salvage is already running,
the reclaim is put off. After a kill at any point, the reclaim is done again.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping

from holdfast.base import faults
from holdfast.base.errors import Unavailable
from holdfast.base.files import listed
from holdfast.core.model import Repo
from holdfast.workspaces.git.git import Git, GitFailed
from holdfast.workspaces.git.repo_lock import PATIENCE, hold_file_lock
from holdfast.workspaces.names import CHECKPOINT_REFS, SALVAGE_REFS
from holdfast.workspaces.snapshots.shadow_repo import ShadowRepo

# In total less than the time for which a salvage waits for the lock: the salvage must not fail because of a reclaim.
REPACK, PRUNE = PATIENCE * 0.6, PATIENCE * 0.25

_NUMBER = re.compile(r"\d+(-\d+)?")  # checkpoint and fence; without a fence: written by an older Holdfast


class Reclaimer:
    """The remover of dropped salvages and checkpoints from the shadow repositories."""

    def __init__(self, home: str, git: Git) -> None:
        self._home = home
        self._git = git

    async def reclaim(self, repo: Repo, refs: Mapping[str, str]) -> bool:
        """Delete the refs, if they still name the dropped commits, and the objects that only they held. False: the
        shadow is in use."""
        shadow = ShadowRepo(self._home, repo, self._git)
        if not os.path.isdir(shadow.path):
            return True
        try:
            async with hold_file_lock(shadow.lock, patience=0.0):
                for ref, commit in refs.items():
                    await self._delete(shadow, ref, commit)
                faults.effect("reclaim.repack")
                await self._run_cleanup(shadow.path, "repack", "-a", "-d", "-l", "--quiet", timeout=REPACK)
                await self._run_cleanup(shadow.path, "prune", "--expire=now", timeout=PRUNE)
                faults.passed("reclaim.reclaimed")
        except Unavailable:
            return False  # a salvage or a restore is running
        return True

    def checkpoint_refs(self, repo: Repo) -> dict[str, str]:
        """Return ref → commit from the ref files. Nothing of ours packs the refs of a shadow."""
        shadow = ShadowRepo(self._home, repo, self._git)
        found = {}
        top = os.path.join(shadow.path, CHECKPOINT_REFS)
        for task in listed(top):
            for number in listed(os.path.join(top, task)):
                with contextlib.suppress(OSError), open(os.path.join(top, task, number), encoding="ascii") as file:
                    if _NUMBER.fullmatch(number):  # not a lock of git's
                        found[f"{CHECKPOINT_REFS}{task}/{number}"] = file.read(200).strip()
        return found

    async def _delete(self, shadow: ShadowRepo, ref: str, commit: str) -> None:
        assert ref.startswith((SALVAGE_REFS, CHECKPOINT_REFS))
        with contextlib.suppress(FileNotFoundError):  # left by a killed git: we hold the shadow exclusively
            faults.effect("reclaim.unlock")
            os.unlink(os.path.join(shadow.path, f"{ref}.lock"))
        faults.effect("reclaim.ref")
        code, out, err = await shadow.ask("for-each-ref", "--format=%(objectname)", ref)
        if code != 0:
            raise GitFailed(["for-each-ref", ref], code, err)
        if out.strip() == commit:  # otherwise the ref is gone, or names work that was saved since
            await shadow.run("update-ref", "-d", ref, commit)

    async def _run_cleanup(self, path: str, *arguments: str, timeout: float) -> None:
        """Run a git clean-up command and ignore its failure, because the next reclaim repeats it."""
        await self._git.ask(*arguments, cwd=path, env={"GIT_DIR": path}, timeout=timeout)
