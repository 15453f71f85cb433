"""The version of git: asked once for each git that is installed, because each question costs a process."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time

from holdfast.base import faults
from holdfast.base.errors import UsageError
from holdfast.base.files import open_regular_file
from holdfast.base.home import ensure_home
from holdfast.workspaces.git.config_view import find_folder, stamp_of
from holdfast.workspaces.git.git import run_sync
from holdfast.workspaces.git.hardening import search_path

OLDEST_GIT = (2, 39)  # older ones are refused: the test suite and the campaign never ran with them
PROVEN_GIT = (OLDEST_GIT, (2, 55))  # the oldest and the newest with which they ran
_KEPT = "git-version.json"  # beside the config views
_AGE = 24 * 3600.0  # seconds for which an answer is kept. A script may start another git tomorrow


def version() -> tuple[int, ...]:
    """Return the version of the git in PATH. The answer is kept until the program changes, for a day at most."""
    program = shutil.which("git", path=search_path())
    stamp = None if program is None else [program, *(stamp_of(program) or ())]
    path = os.path.join(find_folder(), _KEPT)
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        with open(path, encoding="utf-8", opener=open_regular_file) as file:
            kept = json.load(file)
        if kept["stamp"] == stamp and 0 <= time.time() - kept["at"] <= _AGE:
            return tuple(map(int, kept["version"]))
    found = ask_version()
    if found:
        _keep(path, json.dumps({"stamp": stamp, "at": time.time(), "version": found}))
    return found


def ask_version() -> tuple[int, ...]:
    """Return the version that git itself prints now. Empty: git printed no version that can be read."""
    _code, out, _err = run_sync("version", cwd="/")
    words = out.split()
    numbers = words[2].split(".") if len(words) > 2 else []
    return tuple(int(number) for number in numbers if number.isdecimal() and number.isascii())


def _keep(path: str, content: str) -> None:
    """Write git's answer to the file. If that is not possible, the next command asks git again."""
    folder = os.path.dirname(path)
    ensure_home(os.path.dirname(folder))
    with contextlib.suppress(OSError):
        faults.effect("git_version.keep")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        fd, aside = tempfile.mkstemp(prefix=f".{_KEPT}.", dir=folder)
        try:
            with open(fd, "w", encoding="utf-8") as file:
                file.write(content)
            os.rename(aside, path)
        except OSError:
            os.unlink(aside)


def refuse_old_git(found: tuple[int, ...] | None = None) -> None:
    """Raise UsageError if git is too old, before work is queued or started that git could not carry out."""
    found = version() if found is None else found
    if found < OLDEST_GIT:
        shown = f"is {'.'.join(map(str, found))}" if found else "does not report its version"
        needed = ".".join(map(str, OLDEST_GIT))
        raise UsageError(f"The git in PATH {shown}; Holdfast needs {needed} or newer. Upgrade it, then try again.")
