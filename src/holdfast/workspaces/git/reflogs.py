"""Refs that an agent moved outside its branch, distinguished from the user's own work by git's reflogs.

Every checkout has a reflog of its own HEAD. git records a move there only if it was made in that checkout. So the
reflog of the agent's worktree names the commits that the agent made, and the reflogs of the user's checkouts name the
commits that the user committed, merged, rebased or checked out. An agent that means to hide can write these files too:
docs/security.md names that limit.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
import zlib
from collections.abc import Collection, Iterator, Mapping

from holdfast.base.dataclass import dataclass
from holdfast.base.files import listed, open_log_file
from holdfast.workspaces.git.refs import is_commit_id
from holdfast.workspaces.names import BRANCH_PREFIX

MOST_BYTES = 64 * 1024 * 1024  # the maximal number of bytes read from one file
SETTLED_AFTER = 0.2  # seconds; git moves a branch a moment before it writes the reflog of HEAD
# Messages of moves that made a commit. Others (checkout, reset, fast-forward) went to a commit that was there.
_MADE = re.compile(
    r"(commit( \([a-z-]+\))?|revert|am):|(cherry-pick|[^:]*\((pick|reword|edit|squash|fixup|continue|merge)\)):"
    r"(?! fast-forward)|[^:]*: (Merge made|In-index merge)"
)
_TAGGED = re.compile(rb"tag \d+\0object ([0-9a-f]+)\ntype commit\n")


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkout:
    """A checkout of a repository: the agent's, the user's, or that of another agent."""

    git_dir: str
    is_agent: bool
    is_user: bool

    @property
    def branch(self) -> str:
        """Return the ref that is checked out, or "" where HEAD is detached."""
        return _head_ref(self.git_dir)

    @property
    def moves(self) -> list[tuple[str, str]]:
        """Return (new commit, message) of every move of this HEAD, the oldest first."""
        content = read_plain(os.path.join(self.git_dir, "logs", "HEAD")) or b""
        found = []
        for line in content.decode(errors="replace").splitlines():
            places, _, message = line.partition("\t")
            words = places.split(" ", 2)
            if len(words) == 3:
                found.append((words[1], message))
        return found


def list_commits_made(common_dir: str, workspace: str) -> set[str]:
    """Return the commits that agents of a task made in its workspaces, by their reflogs."""
    agents = [checkout for checkout in _list_checkouts(common_dir, workspace) if checkout.is_agent]
    return {new for checkout in agents for new, message in checkout.moves if _MADE.match(message)}


def find_refs_of_agent(
    common_dir: str, workspace: str, changed: Mapping[str, str], made_before: Collection[str]
) -> dict[str, str]:
    """Return the changed refs that an agent moved: ref → current value.

    The agent moved a ref in two cases. The ref points to a commit that the agent made in this run and that no checkout
    of the user was ever at. Or the user has the ref checked out, and its last move was not made in that checkout.
    """
    if not changed:
        return {}
    found = _find_once(common_dir, workspace, changed, made_before)
    if found:
        time.sleep(SETTLED_AFTER)
        again = _find_once(common_dir, workspace, changed, made_before)
        found = {ref: value for ref, value in again.items() if ref in found}
    return found


def _find_once(
    common_dir: str, workspace: str, changed: Mapping[str, str], made_before: Collection[str]
) -> dict[str, str]:
    users = [(one.branch, one.moves) for one in _list_checkouts(common_dir, workspace) if one.is_user]
    known = {new for _branch, moves in users for new, _message in moves}
    made = list_commits_made(common_dir, workspace).difference(made_before, known)
    found = {}
    for ref, value in changed.items():
        is_moved_away = any(branch == ref and moves and moves[-1][0] != value for branch, moves in users)
        if value and (is_moved_away or (made and _peel(common_dir, ref, value) in made)):
            found[ref] = value
    return found


def _list_checkouts(common_dir: str, workspace: str) -> Iterator[Checkout]:
    """Yield the main checkout, which is the user's, and every linked one. `workspace`: the path of the task's own
    checkout.
    """
    yield Checkout(git_dir=common_dir, is_agent=False, is_user=True)
    workspace = os.path.realpath(workspace)
    ours = os.path.dirname(os.path.dirname(workspace))
    for name in listed(os.path.join(common_dir, "worktrees")):
        entry = os.path.join(common_dir, "worktrees", name)
        link = read_plain(os.path.join(entry, "gitdir")) or b""
        path = os.path.dirname(os.path.normpath(os.path.join(entry, os.fsdecode(link.rstrip(b"\r\n")))))
        is_agent = path == workspace or path.startswith((f"{workspace}/", f"{workspace}--"))
        is_ours = path.startswith(f"{ours}/") or _head_ref(entry).startswith(f"refs/heads/{BRANCH_PREFIX}")
        yield Checkout(git_dir=entry, is_agent=is_agent, is_user=bool(link) and not is_agent and not is_ours)


def _head_ref(git_dir: str) -> str:
    head = (read_plain(os.path.join(git_dir, "HEAD")) or b"")[:1024].decode(errors="surrogateescape").strip()
    return head.removeprefix("ref:").strip() if head.startswith("ref:") else ""


def _peel(common_dir: str, ref: str, value: str) -> str:
    """Return the commit that a new annotated tag names (git keeps the tag as a loose object), else `value` itself."""
    if not ref.startswith("refs/tags/"):
        return value
    content = read_plain(os.path.join(common_dir, "objects", value[:2], value[2:]))
    with contextlib.suppress(zlib.error):
        tag = _TAGGED.match(zlib.decompressobj().decompress(content or b"", 4096))
        return tag[1].decode() if tag else value
    return value


def read_plain(path: str) -> bytes | None:
    """Return the content of a regular file. Never waits for a FIFO that an agent put there."""
    try:
        fd = open_log_file(path)
    except OSError:
        return None
    with open(fd, "rb") as file:
        return file.read(MOST_BYTES)


def read_log(path: str) -> list[tuple[str, str, str]]:
    """Return (old commit, new commit, message) of every entry of a reflog, the oldest first."""
    found = []
    for line in (read_plain(path) or b"").decode(errors="replace").splitlines():
        head, _tab, message = line.partition("\t")
        words = head.split(" ", 2)
        if len(words) == 3 and is_commit_id(words[1]):
            found.append((words[0], words[1], message))
    return found
