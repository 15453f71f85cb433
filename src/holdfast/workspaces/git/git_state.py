"""State of a git directory besides the index: an operation under way, and commits that no ref reaches.

An operation is a merge, a rebase or the like. This state is removed together with the worktree, so it is saved too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

from holdfast.base.files import open_beneath
from holdfast.workspaces.git.git import Git, GitFailed

# The operation under way, by the file or directory that shows it.
OPERATIONS: Mapping[str, str] = {
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "sequencer": "sequence of commits",
    "BISECT_START": "bisect",
}
# Files and directories of a git directory that belong to an operation, with everything below them.
OPERATION_FILES = frozenset(
    [
        *OPERATIONS,
        "MERGE_MSG",
        "MERGE_MODE",
        "MERGE_RR",
        "MERGE_AUTOSTASH",
        "AUTO_MERGE",
        "SQUASH_MSG",
        "REBASE_HEAD",
        "ORIG_HEAD",
        "BISECT_ANCESTORS_OK",
        "BISECT_EXPECTED_REV",
        "BISECT_LOG",
        "BISECT_NAMES",
        "BISECT_RUN",
        "BISECT_TERMS",
        "refs/bisect",
        "refs/rewritten",
    ]
)
# Not state, or saved elsewhere: the content of a repository, if the git directory is the one of a clone.
_NOT_STATE = frozenset(
    [
        "index",
        "gitdir",
        "commondir",
        "locked",
        "modules",
        "lfs",
        "objects",
        "hooks",
        "worktrees",
        "branches",
        "config",
        "description",
        "packed-refs",
        "shallow",
        "refs/heads",
        "refs/remotes",
        "refs/tags",
        "logs/refs/heads",
        "logs/refs/remotes",
        "info",
    ]
)
# For reading a git directory that an agent may have written to: git uses only local objects and contacts no server.
READ_ONLY_ENV: Mapping[str, str] = {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1"}
_ID = re.compile(rb"\b(?:[0-9a-f]{64}|[0-9a-f]{40})\b")
LARGEST = 8 * 1024 * 1024  # a larger file is not git's own state: an agent put it there


def find_operation(git_dir: str) -> str | None:
    """Return the name of the operation that was under way when the agent ended, or None."""
    for name, word in OPERATIONS.items():
        if os.path.lexists(os.path.join(git_dir, name)):
            return word
    return None


def list_state_files(git_dir: str) -> Iterator[str]:
    """Yield the small regular files of a git directory, as relative paths, without the index."""
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        try:
            entries = sorted(os.scandir(os.path.join(git_dir, folder)), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            name = os.path.join(folder, entry.name)
            if name in _NOT_STATE or entry.name.startswith("sharedindex.") or "\n" in entry.name:
                continue
            if entry.is_dir(follow_symlinks=False):
                waiting.append(name)
            elif entry.is_file(follow_symlinks=False) and _is_small(entry):
                yield name


def _is_small(entry: os.DirEntry[str]) -> bool:
    """True for a file up to `LARGEST`. False for a file that vanished, such as the lock of a running git."""
    try:
        return entry.stat(follow_symlinks=False).st_size <= LARGEST
    except FileNotFoundError:
        return False


def is_operation_file(name: str) -> bool:
    """True if the file of a git directory belongs to an operation under way."""
    words = name.split("/")
    return any("/".join(words[:count]) in OPERATION_FILES for count in range(1, len(words) + 1))


def list_mentioned_objects(git_dir: str) -> set[str]:
    """Return every object id in the state files: HEAD, its reflog, ORIG_HEAD, an autostash, rebase steps and more."""
    found: set[str] = set()
    for name in list_state_files(git_dir):
        try:
            with open(open_beneath(git_dir, name), "rb") as file:
                found.update(match.decode() for match in _ID.findall(file.read(LARGEST)))
        except OSError:
            continue
    return {oid for oid in found if set(oid) != {"0"}}


async def find_unreferenced_commits(
    git: Git, common_dir: str, candidates: set[str], known: set[str], held: frozenset[str] | None = None
) -> list[str]:
    """Return the newest candidates that neither a ref of the repository nor a known commit reaches.

    `held`: commits that are used instead of the repository's refs.
    """
    if not candidates - known:
        return []
    beyond = "".join(f"{oid}\n" for oid in sorted(candidates))
    arguments = ["rev-list", "--parents", "--ignore-missing", "--stdin", "--not", "--all", *sorted(known)]
    if held is not None:
        beyond += "".join(f"^{oid}\n" for oid in sorted(held))
        arguments = ["rev-list", "--parents", "--ignore-missing", "--stdin", "--not", *sorted(known)]
    try:
        out = await git.run(*arguments, cwd=common_dir, stdin=beyond.encode(), env=READ_ONLY_ENV)
    except GitFailed as error:
        if not error.answered:
            raise
        # One unreadable candidate makes the whole call fail. So check each one alone, and leave out the broken ones.
        if len(candidates) == 1:
            return []
        each = [await find_unreferenced_commits(git, common_dir, {oid}, known, held) for oid in sorted(candidates)]
        return sorted({oid for found in each for oid in found})
    lines = [line.split() for line in out.splitlines()]
    parents = {parent for line in lines for parent in line[1:]}
    return [line[0] for line in lines if line[0] not in parents]
