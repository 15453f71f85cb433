"""Everything that a purge would remove: Holdfast's objects in the home and in the users' repositories. The module
changes nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from holdfast.base.dataclass import dataclass
from holdfast.base.errors import WorkspaceProblem
from holdfast.base.files import listed
from holdfast.core.model import Repo, Workspace
from holdfast.core.states import WorkspaceState
from holdfast.store.sqlite.engine.store import SqliteStore
from holdfast.workspaces.git import git, worktree_entries
from holdfast.workspaces.names import OWNER_SUFFIX, REPO_LOCK, TRASH, shadow_path
from holdfast.workspaces.removal import owner_marker
from holdfast.workspaces.snapshots import bundles

if TYPE_CHECKING:
    from holdfast.api.tasks.models import JsonObject

# The names that we give in a home. Anything else in the home is not ours and is not removed.
HOME_NAMES = re.compile(
    r"holdfast\.db(-wal|-shm|-journal|\.made)?|backups|runs|workspaces|shadows|doorbell|scratch|setup-logs|reserve"
    r"|cgroups(\.trial-\d+)?|engines|leases|git-config|\.restoring"
    r"|(supervisor|helpers|turnstile|backup)\.lock|supervisor\.log(\.\d+)?|trust\.json(\.lock|\.new)?|clis\.json(\.new)?"
    r"|supervisor\.json(\.new)?|rung\.json|clock\.json(\.new)?"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RepoInventory:
    """Holdfast's objects in one repository."""

    repo: Repo
    entries: tuple[str, ...]  # paths of worktrees whose entries are ours
    branches: tuple[str, ...]  # branches that our tasks made
    has_lock: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedWork:
    """Work that exists only in the home: no branch of its repository reaches it."""

    task_id: str
    repo_id: str
    commit: str
    files: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Inventory:
    repos: tuple[RepoInventory, ...]
    workspaces: tuple[Workspace, ...]  # on disk, recorded and marked as ours
    unknown: tuple[str, ...]  # on disk with our marker, but unknown to the store
    foreign: tuple[str, ...]  # on disk without our marker: never touched
    saved: tuple[SavedWork, ...]
    tasks: Mapping[str, int]


def list_everything(home: str, store: SqliteStore, repos: list[Repo], *, whole: bool) -> Inventory:
    """Return Holdfast's objects in those repositories. `whole`: also in all other workspace directories of the home.
    The caller holds the home lock."""
    wanted = {repo.id for repo in repos}
    folders = listed(os.path.join(home, "workspaces")) if whole else sorted(wanted)
    recorded = [
        workspace for workspace in store.write(lambda tx: tx.workspaces.not_gone()) if workspace.repo_id in wanted
    ]
    by_path = {workspace.path: workspace for workspace in recorded if workspace.state is not WorkspaceState.TRASHED}
    known: list[Workspace] = []
    unknown: list[str] = []
    foreign: list[str] = []
    for path in _workspace_directories(home, folders):
        owner = owner_marker.read_owner(path)
        if path in by_path and owner == by_path[path].id:
            known.append(by_path[path])
        else:
            (unknown if owner is not None else foreign).append(path)
    rows = store.view("tasks")
    paths = {repo.path for repo in repos}
    tasks = [row for row in rows if row["repo"] in paths]
    counts: dict[str, int] = {}
    for row in tasks:
        counts[row["state"]] = counts.get(row["state"], 0) + 1
    return Inventory(
        repos=tuple(_in_repo(home, repo, tasks, set(foreign)) for repo in repos),
        workspaces=tuple(known),
        unknown=tuple(unknown),
        foreign=tuple(foreign),
        saved=tuple(_find_unbranched_work(home, store, repos)),
        tasks=counts,
    )


def _workspace_directories(home: str, folders: list[str]) -> Iterator[str]:
    root = os.path.join(home, "workspaces")
    for folder in folders:
        for name in listed(os.path.join(root, folder)):
            if folder != TRASH and not name.endswith((OWNER_SUFFIX, f"{OWNER_SUFFIX}.new")):
                yield os.path.join(root, folder, name)


def _in_repo(home: str, repo: Repo, tasks: list[JsonObject], foreign: set[str]) -> RepoInventory:
    if not os.path.isdir(repo.common_dir):
        return RepoInventory(repo=repo, entries=(), branches=(), has_lock=False)
    root = os.path.realpath(os.path.join(home, "workspaces", repo.id)) + "/"
    folder = os.path.join(repo.common_dir, "worktrees")
    trees = [worktree_entries.read_worktree_path(os.path.join(folder, name)) for name in listed(folder)]
    entries = [tree for tree in trees if tree is not None and tree.startswith(root) and tree not in foreign]
    made = {f"refs/heads/{row['branch']}" for row in tasks if row["repo"] == repo.path and row["branch"]}
    _code, out, _err = git.run_sync("for-each-ref", "--format=%(refname)", "refs/heads/holdfast/", cwd=repo.common_dir)
    return RepoInventory(
        repo=repo,
        entries=tuple(entries),
        branches=tuple(ref.removeprefix("refs/heads/") for ref in out.split() if ref in made),
        has_lock=os.path.exists(os.path.join(repo.common_dir, REPO_LOCK)),
    )


def _find_unbranched_work(home: str, store: SqliteStore, repos: list[Repo]) -> Iterator[SavedWork]:
    """Yield saved work that no branch has. The shadow repositories are read instead of the store: after a restore they
    hold saved work that the store does not know."""
    files = {row["commit"]: int(row["files"]) for row in store.view("salvages", task=None)}
    for repo in repos:
        for ref, commit in sorted(_list_shadow_refs(shadow_path(home, repo.id)).items()):
            if not _is_on_a_branch(repo, commit):
                task_id = ref.split("/")[2]  # refs/salvage/TASK/WORKSPACE. Refs of restored work have the same form
                yield SavedWork(task_id=task_id, repo_id=repo.id, commit=commit, files=files.get(commit, 0))


def _list_shadow_refs(shadow: str) -> dict[str, str]:
    """Return the refs of a shadow repository as ref → commit. The result is empty if an earlier purge has begun to
    delete it."""
    try:
        found = bundles.list_saved_work(shadow) if os.path.isdir(shadow) else {}
    except WorkspaceProblem:
        return {}
    return {ref: commit for commit, ref in {commit: ref for ref, commit in sorted(found.items(), reverse=True)}.items()}


def _is_on_a_branch(repo: Repo, commit: str) -> bool:
    if not os.path.isdir(repo.common_dir):
        return False
    code, out, _err = git.run_sync(
        "for-each-ref", f"--contains={commit}", "--count=1", "refs/heads", cwd=repo.common_dir
    )
    return code == 0 and bool(out.strip())


def list_foreign_names(home: str) -> list[str]:
    """Return the names in the home that are not ours."""
    return [name for name in listed(home) if not HOME_NAMES.fullmatch(name) and name != "purge.json"]
