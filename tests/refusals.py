"""What every refusal must be: one clear line, the right exit code, nothing changed. And machines on which to see it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from tests.fleet import Fleet

from holdfast.api.queries import Queries

# Root may read and write everything; without these two capabilities the modes of its own files count for it too.
_RIGHTS = "-dac_override,-dac_read_search"


def refused(
    fleet: Fleet,
    *arguments: object,
    code: int,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: bytes | None = None,
    prefix: Sequence[str] = (),
) -> str:
    """The one line with which a command is refused."""
    done = fleet.cli(*arguments, code=code, env=env, cwd=cwd, stdin=stdin, prefix=prefix)
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert done.stdout == ""
    if "--json" in arguments:
        return str(json.loads(lines[0])["message"])
    assert lines[0].startswith("holdfast: "), lines
    return lines[0].removeprefix("holdfast: ")


def files_of(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below a directory with its mode and content, the git directory included."""
    return {
        str(path.relative_to(folder)): (path.lstat().st_mode, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


@contextlib.contextmanager
def nothing_changes(fleet: Fleet) -> Iterator[None]:
    """A task that was acknowledged before, the whole history and the user's repository are the same afterwards."""
    fleet.add("acknowledged before", "--delay", "1h", command=("true",))

    def everything() -> tuple[object, ...]:
        queries = Queries(str(fleet.home))
        return queries.tasks(everything=True), fleet.events(), files_of(fleet.repo)

    before = everything()
    yield
    assert everything() == before


def without_rights() -> list[str]:
    """Put before a command: root then runs it as an ordinary user would, bound by the modes of files."""
    if os.getuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("NOT RUN: setpriv (util-linux) is missing, and root may write everywhere")
    return ["setpriv", f"--bounding-set={_RIGHTS}", f"--inh-caps={_RIGHTS}"]


@contextlib.contextmanager
def mounted(at: Path, *options: str) -> Iterator[None]:
    """Something mounted at `at`; skips by name where mounts are not allowed."""
    done = subprocess.run(["mount", *options, str(at)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"NOT RUN: a mount needs root: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)


@contextlib.contextmanager
def small_disk(at: Path, size: str) -> Iterator[None]:
    at.mkdir(exist_ok=True)
    with mounted(at, "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs"):
        yield


def fill(path: Path) -> None:
    """Write until the disk is full, to the last byte."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        for size in (65536, 512, 1):
            with contextlib.suppress(OSError):
                while True:
                    os.write(fd, b"\0" * size)
    finally:
        os.close(fd)
