"""Copy of a checkout without its `.git`, run as a process (`python -I copy_checkout.py FROM TO`).

It is a process because a thread cannot be ended.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys

TARGET_EXISTS = 17  # the exit code if another process made the target: nothing was copied


def copy_checkout(source: str, target: str) -> None:
    """Copy files, directories and links, with modes and times. Sockets, pipes and devices are skipped."""

    def skip(folder: str, entries: list[str]) -> list[str]:
        is_top = os.path.samefile(folder, source)
        return [
            name for name in entries if (is_top and name == ".git") or _is_skipped(os.path.join(folder, name), target)
        ]

    shutil.copytree(source, target, symlinks=True, ignore=skip)


def _is_skipped(path: str, target: str) -> bool:
    mode = os.lstat(path).st_mode
    if stat.S_ISDIR(mode):
        return os.path.realpath(target).startswith(os.path.realpath(path) + "/")  # the home is inside the checkout
    return not (stat.S_ISREG(mode) or stat.S_ISLNK(mode))


if __name__ == "__main__":
    try:
        copy_checkout(sys.argv[1], sys.argv[2])
    except FileExistsError:
        sys.exit(TARGET_EXISTS)
