"""Refs, read from git's files, because each call of git costs a process.

Only simple cases are read here. Unusual cases (another ref storage, unexpected content) are left to git.
"""

from __future__ import annotations

import os
import re

from holdfast.base.files import NotRegularFile, open_regular_file
from holdfast.workspaces.git.git import Git, run_sync

_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*(/[A-Za-z0-9][\w.+-]*)*")  # a plain branch name, without revision syntax
IN_TABLES = "refs/heads/.invalid"  # the content of HEAD's file where refs are in tables
LARGEST_PACKED = 64 << 20  # bytes; an agent can make a sparse file of any length. git reads longer ones
DEEPEST = 5  # the maximal chain of symbolic refs


class UnusualRef(Exception):
    """The ref cannot be resolved by reading files. git has to resolve it."""


def read_ref(git_dir: str, common_dir: str, ref: str) -> str | None:
    """Return the commit of a ref, or None if the ref does not exist. A worktree has its own `git_dir`."""
    if os.path.exists(os.path.join(common_dir, "reftable")):
        raise UnusualRef("its refs are in tables")
    for _ in range(DEEPEST):
        where = common_dir if ref.startswith("refs/") else git_dir
        content = _loose(os.path.join(where, ref))
        if content is None:  # read packed refs second: packing writes them before it removes the loose ref
            return _packed(common_dir, ref)
        if not content.startswith("ref: "):
            return _id(content)
        ref = content.removeprefix("ref: ").strip()
        if os.path.isabs(ref) or ".." in ref:
            raise UnusualRef(ref)
    raise UnusualRef("too many symbolic refs")


def is_packed(common_dir: str, ref: str) -> bool:
    """True if the ref is (also) in the packed-refs file, or if reading files cannot answer that."""
    try:
        return os.path.exists(os.path.join(common_dir, "reftable")) or _packed(common_dir, ref) is not None
    except UnusualRef:
        return True


def is_blocked_by_packed(common_dir: str, ref: str) -> bool:
    """True if a packed ref has that name or is in its way as a folder or a file, or if reading files cannot tell."""
    words = ref.split("/")
    names = [f" {'/'.join(words[:count])}\n" for count in range(3, len(words) + 1)]
    try:
        content = _read_packed(common_dir)
    except UnusualRef:
        return True
    is_there = any(os.fsencode(name) in content for name in (*names, f" {ref}/"))
    return is_there or os.path.exists(os.path.join(common_dir, "reftable"))


def is_only_loose(common_dir: str, ref: str, commit: str) -> bool:
    """True if the ref's own file, and no packed ref, holds that commit."""
    return not is_packed(common_dir, ref) and _loose(os.path.join(common_dir, ref)) == commit


def _loose(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", opener=open_regular_file) as file:
            return file.read(1024).rstrip("\n")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except NotRegularFile as error:
        raise UnusualRef(path) from error


def _read_packed(common_dir: str) -> bytes:
    try:
        with open(os.path.join(common_dir, "packed-refs"), "rb", opener=open_regular_file) as file:
            if os.fstat(file.fileno()).st_size > LARGEST_PACKED:
                raise UnusualRef("packed-refs")
            return file.read(LARGEST_PACKED)
    except FileNotFoundError:
        return b""
    except NotRegularFile as error:
        raise UnusualRef("packed-refs") from error


def _packed(common_dir: str, ref: str) -> str | None:
    content = _read_packed(common_dir)
    found = content.find(b" " + os.fsencode(ref) + b"\n")
    return None if found < 0 else _id(content[content.rfind(b"\n", 0, found) + 1 : found].decode(errors="replace"))


def is_commit_id(text: str) -> bool:
    """True if the text has the form of an object's id."""
    return _ID.fullmatch(text) is not None


def _id(text: str) -> str:
    if not _ID.fullmatch(text):
        raise UnusualRef(text)
    return text


def _read_or_none(path: str) -> str | None:
    try:
        return _loose(path)
    except UnusualRef:
        return None


def find_git_dir(path: str) -> str | None:
    """Return the git directory that a checkout's `.git` names, or None."""
    link = os.path.join(path, ".git")
    if os.path.isdir(link) and not os.path.islink(link):
        return link
    content = _read_or_none(link)
    if content is None or not content.startswith("gitdir: "):
        return None
    return os.path.realpath(os.path.join(path, content.removeprefix("gitdir: ")))


def read_head_ref(git_dir: str) -> str | None:
    """Return the ref that HEAD names. None: HEAD is detached or missing."""
    content = _read_or_none(os.path.join(git_dir, "HEAD"))
    return content.removeprefix("ref: ").strip() if content is not None and content.startswith("ref: ") else None


def read_head(checkout: str) -> str | None:
    """Return the commit of a checkout's HEAD. None: there is no commit, or git has to be called."""
    git_dir = find_git_dir(checkout)
    if git_dir is None:
        return None
    common = _read_or_none(os.path.join(git_dir, "commondir"))
    try:
        return read_ref(git_dir, os.path.join(git_dir, common or "."), "HEAD")
    except (UnusualRef, OSError):
        return None


def has_branch(checkout: str, branch: str) -> bool:
    """True if the repository of a checkout has the branch. False also if there is no repository."""
    if not checkout:
        return False  # a damaged store: the row of the repository is gone
    git_dir, ref = find_git_dir(checkout), f"refs/heads/{branch}"
    if git_dir is None:
        return False
    try:
        common = _read_or_none(os.path.join(git_dir, "commondir"))
        return read_ref(git_dir, os.path.join(git_dir, common or "."), ref) is not None
    except (UnusualRef, OSError):
        return run_sync("show-ref", "--verify", "--quiet", ref, cwd=git_dir)[0] == 0


async def resolve_ref(git: Git, common_dir: str, ref: str) -> str | None:
    """Return the commit of a ref, given by its full name, or None if the ref does not exist."""
    try:
        return read_ref(common_dir, common_dir, ref)
    except UnusualRef:
        listed = await git.run("for-each-ref", "--format=%(refname) %(objectname)", ref, cwd=common_dir)
        return dict(line.rsplit(" ", 1) for line in listed.splitlines()).get(ref)


def read_branch_tip(checkout: str, common_dir: str, name: str) -> str | None:
    """Return the commit of `HEAD` or of a plainly named branch, if the name is unambiguous. None: call git."""
    git_dir = find_git_dir(checkout)
    if git_dir is None or not _NAME.fullmatch(name) or _ID.fullmatch(name):
        return None
    try:
        if name == "HEAD":
            return read_ref(git_dir, common_dir, name)
        if os.path.lexists(os.path.join(git_dir, name)):
            return None
        if any(read_ref(git_dir, common_dir, other) for other in (f"refs/{name}", f"refs/tags/{name}")):
            return None
        return read_ref(git_dir, common_dir, f"refs/heads/{name}")
    except (UnusualRef, OSError):
        return None
