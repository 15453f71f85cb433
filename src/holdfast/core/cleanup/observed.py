"""The observed state of disk, repositories and processes, and the state in the ledger: the values that a sweep
compares."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field

from holdfast.base.dataclass import dataclass
from holdfast.core.model import Workspace
from holdfast.core.states import TASK_TERMINAL, TaskState

LOCK_TEXT = "holdfast task="  # the lock text of our entries under `.git/worktrees`
_TRASHED = re.compile(r"(?:\.trash-)?([a-z0-9]+)(-half-made)?(\.deep-.*|\.trashed\.json)?")
_BRANCH = re.compile(r"holdfast/([a-z0-9]+)(-r\d+|--[A-Za-z0-9_-]+)?")


# -- observed
# ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnerMarker:
    """The content of an owner marker."""

    workspace: str
    task: str
    repo: str
    path: str
    branch: str | None = None
    base_commit: str | None = None
    member: str = ""  # of a parallel stage


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkspacePath:
    """One name in the folder of workspaces: a directory, a marker, or both."""

    path: str
    repo: str  # the folder that contains it, named after its repository
    is_there: bool
    mark: OwnerMarker | None = None
    spare_mark: bool = False  # `….owner.json.new`: the marker was being written
    git_entry_of: str | None = None  # the task whose lock holds the git entry that the workspace's `.git` names


@dataclass(frozen=True, kw_only=True, slots=True)
class WorktreeEntry:
    """A directory under `.git/worktrees` that belongs to a workspace of ours, or is locked with our lock text."""

    repo: str
    folder: str
    tree: str | None  # None: it has no `gitdir`, because its making or its removal was interrupted
    tree_is_there: bool
    locked_for: str | None  # the task that its lock names


@dataclass(frozen=True, kw_only=True, slots=True)
class ObservedBranch:
    repo: str
    name: str
    tip: str


@dataclass(frozen=True, kw_only=True, slots=True)
class StrayProcess:
    """A process that carries the marker of a run of this home, or works in one of its workspaces."""

    pid: int
    start_ticks: int
    run: str | None  # by its marker
    place: str | None  # the workspace that the process works in
    proven: bool = False  # the process has that run's own token, which cannot be guessed
    kept: bool = False  # a keeper of that run lives


@dataclass(frozen=True, kw_only=True, slots=True)
class Container:
    """A container with our labels, as its engine reports it."""

    id: str
    run: str | None
    task: str | None
    running: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ObservedState:
    """Everything that was observed. The observation comes before the ledger is read, so whatever ended in between is
    settled in the ledger by then."""

    places: Sequence[WorkspacePath] = ()
    entries: Sequence[WorktreeEntry] = ()
    branches: Sequence[ObservedBranch] = ()
    trash: Sequence[str] = ()  # paths, in the trash or next to a workspace that could not be moved there
    strays: Sequence[StrayProcess] = ()
    containers: Sequence[Container] = ()
    odd: Sequence[str] = ()  # names that we do not give
    unseen: Sequence[tuple[str, str]] = ()  # paths that could not be read, and why

    def tasks(self) -> set[str]:
        """Return every task that something in this scene names."""
        marked = {place.mark.task for place in self.places if place.mark is not None}
        locked = {entry.locked_for for entry in self.entries if entry.locked_for is not None}
        trees = {entry.tree.rpartition("/")[2] for entry in self.entries if entry.tree is not None}
        return marked | locked | trees | {task for branch in self.branches if (task := task_of_branch(branch.name))}


def task_of_branch(name: str) -> str | None:
    found = _BRANCH.fullmatch(name)
    return found.group(1) if found else None


def workspace_of_trash(path: str) -> str | None:
    """Return the workspace whose remains are at `path`. None: Holdfast does not give such names."""
    found = _TRASHED.fullmatch(path.rpartition("/")[2])
    return found.group(1) if found else None


# -- ledger
# --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class LedgerWorkspace:
    """A workspace that is not gone, and the state of its task."""

    workspace: Workspace
    task_state: TaskState

    @property
    def is_finished(self) -> bool:
        return self.task_state in TASK_TERMINAL


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownTask:
    state: TaskState
    branch: str | None
    base_commit: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Ledger:
    holdings: Sequence[LedgerWorkspace] = ()
    tasks: Mapping[str, KnownTask] = field(default_factory=dict)  # only tasks that the scene names
    open_runs: frozenset[str] = frozenset()
