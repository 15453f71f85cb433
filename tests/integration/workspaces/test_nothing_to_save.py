"""The cheap look before a salvage: right about clean trees, and never wrong about any other."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.integration.conftest import Workshop

from holdfast.core.task_settings import DEFAULT_SALVAGE, SalvageRules
from holdfast.workspaces.git.git import Git
from holdfast.workspaces.snapshots.nothing_to_save import has_nothing_to_save


def touch_like(path: Path, text: str) -> None:
    """Another content of the same size, with the times of the old one."""
    seen = path.stat()
    path.write_text(text)
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))


STATES: Mapping[str, str | Callable[[Path], None]] = {
    "untracked": "echo new > new.txt",
    "untracked in a new directory": "mkdir -p a/b && echo new > a/b/c",
    "modified": "echo more >> README.md",
    "modified, with its old time and size": lambda tree: touch_like(tree / "README.md", "# tseT\n"),
    "mode": "chmod +x README.md",
    "mode, hidden by a setting": "git config core.fileMode false; chmod +x README.md",
    "deleted": "rm README.md",
    "staged and taken back": "echo x >> README.md; git add .; git show HEAD:README.md > README.md",
    "staged deletion": "git rm -q --cached README.md",
    "assumed unchanged": "git update-index --assume-unchanged README.md; echo more >> README.md",
    "skipped": "git update-index --skip-worktree README.md; echo more >> README.md",
    "symlink": "rm README.md; ln -s src README.md",
    "nested repository": "git init -q inside",
    "detached commit": "git checkout -q --detach; echo x > x; git add x; git commit -qm x",
    "commit that was reset": "echo x > x; git add x; git commit -qm gone; git reset -q --hard HEAD~1",
    "another branch": "git checkout -q -b other",
    "merge under way": (
        "git checkout -q -b side; echo x > x; git add x; git commit -qm x; git checkout -q -;"
        "git merge -q --no-ff --no-commit side; git reset -q --hard; git merge -q --no-ff --no-commit side"
    ),
    "excluded by a setting": "echo '*' > ../none; git config core.excludesFile $PWD/../none; echo x > x",
    "hidden by an untracked setting": "git config status.showUntrackedFiles no; echo x > x",
    "hidden by its case": "git config core.ignoreCase yes; echo x > readme.MD",
    "its own repository": "mv .git ../link; git init -q .",
    "emptied": "rm -rf * .git",
}


def test_whatever_is_unsaved_is_seen(workshop: Workshop) -> None:
    """R-TREE-13: none of these passes for a tree in which nothing was left."""
    config = Path(workshop.repo.common_dir) / "config"
    usual = config.read_text()
    missed = []
    for number, (name, state) in enumerate(STATES.items()):
        workspace, path = workshop.made(f"task{number}")
        if isinstance(state, str):
            subprocess.run(["sh", "-ec", state], cwd=path, env=workshop.fleet.env, check=True, capture_output=True)
        else:
            state(path)
        if workshop.run(has_nothing_to_save(workshop.git, workshop.repo, workspace, DEFAULT_SALVAGE)):
            missed.append(name)
        config.write_text(usual)  # worktrees share it
    assert missed == []


def test_a_clean_tree_costs_two_processes(workshop: Workshop) -> None:
    """R-TREE-08: a crash storm leaves hundreds of them. Commits on its branch cost no more."""
    workspace, path = workshop.made()
    calls: list[Sequence[str]] = []
    inner = workshop.git._runner

    async def count(argv: Sequence[str], **how: object) -> tuple[int, bytes, bytes]:
        calls.append(argv)
        return await inner(argv, **how)  # type: ignore[arg-type]  # passed on as it came

    git = Git(count)
    (path / "README.md").touch()  # the time alone is no change
    assert workshop.run(has_nothing_to_save(git, workshop.repo, workspace, DEFAULT_SALVAGE))
    assert len(calls) == 2
    assert not workshop.run(has_nothing_to_save(git, workshop.repo, workspace, SalvageRules(ignored=("*.env",))))
    commit = "echo x > x; git add x; git commit -qm x"
    subprocess.run(["sh", "-c", commit], cwd=path, env=workshop.fleet.env, check=True)
    assert workshop.run(has_nothing_to_save(git, workshop.repo, workspace, DEFAULT_SALVAGE))
    assert len(calls) == 4
    assert workshop.run(workshop.worktrees.salvage(workshop.repo, workspace, "x")) is None
    assert not (Path(workshop.home) / "shadows").exists()
