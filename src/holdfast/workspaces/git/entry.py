"""Making our entry under `<common dir>/worktrees` whole: written aside, there in one rename.

`git worktree add` writes zeros into the entry's HEAD first, and the branch some milliseconds later. A `gc`, `fetch` or
`fsck` of the user that looks in between ends with "bad object worktrees/…/HEAD", and an automatic gc complains about it
for a day. Killed in between, it leaves an entry that leads nowhere. (ADR 0017.)
"""

from __future__ import annotations

import os

from holdfast.base import faults
from holdfast.base.folders import plainly
from holdfast.workspaces.removal.trash import delete_tree

ASIDE = "holdfast.new-"  # in the common directory, beside `worktrees`, under which git takes everything for an entry
TRIES = 100  # git counts a name up when it is taken; so do we


def can_make_entry(common_dir: str) -> bool:
    """Whether an entry is nothing but the four files that every git since 2.5 writes: no extension of the format (refs
    in tables, a config of each worktree), no sparse checkout to copy, no special permissions. Else git has to do it."""
    if os.path.exists(os.path.join(common_dir, "info", "sparse-checkout")):
        return False
    with open(os.path.join(common_dir, "config"), encoding="utf-8", errors="surrogateescape", opener=plainly) as file:
        settings = file.read().lower()
    return not any(word in settings for word in ("[extensions", "sharedrepository", "[include"))


def make_entry(common_dir: str, path: str, branch: str, lock: str) -> None:
    """A worktree without any files at `path`, which does not exist, on a branch that is checked out nowhere else. The
    caller holds the repo lock and has cleared what an earlier try left."""
    common, aside = os.path.realpath(common_dir), aside_of(common_dir, path)
    target = os.path.join(common, "worktrees", os.path.basename(path))
    faults.effect("entry.make")
    os.makedirs(path)
    link = os.path.join(os.path.realpath(path), ".git")
    os.mkdir(aside)
    for name, content in (("HEAD", f"ref: refs/heads/{branch}"), ("commondir", "../.."), ("gitdir", link)):
        _write(os.path.join(aside, name), f"{content}\n")
    _write(os.path.join(aside, "locked"), lock)
    name = _put_in_place(aside, target)
    _write(link, f"gitdir: {name}\n")
    faults.passed("entry.made")


def aside_of(common_dir: str, path: str) -> str:
    return os.path.join(common_dir, ASIDE + os.path.basename(path))


def drop_aside(common_dir: str, path: str) -> None:
    """What a making that was killed left. The name is the workspace's own."""
    if os.path.lexists(aside_of(common_dir, path)):
        delete_tree(aside_of(common_dir, path))


def _put_in_place(aside: str, target: str) -> str:
    for number in range(TRIES):
        name = f"{target}{number or ''}"
        os.makedirs(os.path.dirname(target), exist_ok=True)  # the user's git removes it when it is empty
        try:
            faults.effect("entry.rename")
            os.rename(aside, name)
        except FileNotFoundError:
            continue
        except OSError:
            if not os.path.lexists(name):
                raise
            continue
        return name
    raise FileExistsError(f"{target} and {TRIES} names like it are taken")


def _write(path: str, content: str) -> None:
    faults.effect("entry.write")
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(content)
