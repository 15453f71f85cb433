"""Proof without git that nobody has touched a worktree since its checkout. Then there is nothing to commit or to save.

A checkout is noted: of each file and directory its identity, size, mode and times, and of the git directory its
content. At the end they are compared. The kernel sets the change time of a file at each write, and no program can set
it back. So an equal time proves that a file is the same, if the clock had moved on between the checkout and the note:
the times are compared with that of a file of ours on the same file system, written after the checkout.

Notes are only in memory, where no agent can write. A supervisor that starts again has none, and asks git. So does a
supervisor whose clock was set, or that finds anything unusual.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator

from holdfast.base import faults
from holdfast.base.dataclass import dataclass
from holdfast.base.files import open_regular_file

MOST_ENTRIES = 10_000  # in a larger tree git is faster than we are
LARGEST = 16 * 1024 * 1024  # bytes of a file in a git directory
_TRIES, _TICK = 6, 0.004  # seconds: the kernel moves the time of files on in steps of 1 to 10 ms


@dataclass(frozen=True, slots=True)
class CheckoutNote:
    """The state of a worktree right after its checkout."""

    folders: dict[str, int]  # path → a number for everything directly in it
    git_dir: bytes  # a digest of the content of all files
    index: bytes  # a digest of the index alone


def note_checkout(tree: str, git_dir: str, clock_file: str) -> CheckoutNote | None:
    """Note a fresh checkout. None: nothing can be proven about it later.

    `clock_file`: a file of ours on the same file system. Writing its times shows that file system's present time.
    """
    for _ in range(_TRIES):
        try:
            faults.effect("checkout.note")
            os.utime(clock_file, follow_symlinks=False)
            now = os.stat(clock_file, follow_symlinks=False)
            folders = {}
            newest = 0
            for path, number, changed in _scan(tree, now.st_dev):
                folders[path], newest = number, max(newest, changed)
            digests = _digest_git_dir(git_dir)
        except (OSError, _Unusual):
            return None
        if newest < now.st_ctime_ns:
            return CheckoutNote(folders, *digests)
        time.sleep(_TICK)
    return None


def is_untouched(note: CheckoutNote, tree: str, git_dir: str) -> bool:
    """True if the worktree and its git directory are as they were noted."""
    left = len(note.folders)
    try:
        if _digest_git_dir(git_dir)[0] != note.git_dir:
            return False
        for path, number, _changed in _scan(tree, os.stat(tree, follow_symlinks=False).st_dev):
            left -= 1
            if note.folders.get(path) != number:
                return False
    except (OSError, _Unusual):
        return False
    return left == 0


def has_index_of(note: CheckoutNote, git_dir: str) -> bool:
    """True if the index is as it was noted: nobody has staged anything since."""
    try:
        return _digest(os.path.join(git_dir, "index")) == note.index
    except OSError:
        return False


class _Unusual(Exception):
    """The tree is too large, has other file systems in it, or its git directory has something else than files."""


def _scan(tree: str, device: int) -> Iterator[tuple[str, int, int]]:
    """Yield (path of a directory, hash of its state and its entries', newest of their times in ns) for each
    directory."""
    left = MOST_ENTRIES
    waiting = [tree]
    while waiting:
        path = waiting.pop()
        own = os.stat(path, follow_symlinks=False)
        seen = [("", *_facts(own))]
        newest = max(own.st_ctime_ns, own.st_mtime_ns)
        with os.scandir(path) as entries:
            for entry in entries:
                left -= 1
                status = entry.stat(follow_symlinks=False)
                if left < 0 or status.st_dev != device:
                    raise _Unusual(path)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                seen.append((entry.name, *_facts(status)))
                newest = max(newest, status.st_ctime_ns, status.st_mtime_ns)
        yield path, hash(tuple(sorted(seen))), newest


def _facts(status: os.stat_result) -> tuple[int, ...]:
    return (
        status.st_mode,
        status.st_ino,
        status.st_nlink,
        status.st_uid,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def _digest_git_dir(git_dir: str) -> tuple[bytes, bytes]:
    """Return two digests: of all names and contents in a worktree's git directory, and of its index."""
    whole, index = hashlib.blake2b(), b""
    waiting, left = [""], MOST_ENTRIES
    while waiting:
        folder = waiting.pop()
        for name in sorted(os.listdir(os.path.join(git_dir, folder))):
            left -= 1
            inner = os.path.join(folder, name)
            path = os.path.join(git_dir, inner)
            if left < 0:
                raise _Unusual(path)
            if os.path.isdir(path) and not os.path.islink(path):
                waiting.append(inner)
                digest = b"a directory"
            else:
                digest = _digest(path)
            if inner == "index":
                index = digest
            whole.update(repr((inner, digest)).encode())
    return whole.digest(), index


def _digest(path: str) -> bytes:
    with open(path, "rb", opener=open_regular_file) as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise OSError(f"{path} is too large")
    return hashlib.blake2b(content).digest()
