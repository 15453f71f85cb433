"""The changes of a workspace since its base: file names for a result, and a short extract for the next agent.

The extract covers commits, uncommitted files and new files. Nothing is written to the repository: new files are entered
by name only, into a copy of the index. An agent may have written the work tree, the git directory and, in a clone, the
repository itself. So git runs hardened and with a deadline.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence

from holdfast.base import faults
from holdfast.base.concurrency import run_in_thread
from holdfast.base.errors import WorkspaceProblem
from holdfast.base.text import make_text
from holdfast.core.model import Strategy, Workspace
from holdfast.core.workflows.handover import ChangesSoFar
from holdfast.core.workflows.result import MOST_FILES, ChangedFiles
from holdfast.workspaces import scratch
from holdfast.workspaces.git.clone_git_dir import trust_clone_git_dir
from holdfast.workspaces.git.git import Git
from holdfast.workspaces.git.git_state import READ_ONLY_ENV
from holdfast.workspaces.git.index_entries import ENTER_FILES, LIST_NEW_FILES, empty_entries
from holdfast.workspaces.git.refs import find_git_dir, read_head
from holdfast.workspaces.snapshots.private_index import copy_plain

_DIFF = ("diff", "--name-only", "-z", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames")
_STATUS = ("status", "--porcelain", "-z", "--untracked-files=all", "--no-renames", "--ignore-submodules=dirty")


class TouchedFiles:
    """A reader of the names of a workspace's changed files, for the result of a task."""

    def __init__(self, git: Git) -> None:
        self._git = git

    async def __call__(self, workspace: Workspace, leave: Sequence[str], *, is_committed: bool) -> ChangedFiles:
        """Return the files that differ from the base, and the commit of HEAD. Never raises for the workspace's content.

        `leave`: patterns of files that are not the agent's work. `is_committed`: the leftovers are already committed,
        so uncommitted files are not listed.
        """
        path, base = workspace.path, workspace.base_commit
        git_dir = find_git_dir(path)
        if git_dir is None or not os.path.isfile(os.path.join(git_dir, "HEAD")):
            return ChangedFiles()  # git would wait for a pipe
        try:
            await run_in_thread(trust_clone_git_dir, workspace)
            head = read_head(path) or await self._head(path)
            names: list[str] = []
            if head is not None and base is not None and head != base:
                names += (await self._ask(path, {}, *_DIFF, base, head, "--")).split("\0")
            if not is_committed:
                names += await self._uncommitted(path, leave)
        except (WorkspaceProblem, OSError):
            return ChangedFiles()
        files = sorted({make_text(name) for name in names if name})
        # In the user's own checkout, changes may be the user's.
        is_known = base is not None and (workspace.strategy is not Strategy.NONE or not files)
        count = len(files) if is_known else None
        return ChangedFiles(files=tuple(files[:MOST_FILES]), count=count, commit=head)

    async def _head(self, path: str) -> str | None:
        """Return the commit of HEAD, or None on a branch without a commit."""
        asked = ("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        code, out, _err = await self._git.ask(*asked, cwd=path, env=READ_ONLY_ENV, timeout=PATIENCE)
        return out.strip() if code == 0 else None

    async def _uncommitted(self, path: str, leave: Sequence[str]) -> list[str]:
        env = await self._git.disable_filters(path, all_of_them=True)
        all_but = ["--", ".", *(f":(top,glob,exclude){pattern.lstrip('/')}" for pattern in leave)]
        listed = await self._ask(path, env, *_STATUS, *all_but)
        return [entry[3:] for entry in listed.split("\0") if len(entry) > 3]

    async def _ask(self, path: str, env: dict[str, str], *arguments: str) -> str:
        return await self._git.run(*arguments, cwd=path, env={**env, **READ_ONLY_ENV}, timeout=PATIENCE)


touched_by = TouchedFiles


MOST_COMMITS = 30
MOST_SHOWN_FILES = 100  # named one by one; further files are only counted
MOST_LINES = 2000  # added and removed lines of all files whose diff is read
PATIENCE = 20.0  # seconds for one git call
# A larger file counts as binary, because its diff would use up all the space.
_SETTINGS = ("core.bigFileThreshold=64k", "log.showSignature=false")


class ChangesReader:
    """A reader of a task's changes so far: it makes a short extract for the task's next agent."""

    def __init__(self, home: str, git: Git) -> None:
        self._home = home
        self._git = git

    async def read(self, workspace: Workspace, leave: Sequence[str] = ()) -> ChangesSoFar:
        """Return the changes. Never raises for the workspace's content, because the next agent can look at it directly.

        `leave`: patterns of files that we copied in and that are not read. Otherwise a secret that git does not ignore
        would be shown to the next agent.
        """
        if not os.path.lexists(os.path.join(workspace.path, ".git")):
            return ChangesSoFar(note="The workspace is not a git repository, so its changes are not known.")
        folder = scratch.make_scratch(self._home, "sofar")  # no await before the `try` that deletes it
        try:
            return await self._read(workspace, folder, leave)
        except (WorkspaceProblem, OSError) as error:
            return ChangesSoFar(note=f"The changes could not be read: {error}")
        finally:
            await run_in_thread(scratch.drop_scratch, folder)

    async def _read(self, workspace: Workspace, folder: str, leave: Sequence[str]) -> ChangesSoFar:
        await run_in_thread(trust_clone_git_dir, workspace)
        path, base = workspace.path, workspace.base_commit or "HEAD"
        env = await self._environment(path, folder)
        all_but = ["--", ".", *(f":(top,glob,exclude){pattern.lstrip('/')}" for pattern in leave)]
        new = empty_entries(await self._ask(path, env, *LIST_NEW_FILES, *all_but), len(base) if base != "HEAD" else 40)
        if new:
            await self._git.ask(*ENTER_FILES, cwd=path, env=env, stdin=new, timeout=PATIENCE)
        log = ("log", "--no-color", "--no-decorate", "--no-show-signature", f"--max-count={MOST_COMMITS}")
        commits = await self._ask(path, env, *log, "--format=%h %s", f"{base}..HEAD")
        counted = _parse_numstat(await self._diff(path, env, "--numstat", "-z", base, *all_but))
        small = _select_small(counted)
        env["GIT_LITERAL_PATHSPECS"] = "1"
        diff = await self._diff(path, env, "--unified=3", base, "--", *small) if small else ""
        is_users = workspace.strategy is Strategy.NONE
        return ChangesSoFar(
            commits=[make_text(line) for line in commits.splitlines()],
            files=_format_file_list(counted),
            diff=make_text(diff),
            left_out=len(counted) - len(small),
            note="The directory is the user's own checkout: some changes may not be the agent's." if is_users else "",
        )

    async def _environment(self, path: str, folder: str) -> dict[str, str]:
        index, objects = os.path.join(folder, "index"), os.path.join(folder, "objects")
        places = ("rev-parse", "--path-format=absolute", "--absolute-git-dir", "--git-path", "objects")
        git_dir, known = (await self._ask(path, {}, *places)).splitlines()
        theirs = os.path.join(git_dir, "index")  # git itself would name what a link in its place leads to
        faults.effect("sofar.index")
        os.mkdir(objects)
        with contextlib.suppress(FileNotFoundError):
            await run_in_thread(copy_plain, theirs, index)
        return {
            **await self._git.disable_filters(path, all_of_them=True),
            "GIT_INDEX_FILE": index,
            "GIT_OBJECT_DIRECTORY": objects,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": known,
            **READ_ONLY_ENV,
        }

    async def _diff(self, path: str, env: Mapping[str, str], *arguments: str) -> str:
        plain = ("--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--ignore-submodules=dirty")
        return await self._ask(path, env, "diff", *plain, *arguments)

    async def _ask(self, path: str, env: Mapping[str, str], *arguments: str) -> str:
        return await self._git.run(*arguments, cwd=path, env=env, settings=_SETTINGS, timeout=PATIENCE)


def _parse_numstat(numstat: str) -> list[tuple[str, int | None, int]]:
    """Return (path, lines added, lines removed). None for the lines added: the file is binary or too large."""
    found = []
    for entry in numstat.split("\0"):
        added, _, rest = entry.partition("\t")
        removed, _, path = rest.partition("\t")
        if path:
            found.append((path, int(added) if added.isdecimal() else None, int(removed) if removed.isdecimal() else 0))
    return found


def _select_small(counted: Sequence[tuple[str, int | None, int]]) -> list[str]:
    """Return the files whose diff is read: in the given order, until the line limit is used up."""
    chosen: list[str] = []
    left = MOST_LINES
    for path, added, removed in counted:
        if added is not None and added + removed <= left and len(chosen) < MOST_SHOWN_FILES:
            chosen.append(path)
            left -= added + removed
    return chosen


def _format_file_list(counted: Sequence[tuple[str, int | None, int]]) -> list[str]:
    lines = [
        f"{make_text(path)}  {'binary or large' if added is None else f'+{added} -{removed}'}"
        for path, added, removed in counted[:MOST_SHOWN_FILES]
    ]
    more = len(counted) - MOST_SHOWN_FILES
    return [*lines, f"and {more} more file(s)"] if more > 0 else lines
