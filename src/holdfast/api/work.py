"""Bringing saved work back; how large it is."""

from __future__ import annotations

import os
from typing import Any

from holdfast.errors import Conflict, Refused
from holdfast.workspaces import git
from holdfast.workspaces.names import shadow_path

Row = dict[str, Any]


def _exists(repo: str, ref: str) -> bool:
    return os.path.isdir(repo) and git.call("show-ref", "--verify", "--quiet", ref, cwd=repo)[0] == 0


def restore(home: str, salvage: Row, branch: str) -> None:
    """Bring a salvaged commit into the user's repository as a new branch. Never touches an existing one."""
    if not os.path.isdir(salvage["repo"]):
        raise Refused(
            f"The repository {salvage['repo']} is gone; its saved work stays in {shadow_path(home, salvage['repo_id'])}"
        )
    if git.call("check-ref-format", "--branch", branch, cwd="/")[0] != 0:
        raise Refused(f"'{branch}' is not a good name for a branch.")
    if _exists(salvage["repo"], f"refs/heads/{branch}"):
        raise Conflict(f"The branch '{branch}' exists in {salvage['repo']}; choose another name.")
    code, _out, err = git.call(
        "fetch",
        "--quiet",
        "--no-tags",
        "--no-write-fetch-head",
        shadow_path(home, salvage["repo_id"]),
        f"{salvage['ref']}:refs/heads/{branch}",
        cwd=salvage["repo"],
    )
    if code != 0:
        raise Refused(f"git could not bring the saved work in: {err.strip()}")


def size_of(path: str) -> int:
    """Bytes below a directory, as far as we may look."""
    total = 0
    for folder, _names, files in os.walk(path):
        for name in files:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size
            except OSError:
                continue
    return total
