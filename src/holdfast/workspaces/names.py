"""Every name we give to things outside the store, in one place (R-TREE-12)."""

from __future__ import annotations

import os
import shlex

from holdfast.core.model import Workspace

BRANCH_PREFIX = "holdfast/"
DELETING_NOTE = "holdfast.deleting"  # there as well: a branch is being deleted, and packed-refs.lock is ours
REPO_LOCK = "holdfast.lock"  # in the git common directory: two homes may share a repository
TRASH = ".trash"  # beside the workspaces, on their file system
OWNER_SUFFIX = ".owner.json"  # beside the workspace, never in it: it must not be committed
SETUP_LOGS = "setup-logs"
WORKSPACES = "workspaces"  # in the home; one folder per repository below it
TRASHED_SUFFIX = ".trashed.json"  # the marker's second name, beside what is in the trash
STRANDED_PREFIX = ".trash-"  # in a repository's folder: what could not be moved out of it, but is trash
SALVAGE_REFS = "refs/salvage/"  # in the shadow repository only
CHECKPOINT_REFS = "refs/checkpoint/"  # there as well, one per task and number


def branch_of(task_id: str, generation: int) -> str:
    """The branch of a task; a retry from the base gets its own, so that earlier commits stay where they are."""
    return f"{BRANCH_PREFIX}{task_id}" if generation == 0 else f"{BRANCH_PREFIX}{task_id}-r{generation}"


def of_member(task_id: str, member: str) -> str:
    """How the own workspace of a member of a parallel stage, and its branch, are named beside those of its task."""
    return f"{task_id}--{member}"


def branch_of_member(task_id: str, member: str, number: int) -> str:
    """Of its first workspace, or of a later one that begins anew: what it committed before stays where it is."""
    return f"{BRANCH_PREFIX}{of_member(task_id, member)}" + ("" if number == 1 else f".{number}")


def workspace_path(home: str, repo_id: str, task_id: str) -> str:
    """The same path for every attempt of a task: an agent's session resumes only where it was."""
    return os.path.join(home, WORKSPACES, repo_id, task_id)


def trash_path(home: str, workspace_id: str) -> str:
    return os.path.join(home, WORKSPACES, TRASH, workspace_id)


def stranded_path(path: str, workspace_id: str) -> str:
    """Where the workspace at `path` goes when it cannot be moved to the trash: a name beside it."""
    return os.path.join(os.path.dirname(path), f"{STRANDED_PREFIX}{workspace_id}")


def half_made_path(home: str, workspace_id: str) -> str:
    """Where a try that was interrupted goes before it is made again."""
    return trash_path(home, f"{workspace_id}-half-made")


def shadow_path(home: str, repo_id: str) -> str:
    return os.path.join(home, "shadows", f"{repo_id}.git")


def salvage_ref(task_id: str, workspace_id: str) -> str:
    return f"{SALVAGE_REFS}{task_id}/{workspace_id}"


def checkpoint_ref(task_id: str, number: int, fence: int = 0) -> str:
    """With the fence of whoever takes it: one that was usurped meanwhile does not write over the next one's."""
    return f"{CHECKPOINT_REFS}{task_id}/{number}-{fence}"


def setup_log(home: str, workspace: Workspace, kind: str) -> str:
    """What set-up (`setup`) or `teardown` commands print. Not in the workspace: it outlives it, like a run's output."""
    return os.path.join(setup_logs(home), f"{workspace.task_id}.{workspace.id}.{kind}.log")


def setup_logs(home: str) -> str:
    return os.path.join(home, SETUP_LOGS)


def gone(repo_path: str, task_id: str) -> str:
    """What to say, and what to do, when a repository is not where it was."""
    return (
        f"The repository {repo_path} is gone. Put it back; or, if it was moved, go to its new place and type "
        f"`holdfast init --moved-from {shlex.quote(repo_path)}`. Then `holdfast retry {task_id}`."
    )
