"""Stashes of an agent in a worktree, told from those of the user and of other agents.

All worktrees share one list of stashes. `git reflog expire` and `git gc` of the user can destroy an agent's stash
there, so a checkpoint keeps it. The message of a stash commit names the branch that it was made on, whatever
`git stash store` wrote into the list. The reflog of the agent's HEAD names the branches and commits where the agent
was.
"""

from __future__ import annotations

import os
import re

from holdfast.workspaces.git.git import Git
from holdfast.workspaces.git.reflogs import read_plain

MOST = 200  # stashes of one list that are looked at, the newest ones
DETACHED = "(no branch)"
_OID = re.compile(r"[0-9a-f]{40,64}")
_MADE_ON = re.compile(r"(?:WIP on|On) (\(no branch\)|[^:]+):")
_MOVED = re.compile(r"checkout: moving from (\S+) to (\S+)$")


async def list_agent_stashes(git: Git, common_dir: str, git_dir: str | None, branch: str | None) -> list[str]:
    """Return the stash commits that the agent of a worktree made, the newest first."""
    commits = [new for _old, new, _message in reversed(_read_log(os.path.join(common_dir, "logs", "refs", "stash")))]
    commits = list(dict.fromkeys(commits))[:MOST]
    if not commits or branch is None:
        return []
    branches, places = {branch}, set()
    for old, new, message in _read_log(os.path.join(git_dir, "logs", "HEAD")) if git_dir is not None else []:
        places |= {old, new}
        moved = _MOVED.match(message)
        branches |= set(moved.groups()) if moved else set()
    asked = ("log", "--no-walk=unsorted", "--ignore-missing", "--format=%H %P%x09%s", "--stdin")
    told = await git.run(*asked, cwd=common_dir, stdin="\n".join(commits).encode())
    return [line.split(" ", 1)[0] for line in told.splitlines() if _is_made_by(line, branches, places)]


def _is_made_by(line: str, branches: set[str], places: set[str]) -> bool:
    """True if a stash was made on a branch of the agent, or on a commit that the agent's HEAD was at, on no branch."""
    names, _tab, subject = line.partition("\t")
    made_on = _MADE_ON.match(subject)
    if made_on is not None and made_on[1] != DETACHED:
        return made_on[1] in branches
    return names.split()[1:2] != [] and names.split()[1] in places


def _read_log(path: str) -> list[tuple[str, str, str]]:
    """Return (old commit, new commit, message) of every entry of a reflog, the oldest first."""
    found = []
    for line in (read_plain(path) or b"").decode(errors="replace").splitlines():
        head, _tab, message = line.partition("\t")
        words = head.split(" ", 2)
        if len(words) == 3 and _OID.fullmatch(words[1]):
            found.append((words[0], words[1], message))
    return found
