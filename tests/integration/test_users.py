"""Who uses a workspace, as /proc tells it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from holdfast.workspaces.lease import Users


def test_users_are_seen_where_the_home_is_reached_through_a_link(tmp_path: Path) -> None:
    """R-CLEAN-08: /proc tells real paths. By directory, and by an open file."""
    (tmp_path / "real" / "tree").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    path = tmp_path / "link" / "tree"
    for where, output in ((path, subprocess.DEVNULL), (tmp_path, open(path / "log", "wb"))):  # noqa: SIM115
        with subprocess.Popen(["cat"], cwd=where, stdin=subprocess.PIPE, stdout=output) as process:
            if not isinstance(output, int):
                output.close()
            assert Users().of(str(path)) == [f"cat (pid {process.pid})"]
            process.communicate()
