"""Copy of named files from one checkout into another, run as a process (`python -I copy_files.py FROM TO < names`).

It is a process because a thread cannot be ended. It follows no symbolic link on either side, and never overwrites.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import sys

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class NotCopied(Exception):
    """The reason why a file was not copied."""


def copy_files(source: str, target: str, names: list[str]) -> dict[str, object]:
    """Copy the files. Return the names of those copied, and the reason for each of the others."""
    copied: list[str] = []
    left: dict[str, str] = {}
    for name in names:
        try:
            _copy_one(source, target, name)
            copied.append(name)
        except NotCopied as why:
            left[name] = str(why)
        except OSError as error:
            left[name] = error.strerror or str(error)
    return {"copied": copied, "left": left}


def _copy_one(source: str, target: str, name: str) -> None:
    *folders, last = name.split("/")
    with contextlib.ExitStack() as closing:
        there = _open_folder(source, folders, closing, make=False)
        try:
            found = os.stat(last, dir_fd=there, follow_symlinks=False)
        except FileNotFoundError:
            raise NotCopied("it is gone") from None
        if not stat.S_ISREG(found.st_mode):
            raise NotCopied("it is a symbolic link" if stat.S_ISLNK(found.st_mode) else "it is not a plain file")
        reading = closing.enter_context(open(os.open(last, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=there), "rb"))
        here = _open_folder(target, folders, closing, make=True)
        try:
            made = os.open(last, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=here)
        except FileExistsError:
            raise NotCopied("the workspace has a file of that name") from None
        with open(made, "wb") as writing:
            shutil.copyfileobj(reading, writing, 1024 * 1024)
            os.fchmod(made, stat.S_IMODE(found.st_mode) & 0o777)


def _open_folder(root: str, folders: list[str], closing: contextlib.ExitStack, *, make: bool) -> int:
    """Return a descriptor of the last folder, opened step by step without following a link."""
    at = os.open(root, _FOLDER)
    closing.callback(os.close, at)
    for name in folders:
        if name in ("", ".", ".."):
            raise NotCopied("its path is not plain")
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o777, dir_fd=at)
        try:
            at = os.open(name, _FOLDER, dir_fd=at)
        except OSError:
            raise NotCopied(f"'{name}' in its path is not a directory") from None
        closing.callback(os.close, at)
    return at


if __name__ == "__main__":
    wanted = [os.fsdecode(name) for name in sys.stdin.buffer.read().split(b"\0") if name]
    print(json.dumps(copy_files(sys.argv[1], sys.argv[2], wanted)))
