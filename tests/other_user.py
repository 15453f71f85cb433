"""Holdfast as a user without any rights: the unprivileged tier, for real.

Root ignores the modes of files, may signal everybody and may make cgroups; so tests of what an ordinary user gets must
run as one. `as_other_user(fleet)` makes every command of a fleet (CLI, supervisor, and so keepers and agents) that of a
user who owns the fleet's directory and nothing else: another uid, no groups, no capabilities, no way back.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
import rich
from tests.fleet import Fleet

import holdfast

OTHER_USER = 54321  # in no passwd file: nothing may depend on a name
_PACKAGES = (holdfast, apsw, rich)
_NEEDED = ("holdfast", "apsw", "rich", "markdown_it", "mdurl", "pygments")
# The supervisor starts its keepers with its own interpreter, so that must work too (setpriv itself can still read all).
_PROBE = """
import os, subprocess, sys, apsw, rich, holdfast.wiring.supervisor
subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], check=True)
caps = [line.split()[1] for line in open("/proc/self/status") if line.startswith(("CapEff", "CapPrm"))]
assert os.getuid() == os.geteuid() == {uid} and os.getgroups() == [] and set(caps) == {{"0" * 16}}, caps
"""


class NoOtherUser(Exception):
    """Why no second user can be had here."""


def is_root() -> bool:
    return os.geteuid() == 0


@contextlib.contextmanager
def reachable_directory(prefix: str = "holdfast-other-") -> Iterator[Path]:
    """A directory that another user can get to: pytest's own lie below one that only its user may enter."""
    root = Path(tempfile.mkdtemp(prefix=prefix, dir="/tmp"))
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


def give(path: Path) -> None:
    """Make everything below `path` the other user's."""
    for folder, folders, files in os.walk(path):
        for name in (".", *folders, *files):
            os.chown(os.path.join(folder, name), OTHER_USER, OTHER_USER, follow_symlinks=False)


def as_other_user(fleet: Fleet) -> Fleet:
    """From now on the fleet belongs to another user. Its root must be reachable for that user (reachable_directory).

    Skips the test by name where that cannot be had; a run that is not root needs it not: there the plain tests are
    the unprivileged tier already.
    """
    if not is_root():
        pytest.skip("NOT RUN as another user: this run is not root, so the plain tests are the unprivileged tier")
    try:
        python, search = _python_of_other_user()
    except NoOtherUser as why:
        pytest.skip(f"NOT RUN as another user: {why}")
    fleet.root.chmod(0o755)
    give(fleet.root)
    fleet.prefix = _prefix()
    fleet.python = python
    fleet.env["PYTHONPATH"] = search
    return fleet


@functools.cache
def _prefix() -> tuple[str, ...]:
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise NoOtherUser("there is no `setpriv` (util-linux)")
    user = str(OTHER_USER)
    return (setpriv, "--reuid", user, "--regid", user, "--clear-groups", "--inh-caps=-all", "--no-new-privs", "--")


@functools.cache
def _python_of_other_user() -> tuple[str, str]:
    """(interpreter, PYTHONPATH) with which the other user can run this Holdfast.

    Our own interpreter and checkout if that user may read them. Else the system's interpreter of the same version
    (compiled packages fit), and a copy of the packages.
    """
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    pythons = [sys.executable, *filter(None, (shutil.which(version, path="/usr/bin:/usr/local/bin"),))]
    direct = os.pathsep.join(dict.fromkeys(str(Path(module.__file__ or "").parents[1]) for module in _PACKAGES))
    for python in pythons:
        if _works(python, direct):
            return python, direct
    copied = _copied_packages()
    for python in pythons:
        if _works(python, copied):
            return python, copied
    raise NoOtherUser(f"uid {OTHER_USER} can start none of {', '.join(pythons)} with our packages")


def _works(python: str, search: str) -> bool:
    probe = subprocess.run(
        [*_prefix(), python, "-c", _PROBE.format(uid=OTHER_USER)],
        env={"PYTHONPATH": search, "PATH": os.environ["PATH"]},
        cwd="/",
        capture_output=True,
        check=False,
    )
    return probe.returncode == 0


def _copied_packages() -> str:
    """One copy per test process, below /tmp, removed when it ends."""
    import atexit

    target = Path(tempfile.mkdtemp(prefix="holdfast-packages-", dir="/tmp"))
    atexit.register(shutil.rmtree, target, ignore_errors=True)
    target.chmod(0o755)
    for name in _NEEDED:
        for module in _PACKAGES:
            source = Path(module.__file__ or "").parents[1] / name
            if source.is_dir():
                shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__"))
                break
    subprocess.run(["chmod", "-R", "a+rX", target], check=True)
    return str(target)
