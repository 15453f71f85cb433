"""Read models of work: workspaces, salvages, checkpoints, diffs, branches.

Each model is a TypedDict: a plain dict at run time, with the field names of docs/reference/json.md. Modules import
this file for type checks only, so that `holdfast ps` does not pay for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from holdfast.api.tasks.models import JsonObject
    from holdfast.api.work.workspaces import Size


class TaskWorkspace(TypedDict):
    """A task's newest workspace. Without a workspace there are only strategy, path and state, and the last two are
    None."""

    id: NotRequired[str]
    strategy: str
    path: str | None
    state: str | None
    branch: NotRequired[str | None]
    base_commit: NotRequired[str | None]
    disposition: NotRequired[str | None]
    reason: NotRequired[str | None]
    expires_at: NotRequired[float | None]
    container: NotRequired[str | None]


class WorkspaceRow(TypedDict):
    """The workspace of a task."""

    id: str
    task: str
    strategy: str
    path: str
    state: str
    branch: str | None
    reason: str | None
    disposition: str | None
    created_at: float
    updated_at: float
    failures: int
    retry_at: float | None
    expires_at: float | None
    container: str | None
    task_state: str
    repo: str
    common_dir: str
    size: NotRequired[int | None]  # bytes; None: nothing of ours on disk


class WorkspaceLine(TypedDict):
    """A workspace or a leftover as the workspaces screen lists it. A leftover has only the required fields."""

    key: str
    place: str
    size: Size | None
    task: str | None
    task_state: str | None
    state: str
    strategy: str
    path: str
    reason: str | None
    created_at: float | None
    id: NotRequired[str]
    branch: NotRequired[str | None]
    disposition: NotRequired[str | None]
    updated_at: NotRequired[float]
    failures: NotRequired[int]
    retry_at: NotRequired[float | None]
    expires_at: NotRequired[float | None]
    container: NotRequired[str | None]
    repo: NotRequired[str]
    common_dir: NotRequired[str]


class LeftoverRow(TypedDict):
    """Something on disk that has no workspace row, or differs from its row."""

    key: str
    task: None
    task_state: None
    state: str
    strategy: str
    path: str
    reason: str
    created_at: None


class KeptRow(TypedDict):
    """A workspace that is kept for longer."""

    task: str
    path: str | None
    state: str | None
    expires_at: float | None


class CleanedRow(TypedDict):
    """A preserved workspace that will be salvaged and removed."""

    task: str


class SalvageRow(TypedDict):
    """Work that was saved before its workspace was removed."""

    id: str
    task: str
    ref: str
    commit: str
    base: str | None
    files: int
    reason: str
    created_at: float
    repo_id: str
    repo: str
    partial: bool
    details: JsonObject
    workspace: str
    task_state: str
    taken_up: bool  # a later workspace of the task began with it
    size: NotRequired[int | None]
    expires_at: NotRequired[float | None]


class ChangedFile(TypedDict):
    """A file that saved work changes."""

    status: str  # A, M, D or T
    path: str


class CheckpointRow(TypedDict):
    """A snapshot of a workspace, taken while its agent worked."""

    number: int
    at: float
    why: str
    commit: str
    session: str | None
    files: int
    partial: bool
    stage: int
    run: str | None
    output_offset: int
    base: str | None
    ref: str
    repo_id: str
    details: JsonObject


class DiffGlance(TypedDict):
    """The start of a diff for a screen."""

    summary: str
    text: str
    is_cut: bool


class BranchRow(TypedDict):
    """A branch of a task."""

    branch: str
    repo: str
    commit: str
    task: str | None
    task_state: str | None
    merged_into: str | None
    stays: str | None  # why it may not be deleted


class PrunedBranchRow(BranchRow):
    """A branch that may be deleted."""

    deleted: bool


class MergedRow(TypedDict):
    """A merge of a task's branch."""

    task: str
    branch: str
    into: str
    commit: str
    how: str  # fast-forward, merge commit, squash or already there


class SalvageFiles(SalvageRow):
    """Saved work with its files."""

    changed: list[ChangedFile]


class SalvagePatch(SalvageRow):
    """Saved work as a patch."""

    patch: str


class SalvageRestoredRow(TypedDict):
    """Saved work that was restored."""

    salvage: str
    task: str
    branch: str | None
    to: str | None


class SalvageDroppedRow(SalvageRow):
    """Saved work that was deleted, or with --dry-run would be."""

    dropped: bool


class PullRequestRow(TypedDict):
    """A pull request. Without `gh`, its branch was pushed only."""

    task: str
    branch: str
    base: str
    remote: str
    urls: list[str]  # where the branch was pushed to
    opened: bool
    page: str | None  # of the pull request, or where to open it
