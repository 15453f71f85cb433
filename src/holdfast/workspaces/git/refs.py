"""Reading refs as git keeps them, in files: asking git for one costs a process each time.

Only plain cases are answered here; whatever looks unusual (another storage, a strange content) is git's to answer.
"""

from __future__ import annotations

import os
import re

from holdfast.base.files import NotPlain, plainly
from holdfast.workspaces.git.git import Git

_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*(/[A-Za-z0-9][\w.+-]*)*")  # a plain branch name: nothing to be computed
DEEPEST = 5  # symbolic refs to symbolic refs


class Unusual(Exception):
    """Not to be answered by reading files."""


def stored(git_dir: str, common_dir: str, ref: str) -> str | None:
    """The commit that a ref stands for, or None without it. `git_dir` differs from `common_dir` in a worktree."""
    if os.path.exists(os.path.join(common_dir, "reftable")):
        raise Unusual("its refs are in tables")
    for _ in range(DEEPEST):
        where = common_dir if ref.startswith("refs/") else git_dir
        content = _loose(os.path.join(where, ref))
        if content is None:  # after the loose one: packing writes the packed one before it removes that
            return _packed(common_dir, ref)
        if not content.startswith("ref: "):
            return _id(content)
        ref = content.removeprefix("ref: ").strip()
        if os.path.isabs(ref) or ".." in ref:
            raise Unusual(ref)
    raise Unusual("too many symbolic refs")


def is_packed(common_dir: str, ref: str) -> bool:
    """Whether it is (also) in the file of packed refs, or cannot be told by reading."""
    try:
        return os.path.exists(os.path.join(common_dir, "reftable")) or _packed(common_dir, ref) is not None
    except Unusual:
        return True


def is_only_a_file(common_dir: str, ref: str, commit: str) -> bool:
    """Whether a ref stands for that commit by its own file alone."""
    return not is_packed(common_dir, ref) and _loose(os.path.join(common_dir, ref)) == commit


def _loose(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", opener=plainly) as file:
            return file.read(1024).rstrip("\n")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except NotPlain as error:
        raise Unusual(path) from error


def _packed(common_dir: str, ref: str) -> str | None:
    try:
        with open(os.path.join(common_dir, "packed-refs"), "rb", opener=plainly) as file:
            content = file.read()
    except FileNotFoundError:
        return None
    except NotPlain as error:
        raise Unusual("packed-refs") from error
    found = content.find(b" " + os.fsencode(ref) + b"\n")
    return None if found < 0 else _id(content[content.rfind(b"\n", 0, found) + 1 : found].decode(errors="replace"))


def _id(text: str) -> str:
    if not _ID.fullmatch(text):
        raise Unusual(text)
    return text


def _said(path: str) -> str | None:
    try:
        return _loose(path)
    except Unusual:
        return None


def git_dir_at(path: str) -> str | None:
    """The git directory of a checkout, as its `.git` says; None without one."""
    link = os.path.join(path, ".git")
    if os.path.isdir(link) and not os.path.islink(link):
        return link
    content = _said(link)
    if content is None or not content.startswith("gitdir: "):
        return None
    return os.path.realpath(os.path.join(path, content.removeprefix("gitdir: ")))


def symbolic(git_dir: str) -> str | None:
    """The ref that HEAD stands for; None: it is detached, or there is none."""
    content = _said(os.path.join(git_dir, "HEAD"))
    return content.removeprefix("ref: ").strip() if content is not None and content.startswith("ref: ") else None


def head_of(checkout: str) -> str | None:
    """The commit that a checkout is at; None: it has none, or git has to be asked."""
    git_dir = git_dir_at(checkout)
    if git_dir is None:
        return None
    common = _said(os.path.join(git_dir, "commondir"))
    try:
        return stored(git_dir, os.path.join(git_dir, common or "."), "HEAD")
    except (Unusual, OSError):
        return None


async def tip(git: Git, common_dir: str, ref: str) -> str | None:
    """The commit of a ref by its full name, or None without it."""
    try:
        return stored(common_dir, common_dir, ref)
    except Unusual:
        listed = await git.run("for-each-ref", "--format=%(refname) %(objectname)", ref, cwd=common_dir)
        return dict(line.rsplit(" ", 1) for line in listed.splitlines()).get(ref)


def branch_tip(checkout: str, common_dir: str, name: str) -> str | None:
    """The commit of `HEAD` or of a plainly named branch, if that is all that the name could mean. None: ask git."""
    git_dir = git_dir_at(checkout)
    if git_dir is None or not _NAME.fullmatch(name) or _ID.fullmatch(name):
        return None
    try:
        if name == "HEAD":
            return stored(git_dir, common_dir, name)
        if os.path.lexists(os.path.join(git_dir, name)):
            return None
        if any(stored(git_dir, common_dir, other) for other in (f"refs/{name}", f"refs/tags/{name}")):
            return None
        return stored(git_dir, common_dir, f"refs/heads/{name}")
    except (Unusual, OSError):
        return None
