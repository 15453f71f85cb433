"""Every name we give to things outside the store, in one place (R-TREE-12)."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping

from holdfast.core.model import Workspace

BRANCH_PREFIX = "holdfast/"
OUR_NAME, OUR_EMAIL = "Holdfast", "holdfast@localhost"  # the identity of commits where the user has none
IDENTITY = ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL")
DELETING_NOTE = "holdfast.deleting"  # in the git common directory: we are deleting a branch; packed-refs.lock is ours
REPO_LOCK = "holdfast.lock"  # in the git common directory: two homes may share a repository
TRASH = ".trash"  # next to the workspaces, on the same file system
OWNER_SUFFIX = ".owner.json"  # next to the workspace, never inside: the marker must not be committed
SETUP_LOGS = "setup-logs"
WORKSPACES = "workspaces"  # in the home; one folder per repository below it
TRASHED_SUFFIX = ".trashed.json"  # the marker's second name, next to the deleted workspace in the trash
STRANDED_PREFIX = ".trash-"  # in a repository's folder: trash that could not be moved out of the folder
SALVAGE_REFS = "refs/salvage/"  # in the shadow repository only
CHECKPOINT_REFS = "refs/checkpoint/"  # in the shadow repository only, one per task and number


def our_identity() -> dict[str, str]:
    """Return the variables that make git commit as Holdfast."""
    return {name: OUR_EMAIL if name.endswith("EMAIL") else OUR_NAME for name in IDENTITY}


def identity_in(variables: object) -> dict[str, str]:
    """Return the variables of an environment that name author and committer, without values that git would refuse."""
    found = variables if isinstance(variables, Mapping) else {}
    return {name: value for name in IDENTITY if (value := str(found.get(name) or "")).strip() and value.isprintable()}


def task_branch(task_id: str, generation: int) -> str:
    """Return the branch of a task. A retry from the base gets its own branch, so that earlier commits are kept."""
    return f"{BRANCH_PREFIX}{task_id}" if generation == 0 else f"{BRANCH_PREFIX}{task_id}-r{generation}"


def member_workspace_name(task_id: str, member: str) -> str:
    """Return the name of the workspace of a member of a parallel stage. The member's branch uses it too."""
    return f"{task_id}--{member}"


def member_branch(task_id: str, member: str, number: int) -> str:
    """Return the branch of a member's workspace. Each new start has its own branch, so earlier commits are kept."""
    return f"{BRANCH_PREFIX}{member_workspace_name(task_id, member)}" + ("" if number == 1 else f".{number}")


def workspace_path(home: str, repo_id: str, task_id: str) -> str:
    """Return the same path for every attempt of a task, because an agent's session resumes only at its old path."""
    return os.path.join(home, WORKSPACES, repo_id, task_id)


def trash_path(home: str, workspace_id: str) -> str:
    return os.path.join(home, WORKSPACES, TRASH, workspace_id)


def stranded_path(path: str, workspace_id: str) -> str:
    """Return the name, next to `path`, for a workspace that cannot be moved to the trash."""
    return os.path.join(os.path.dirname(path), f"{STRANDED_PREFIX}{workspace_id}")


def half_made_path(home: str, workspace_id: str) -> str:
    """Return the path to which a half-made workspace is moved before it is made again."""
    return trash_path(home, f"{workspace_id}-half-made")


def shadow_path(home: str, repo_id: str) -> str:
    return os.path.join(home, "shadows", f"{repo_id}.git")


def salvage_ref(task_id: str, workspace_id: str) -> str:
    return f"{SALVAGE_REFS}{task_id}/{workspace_id}"


def checkpoint_ref(task_id: str, number: int, fence: int = 0) -> str:
    """Return the ref of a checkpoint. The owner's fence is part of it: a former owner cannot overwrite a newer one."""
    return f"{CHECKPOINT_REFS}{task_id}/{number}-{fence}"


def setup_log(home: str, workspace: Workspace, kind: str) -> str:
    """Return the log of the `setup` or `teardown` commands. It is outside the workspace, which it outlives."""
    return os.path.join(setup_logs(home), f"{workspace.task_id}.{workspace.id}.{kind}.log")


def setup_logs(home: str) -> str:
    return os.path.join(home, SETUP_LOGS)


def repo_gone_message(repo_path: str, then: str) -> str:
    """Return the message for a repository that is no longer at its path. `then`: the command that follows the fix."""
    return (
        f"The repository {repo_path} is gone. Put it back; or, if it was moved, go to its new directory and type "
        f"`holdfast init --moved-from {shlex.quote(repo_path)}`. Then `{then}`"
    )
