"""Copies a checkout without its `.git`, as a process (`python -I copying.py FROM TO`): a thread cannot be ended."""

from __future__ import annotations

import os
import shutil
import sys


def copy_checkout(source: str, target: str) -> None:
    def skip(folder: str, entries: list[str]) -> list[str]:
        return [name for name in entries if name == ".git" and os.path.samefile(folder, source)]

    shutil.copytree(source, target, symlinks=True, ignore=skip)


if __name__ == "__main__":
    copy_checkout(sys.argv[1], sys.argv[2])
