"""Who uses a workspace, as /proc tells it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from holdfast.workspaces.removal.in_use import WorkspaceUsers


def test_users_are_seen_where_the_home_is_reached_through_a_link(tmp_path: Path) -> None:
    """R-CLEAN-08: /proc tells real paths. By directory, and by an open file."""
    (tmp_path / "real" / "tree").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    path = tmp_path / "link" / "tree"
    for where, output in ((path, subprocess.DEVNULL), (tmp_path, open(path / "log", "wb"))):  # noqa: SIM115
        with subprocess.Popen(["cat"], cwd=where, stdin=subprocess.PIPE, stdout=output) as process:
            if not isinstance(output, int):
                output.close()
            assert WorkspaceUsers().of(str(path)) == [f"cat (pid {process.pid})"]
            process.communicate()


def test_who_left_since_the_last_look_is_no_user(tmp_path: Path) -> None:
    """R-CLEAN-08: what processes have open is looked at once a second; the answer is of now."""
    users, path = WorkspaceUsers(), tmp_path / "file"
    path.write_text("x")
    with (
        open(path, encoding="utf-8") as file,
        subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[file.fileno()]) as cat,
    ):
        assert users.of(str(tmp_path)) == [f"cat (pid {cat.pid})"]
    assert users.of(str(tmp_path)) == []


def test_a_new_process_is_seen_at_once_and_the_others_are_read_once_a_second(tmp_path: Path) -> None:
    """Issue 21: each removal read the open files of every process of the machine."""
    users, tree = WorkspaceUsers(), tmp_path / "tree"
    tree.mkdir()
    assert users.of(str(tree)) == []
    with subprocess.Popen(["cat"], cwd=tree, stdin=subprocess.PIPE) as process:
        assert users.of(str(tree)) == [f"cat (pid {process.pid})"]
        process.communicate()
    read: list[str] = []
    fake = tmp_path / "proc"
    for number in range(100):
        (fake / f"{1 + number}" / "fd").mkdir(parents=True)
        (fake / f"{1 + number}" / "cwd").symlink_to("/elsewhere")
    once = WorkspaceUsers(proc=str(fake))
    with pytest.MonkeyPatch.context() as patched:
        real = os.readlink

        def noted(path: str) -> str:
            read.append(path)
            return real(path)

        patched.setattr(os, "readlink", noted)
        for _ in range(10):
            once.of("/nowhere")
    assert len([path for path in read if path.startswith(str(fake))]) == 100
