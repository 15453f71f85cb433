"""Parents of commits, read from git's loose objects: a commit that was just made is one.

An answer of this module can only keep a branch, never delete one. git decides about everything that is unusual: packed
objects, grafts, damage.
"""

from __future__ import annotations

import os
import zlib

from holdfast.base.files import open_regular_file
from holdfast.workspaces.git.refs import is_commit_id

MOST_COMMITS = 50  # examined before git is asked instead
_LARGEST_FILE, _LARGEST_HEAD = 1 << 20, 1 << 16  # bytes of an object's file, and of its unpacked beginning


def descends_from(common_dir: str, commit: str, ancestor: str) -> bool:
    """True if loose commits lead from `commit` to `ancestor`. False: they do not, or they are not loose."""
    waiting, seen = [commit], {commit}
    for found in waiting:  # it grows while it is read
        if found == ancestor:
            return True
        if len(seen) > MOST_COMMITS:
            return False
        for parent in _read_parents(common_dir, found):
            if parent not in seen:
                seen.add(parent)
                waiting.append(parent)
    return False


def _read_parents(common_dir: str, commit: str) -> list[str]:
    path = os.path.join(common_dir, "objects", commit[:2], commit[2:])
    try:
        with open(path, "rb", opener=open_regular_file) as file:
            content = zlib.decompressobj().decompress(file.read(_LARGEST_FILE), _LARGEST_HEAD)
    except (OSError, zlib.error):
        return []
    head, _, body = content.partition(b"\0")
    if not head.startswith(b"commit "):
        return []
    header = body.partition(b"\n\n")[0].decode(errors="replace").splitlines()
    words = [line.removeprefix("parent ") for line in header if line.startswith("parent ")]
    return [word for word in words if is_commit_id(word)]
