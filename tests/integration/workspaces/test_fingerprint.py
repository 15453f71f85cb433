"""What changed in a repository outside our prefix, by reading its files (R-TREE-16)."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.integration.conftest import Workshop

from holdfast.processes.open_files import is_git_lock_in_use
from holdfast.workspaces.git.fingerprint import PACKED, RECORD, Fingerprints, list_shared_locks

OTHER = "/no/workspace"


def test_only_what_is_outside_our_prefix_counts(workshop: Workshop) -> None:
    """Our branches (also pushed ones, and what `push -u` notes), packing and samples are no change; all else is one."""
    git, common = workshop.fleet.git, workshop.repo.common_dir
    folder = str(workshop.fleet.root / "run")
    git("tag", "old")
    git("branch", "side")
    prints = Fingerprints()
    prints.note(common, folder, OTHER)
    git("branch", "holdfast/mine")
    git("update-ref", "refs/remotes/origin/holdfast/mine", "main")
    git("config", "branch.holdfast/mine.remote", "origin")
    git("pack-refs", "--all")
    assert prints.compare(common, folder, OTHER) is None
    assert Fingerprints().compare(common, folder, OTHER) is None  # as the next supervisor compares

    git("commit", "--quiet", "--allow-empty", "-m", "More")
    git("tag", "-d", "old")
    git("update-ref", "refs/stash", "main")
    git("config", "core.fsmonitor", "touch owned")
    (Path(common) / "hooks" / "pre-commit").write_text("#!/bin/sh\n")
    os.mkfifo(Path(common) / "hooks" / "post-commit")  # must not be waited for
    changes = prints.compare(common, folder, OTHER)
    assert changes is not None
    assert changes.names == [
        "config core.fsmonitor", "hooks/post-commit", "hooks/pre-commit", "refs/heads/main", "refs/stash",
        "refs/tags/old",
    ]  # fmt: skip
    assert changes.alarming == ["config core.fsmonitor", "hooks/post-commit", "hooks/pre-commit"]
    again = Fingerprints().compare(common, folder, OTHER)
    assert again is not None
    assert again.digest == changes.digest
    Path(folder, PACKED).write_bytes(b"forged")
    spoilt = prints.compare(common, folder, OTHER)
    assert spoilt is None or "refs/heads/main" in spoilt.names
    Path(folder, RECORD).write_text("[1]")
    assert prints.compare(common, folder, OTHER) is None
    prints.forget(folder)
    assert os.listdir(folder) == []


def test_ten_thousand_refs_are_cheap(workshop: Workshop) -> None:
    """R-TREE-16: loose or packed; the bound is generous for a loaded machine, the numbers are in the report."""
    common = workshop.repo.common_dir
    tip = workshop.fleet.git("rev-parse", "HEAD")
    (Path(common) / "refs" / "tags").mkdir(exist_ok=True)
    for number in range(2000):
        Path(common, "refs", "tags", f"t{number}").write_text(f"{tip}\n")
    with Path(common, "packed-refs").open("w") as packed:
        packed.writelines(f"{tip} refs/tags/p{number}\n" for number in range(10_000))
    folder, prints = str(workshop.fleet.root / "run"), Fingerprints()
    prints.note(common, folder, OTHER)
    began = time.process_time()
    assert prints.compare(common, folder, OTHER) is None
    assert time.process_time() - began < 1.0
    Path(common, "refs", "tags", "t7").unlink()
    changes = prints.compare(common, folder, OTHER)
    assert changes is not None
    assert changes.refs == {"refs/tags/t7": ""}


def test_locks_that_lie_around_and_who_may_hold_them(workshop: Workshop) -> None:
    """R-TREE-15: ours are not among them; a lock that is open, or a git at work in the repository, is no stale one."""
    common = Path(workshop.repo.common_dir)
    locks = [common / name for name in ("index.lock", "refs/heads/main.lock")]
    for lock in [*locks, common / "holdfast.lock", common / "refs/heads/holdfast/x.lock"]:
        lock.parent.mkdir(exist_ok=True)
        lock.touch()
    assert list_shared_locks(str(common)) == [str(lock) for lock in locks]
    folders = [workshop.repo.path]
    assert not is_git_lock_in_use(str(locks[0]), folders)
    with workshop.holding(str(locks[0])):
        assert is_git_lock_in_use(str(locks[0]), folders)
    with workshop.git_at_work():
        assert is_git_lock_in_use(str(locks[0]), folders)
        assert not is_git_lock_in_use(str(locks[0]), [workshop.home])
    assert not is_git_lock_in_use(str(common / "none.lock"), folders)
