"""Entries of a git index, parsed from the output of `git ls-files`."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable

from holdfast.base.dataclass import dataclass
from holdfast.base.files import NotRegularFile, open_beneath

LARGEST = 1024 * 1024  # bytes; we do not read and hash larger files ourselves
LIST_ENTRIES = ("ls-files", "-v", "--stage", "--debug", "-z")


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One entry of an index."""

    mode: str
    oid: str
    stage: int
    path: str
    hidden: bool  # assume-unchanged: git does not examine the file
    absent: bool  # skip-worktree: the file is not expected on disk
    times: tuple[int, int] = (0, 0)  # ctime and mtime, in ns, when git last examined the file

    @property
    def is_plain(self) -> bool:
        """True for a merged file or symlink that git examines. False for a submodule, because git would enter it."""
        return self.mode.startswith(("100", "120")) and not (self.hidden or self.absent or self.stage)


# `H 100644 <id> 0<tab>path<nul>`, then the file's data. The tag is lower case for assume-unchanged, and S for
# skip-worktree.
_LINE = re.compile(
    r"(?P<tag>\w) (?P<mode>\d+) (?P<oid>[0-9a-f]+) (?P<stage>\d)\t(?P<path>[^\0]*)\0"
    r" *ctime: (?P<ctime>\d+:\d+)\n *mtime: (?P<mtime>\d+:\d+)\n(?: .*\n){3}"
)


def _entry(match: re.Match[str]) -> IndexEntry:
    tag, mode, oid, stage, path = match.group("tag", "mode", "oid", "stage", "path")
    times = (_ns(match["ctime"]), _ns(match["mtime"]))
    return IndexEntry(mode, oid, int(stage), path, hidden=tag.islower(), absent=tag in "Ss", times=times)


def _ns(text: str) -> int:
    seconds, _, part = text.partition(":")
    return int(seconds) * 1_000_000_000 + int(part)


def parse_entries(out: str) -> list[IndexEntry]:
    return [_entry(match) for match in _LINE.finditer(out)]


def find_touched_entries(tree: str, entries: Iterable[IndexEntry]) -> list[IndexEntry]:
    """Return the entries whose file differs from the recorded times, in nanoseconds, and from the recorded content.

    git itself compares whole seconds. It would miss a file that was written twice within one second, if the time of the
    first write was restored.
    """
    found = []
    for entry in entries:
        with contextlib.suppress(OSError):
            seen = os.lstat(os.path.join(tree, entry.path))
            if entry.times not in ((0, 0), (seen.st_ctime_ns, seen.st_mtime_ns)) and not _has_content(tree, entry):
                found.append(entry)
    return found


def _has_content(tree: str, entry: IndexEntry) -> bool:
    """True if the file has the recorded content. False also if git has to read it: a living agent can put a link or a
    pipe there at any instant, which is neither followed nor waited for."""
    try:
        with open(open_beneath(tree, entry.path), "rb") as file:
            if os.fstat(file.fileno()).st_size > LARGEST:
                return False
            content = file.read(LARGEST)
    except NotRegularFile:
        return False
    kind = hashlib.sha256 if len(entry.oid) == 64 else hashlib.sha1
    return kind(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest() == entry.oid


# New files of a work tree, and their entry into a copy of the index by name only. `git add` would ask each repository
# inside the tree for its state, and so run the commands that its configuration names.
LIST_NEW_FILES = ("ls-files", "--others", "--exclude-standard", "-z")
ENTER_FILES = ("update-index", "--add", "--replace", "-z", "--index-info")
_EMPTY_BLOBS = {
    40: "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391",
    64: "473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813",
}


def empty_entries(listed: str, id_length: int) -> bytes:
    """Return the input of `ENTER_FILES` for the output of `LIST_NEW_FILES`, without repositories inside the tree."""
    names = (name for name in listed.split("\0") if name and not name.endswith("/"))
    return b"".join(f"100644 {_EMPTY_BLOBS[id_length]}\t{name}\0".encode(errors="surrogateescape") for name in names)
