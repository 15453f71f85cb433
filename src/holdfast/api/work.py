"""A task's work in git: what it changed, and bringing saved work back."""

from __future__ import annotations

import os
from typing import Any

from holdfast.errors import Conflict, NotFound, Refused
from holdfast.workspaces import git
from holdfast.workspaces.names import shadow_path

Row = dict[str, Any]


def diff(home: str, task: Row, *, stat: bool) -> str:
    """The task's changes against its base: from its living workspace, else its branch, else its last salvage."""
    options = ["--color=never", *(["--stat"] if stat else [])]
    base = task["base_commit"]
    workspace = task["workspace"]
    if workspace["state"] in ("ready", "preserved") and base and os.path.isdir(workspace["path"]):
        return _diff(workspace["path"], [*options, base])
    if base and task["branch"] and _exists(task["repo"], f"refs/heads/{task['branch']}"):
        return _diff(task["repo"], [*options, f"{base}..refs/heads/{task['branch']}"])
    if task["salvages"]:
        newest = task["salvages"][-1]
        since = newest["base"] or git.call("hash-object", "-t", "tree", "/dev/null", cwd="/")[1].strip()
        return _diff(shadow_path(home, newest["repo_id"]), [*options, since, newest["commit"]])
    if task["state"] == "completed" and base:
        return ""  # its branch had no commit and was removed: it changed nothing
    raise NotFound(
        f"Task {task['id']} has no workspace, branch or saved work to compare; see `holdfast why {task['id']}`."
    )


def _diff(directory: str, arguments: list[str]) -> str:
    code, out, err = git.call("diff", "--no-ext-diff", "--no-textconv", *arguments, cwd=directory)
    if code != 0:
        raise Refused(f"git could not compare: {err.strip()}")
    return out


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
