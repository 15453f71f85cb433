"""What was seen of ours (disk, repositories, processes), and what the ledger says: values to be compared."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.core.model import Workspace
from holdfast.core.states import TASK_TERMINAL, TaskState

LOCK_WORDS = "holdfast task="  # how our entries under `.git/worktrees` are locked
_TRASHED = re.compile(r"(?:\.trash-)?([a-z0-9]+)(-half-made)?(\.deep-.*|\.trashed\.json)?")
_BRANCH = re.compile(r"holdfast/([a-z0-9]+)(-r\d+|--[A-Za-z0-9_-]+)?")


# -- what was seen -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """What an owner marker says."""

    workspace: str
    task: str
    repo: str
    path: str
    branch: str | None = None
    base_commit: str | None = None
    member: str = ""  # of a parallel stage


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """One name among our workspaces: a directory, a marker, or both."""

    path: str
    repo: str  # the folder it lies in, named after its repository
    is_there: bool
    mark: Mark | None = None
    spare_mark: bool = False  # `….owner.json.new`: the marker was being written
    git_entry_of: str | None = None  # the task whose lock holds the git entry that its `.git` names


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A directory under `.git/worktrees` that stands for a tree of ours, or is locked with our words."""

    repo: str
    folder: str
    tree: str | None  # None: no `gitdir` in it; its making or its removal was interrupted
    tree_is_there: bool
    locked_for: str | None  # the task that its lock names


@dataclass(frozen=True, kw_only=True, slots=True)
class Branch:
    repo: str
    name: str
    tip: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Stray:
    """A process that carries the marker of a run of this home, or works in a workspace of it."""

    pid: int
    start_ticks: int
    run: str | None  # by its marker
    place: str | None  # the workspace that it works in
    proven: bool = False  # it has that run's own token: nobody else can know it
    kept: bool = False  # a keeper of that run lives


@dataclass(frozen=True, kw_only=True, slots=True)
class Container:
    """A container with our labels, as its engine tells."""

    id: str
    run: str | None
    task: str | None
    running: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """Everything that was seen, before the ledger is read: what was finished in between is settled there by then."""

    places: Sequence[Place] = ()
    entries: Sequence[Entry] = ()
    branches: Sequence[Branch] = ()
    trash: Sequence[str] = ()  # paths, in the trash or beside a workspace that could not be moved there
    strays: Sequence[Stray] = ()
    containers: Sequence[Container] = ()
    odd: Sequence[str] = ()  # names that we do not give
    unseen: Sequence[tuple[str, str]] = ()  # where we could not look, and why

    def tasks(self) -> set[str]:
        """Every task that something here names."""
        marked = {place.mark.task for place in self.places if place.mark is not None}
        locked = {entry.locked_for for entry in self.entries if entry.locked_for is not None}
        trees = {entry.tree.rpartition("/")[2] for entry in self.entries if entry.tree is not None}
        return marked | locked | trees | {task for branch in self.branches if (task := task_of_branch(branch.name))}


def task_of_branch(name: str) -> str | None:
    found = _BRANCH.fullmatch(name)
    return found.group(1) if found else None


def workspace_of_trash(path: str) -> str | None:
    """Whose remains they are; None: not a name that we give."""
    found = _TRASHED.fullmatch(path.rpartition("/")[2])
    return found.group(1) if found else None


# -- what the ledger says ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Holding:
    """A workspace that is not gone, and how its task is."""

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
    holdings: Sequence[Holding] = ()
    tasks: Mapping[str, KnownTask] = field(default_factory=dict)  # of those that the scene names
    open_runs: frozenset[str] = frozenset()
