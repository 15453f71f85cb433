"""Which files of a workspace are not as they were at its base, and where its HEAD is: names only, for a result.

An agent may have written the work tree and the git directory: git is hardened, and given up after a while.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from holdfast.base.errors import WorkspaceProblem
from holdfast.base.text import as_text
from holdfast.core.model import Workspace
from holdfast.core.workflows.result import MOST_FILES, Touched
from holdfast.workspaces.git.git import Git
from holdfast.workspaces.git.git_state import LOOKING
from holdfast.workspaces.git.refs import head_of

PATIENCE = 20.0  # seconds for one git
_DIFF = ("diff", "--name-only", "-z", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames")
_STATUS = ("status", "--porcelain", "-z", "--untracked-files=all", "--no-renames", "--ignore-submodules=dirty")


class _WhatChanged:
    def __init__(self, git: Git) -> None:
        self._git = git

    async def __call__(self, workspace: Workspace, leave: Sequence[str], *, is_committed: bool) -> Touched:
        """Never raises for what lies there. `leave`: patterns of files that are not the agent's work. `is_committed`:
        what was left uncommitted is a commit by now, so nobody has to look for it."""
        path, base = workspace.path, workspace.base_commit
        if not os.path.lexists(os.path.join(path, ".git")):
            return Touched()
        try:
            head = head_of(path) or await self._head(path)
            names: list[str] = []
            if head is not None and base is not None and head != base:
                names += (await self._ask(path, {}, *_DIFF, base, head, "--")).split("\0")
            if not is_committed:
                names += await self._uncommitted(path, leave)
        except (WorkspaceProblem, OSError):
            return Touched()
        files = sorted({as_text(name) for name in names if name})
        return Touched(files=tuple(files[:MOST_FILES]), count=len(files), commit=head)

    async def _head(self, path: str) -> str | None:
        """Of a branch that has no commit yet it says nothing."""
        asked = ("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        code, out, _err = await self._git.ask(*asked, cwd=path, env=LOOKING, timeout=PATIENCE)
        return out.strip() if code == 0 else None

    async def _uncommitted(self, path: str, leave: Sequence[str]) -> list[str]:
        env = await self._git.filters_off(path, all_of_them=True)
        all_but = ["--", ".", *(f":(top,glob,exclude){pattern.lstrip('/')}" for pattern in leave)]
        listed = await self._ask(path, env, *_STATUS, *all_but)
        return [entry[3:] for entry in listed.split("\0") if len(entry) > 3]

    async def _ask(self, path: str, env: dict[str, str], *arguments: str) -> str:
        return await self._git.run(*arguments, cwd=path, env={**env, **LOOKING}, timeout=PATIENCE)


touched_by = _WhatChanged
