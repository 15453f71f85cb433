"""Did anything change in a workspace? Asked of real directories."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.workspaces.snapshots import change_detection
from holdfast.workspaces.snapshots.change_detection import FoundChange, find_change_since

BEFORE, SINCE, AFTER = 1e9, 1.1e9, 1.2e9


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """An old tree."""
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    for name in ("a", "b", "deep/c", "deep/er/d", ".git/index"):
        (tmp_path / name).touch()
    for path in (*tmp_path.rglob("*"), tmp_path):
        os.utime(path, (BEFORE, BEFORE))
    return tmp_path


def test_nothing_changed(work: Path) -> None:
    os.utime(work / ".git" / "index", (AFTER, AFTER))
    assert find_change_since(str(work), SINCE) == FoundChange()


@pytest.mark.parametrize("name", ["a", "deep", "deep/c", "deep/er/d", "."])
def test_one_thing_changed(work: Path, name: str) -> None:
    """A removed file is seen by the time of its directory, the root's as well."""
    os.utime(work / name, (AFTER, AFTER))
    assert find_change_since(str(work), SINCE).name == name


def test_a_file_that_vanishes_meanwhile_hides_no_other(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.utime(work / "b", (AFTER, AFTER))
    scan = os.scandir

    class Sorted:
        """The vanished one first."""

        def __init__(self, path: str) -> None:
            with scan(path) as entries:
                self._entries = sorted(entries, key=lambda entry: entry.name)

        def __enter__(self) -> Iterator[os.DirEntry[str]]:
            (work / "a").unlink(missing_ok=True)
            os.utime(work, (BEFORE, BEFORE))
            return iter(self._entries)

        def __exit__(self, *_: object) -> None: ...

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", Sorted)
        assert find_change_since(str(work), SINCE).name == "b"


def test_what_could_not_be_looked_at_is_not_called_unchanged(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_change_since(str(work / "nowhere"), SINCE) == FoundChange(saw_all=False)
    monkeypatch.setattr(change_detection, "MOST_FILES", 3)
    assert find_change_since(str(work), SINCE) == FoundChange(saw_all=False)
