"""A checkpoint: a whole workspace at one moment, kept in the shadow repository while the agent continues working.

A checkpoint is a commit like a salvage (snapshot.py), with everything that restoring it needs (checkpoint_restore.py).
Its last parent is "git state of task …". That commit holds HEAD, an operation under way, every side of a conflict and,
for a clone, its branches and stashes. It also holds the raw index, if the index differs from HEAD. The message of the
checkpoint names its parts. The agent's own git directory is only read. Index and state are copied first, and none of
our locks, refs or objects are written there.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.base import faults
from holdfast.base.concurrency import run_in_thread
from holdfast.base.errors import WorkspaceProblem
from holdfast.base.files import NotRegularFile, listed, open_beneath
from holdfast.core.model import Repo, Workspace
from holdfast.core.task_settings import SalvageRules
from holdfast.workspaces.git import git_state as gitstate
from holdfast.workspaces.git.git import Git, GitFailed
from holdfast.workspaces.git.index_entries import IndexEntry
from holdfast.workspaces.port import CheckpointResult
from holdfast.workspaces.snapshots.private_index import PrivateIndex, open_private_index
from holdfast.workspaces.snapshots.shadow_repo import ShadowRepo
from holdfast.workspaces.snapshots.snapshot import (
    BRANCHES,
    Snapshot,
    SnapshotSource,
    add_clone_branches,
    commit,
    commit_index,
    has_anything_to_take,
    list_agent_stashes,
    make_source,
    resolve_commit,
    take_snapshot,
)

TRIES = 3  # an agent may commit during a checkpoint; the last try is kept as it was seen
ABSENT = "absent"  # in the state's tree: files that a sparse checkout leaves out on purpose, each with a NUL
STASHES = "logs/refs/stash"


@dataclass(kw_only=True, slots=True)
class _GitState:
    """The state of a git directory besides the commit of HEAD."""

    copies: list[tuple[str, str]] = field(default_factory=list)  # (name in the state's tree, path of our copy)
    stages: list[IndexEntry] = field(default_factory=list)
    digest: str = ""
    lost: list[str] = field(default_factory=list)


async def take_checkpoint(
    git: Git,
    home: str,
    repo: Repo,
    workspace: Workspace,
    ref: str,
    rules: SalvageRules,
    unless: str | None = None,
    own_git: str | None = None,
) -> CheckpointResult | None:
    """Keep a checkpoint. Return None if its key would equal `unless`, or if a plain directory is empty.

    Raises WorkspaceProblem if a commit cannot hold the workspace.
    """
    shadow = ShadowRepo(home, repo, git, lender=own_git)
    for number in range(1, TRIES + 1):
        source = make_source(git, repo, workspace, own_git)
        if not await has_anything_to_take(source, own_git):
            if os.path.isdir(source.tree) and not os.path.islink(source.tree):
                return None  # a plain directory in which its agent has not written yet
            raise WorkspaceProblem(f"{workspace.path} is gone")
        before = await _read_head(source)
        await add_clone_branches(source, own_git)
        if own_git is None:
            await _add_stashes(source)
        async with shadow.held(), open_private_index(shadow, home, source.tree) as table:
            seen = await take_snapshot(shadow, table, source, rules)
            state = await _collect_state(table, source, seen)
            moved = await _read_head(source) != before
            if moved and number < TRIES:
                continue
            key = _key(source, seen, state)
            if key == unless:
                return None
            lost = [*source.lost, *seen.taken.lost, *seen.staged.lost, *state.lost]
            lost += ["HEAD, which moved meanwhile"] if moved else []
            return await _keep(shadow, table, source, seen, state, ref, key, lost)
    raise AssertionError("unreachable: the last try returns")


async def _add_stashes(source: SnapshotSource) -> None:
    try:
        source.stashes = await list_agent_stashes(
            source.git, source.common_dir, source.git_dir, source.workspace.branch
        )
    except GitFailed as error:
        if not error.answered:
            raise
        source.lost.append("the stashes of its agent")


async def _read_head(source: SnapshotSource) -> tuple[str | None, str | None]:
    if source.git_dir is None:
        return None, None
    text = None
    with (
        contextlib.suppress(OSError),
        open(open_beneath(source.git_dir, "HEAD"), "rb") as file,
    ):
        text = file.read(1024).decode(errors="replace")
    return text, await resolve_commit(source.git, source.git_dir, source.common_dir, "HEAD")


async def _collect_state(table: PrivateIndex, source: SnapshotSource, seen: Snapshot) -> _GitState:
    state = _GitState()
    if source.git_dir is None:
        return state
    folder = os.path.join(table.path, "copies")
    names = [
        name
        for name in gitstate.list_state_files(source.git_dir)
        if _is_checkpoint_state(name, clone=source.held is not None)
    ]
    said = {f"git/{name}": text for name, text in (await run_in_thread(_read, source.git_dir, names)).items()}
    entries = await _differing_entries(table, seen)
    absent = [entry.path for entry in entries or () if entry.absent and not table.is_on_disk(entry.path)]
    if absent:
        said[ABSENT] = b"".join(os.fsencode(path) + b"\0" for path in absent)
    if source.branches:
        said[BRANCHES] = source.branch_list
    state.copies = await run_in_thread(_write_copies, folder, said)
    digest = hashlib.sha256()
    for name in sorted(said):
        digest.update(f"{name}\0{len(said[name])}\0".encode(errors="surrogateescape") + said[name])
    if entries is not None:
        state.stages = seen.staged.stages
        state.copies.append(("git/index", await _copy_whole_index(table)))
        for entry in sorted(entries, key=lambda entry: (entry.path, entry.stage)):
            flags = f"{entry.hidden:d}{entry.absent:d}"
            line = f"{entry.mode} {entry.oid} {entry.stage} {flags} {entry.path}\0"
            digest.update(line.encode(errors="surrogateescape"))
    state.digest = digest.hexdigest()
    return state


def _is_checkpoint_state(name: str, *, clone: bool) -> bool:
    if name.endswith(".lock"):
        return False  # the lock of a running git of the agent
    return name == "HEAD" or gitstate.is_operation_file(name) or (clone and name == STASHES)


def _read(git_dir: str, names: Sequence[str]) -> dict[str, bytes]:
    """Read the files that still exist. The agent's git may end its operation while we read."""
    said = {}
    for name in names:
        with (
            contextlib.suppress(FileNotFoundError, NotADirectoryError, NotRegularFile),
            open(open_beneath(git_dir, name), "rb") as file,
        ):
            said[name] = file.read(gitstate.LARGEST)
    return said


def _write_copies(folder: str, said: Mapping[str, bytes]) -> list[tuple[str, str]]:
    """Write the contents to files of ours, from which git can read them. Return (name in the tree, path)."""
    copies = []
    os.makedirs(folder, exist_ok=True)
    for number, (name, content) in enumerate(said.items()):
        path = os.path.join(folder, str(number))
        faults.effect("checkpoint.copy")
        with open(path, "wb") as file:
            file.write(content)
        copies.append((name, path))
    return copies


async def _differing_entries(table: PrivateIndex, seen: Snapshot) -> list[IndexEntry] | None:
    """Return all entries of the index if it differs from HEAD, else None.

    It differs by staged, unmerged, intent-to-add, hidden or absent entries.
    """
    index = os.path.join(table.path, "staged")
    if seen.staged.damaged or not os.path.exists(index):
        return None
    entries = await table.entries(index)
    plain = all(not (entry.stage or entry.hidden or entry.absent) for entry in entries)
    # An intent-to-add entry is in no tree that git writes. Only the number of entries shows it.
    if plain and seen.staged.tree == seen.head_tree and len(entries) == seen.taken.committed:
        return None
    return entries


async def _copy_whole_index(table: PrivateIndex) -> str:
    """Copy our copy of the agent's index into one file. A split index is useless without its shared half."""
    index = os.path.join(table.path, "staged")
    if any(name.startswith("sharedindex.") for name in listed(table.path)):
        await table.run("update-index", "--no-split-index", borrow=True, index=index)
    kept = os.path.join(table.path, "copies", "index")
    faults.effect("checkpoint.index")
    shutil.copyfile(index, kept)
    return kept


def _key(source: SnapshotSource, seen: Snapshot, state: _GitState) -> str:
    words = [seen.tree, source.head or "", seen.staged.tree or "", state.digest, *sorted(source.loose)]
    return hashlib.sha256("\n".join(words).encode()).hexdigest()


async def _keep(
    shadow: ShadowRepo,
    table: PrivateIndex,
    source: SnapshotSource,
    seen: Snapshot,
    state: _GitState,
    ref: str,
    key: str,
    lost: list[str],
) -> CheckpointResult:
    task_id, head = source.workspace.task_id, source.head
    known = [head] if head else []
    index = await commit_index(shadow, source, seen)
    git_state = None
    if state.copies:
        tree = await _state_tree(table, state)
        if state.stages:  # all other objects were written to the shadow just now
            await shadow.copy_objects(tree, *known)
        git_state = await commit(shadow, tree, source.loose, f"git state of task {task_id}")
    parents = [oid for oid in (head, index, git_state) if oid]
    parts = {"head": head, "index": index, "state": git_state}
    told = "\n".join(f"{name}: {oid}" for name, oid in parts.items() if oid)
    whole = await commit(shadow, seen.tree, parents, f"Checkpoint of task {task_id}\n\n{told}")
    faults.effect("checkpoint.ref")
    await shadow.keep(ref, whole)
    details: dict[str, object] = {
        "size": seen.taken.size,
        "untracked": seen.taken.untracked,
        "unmerged": len({entry.path for entry in state.stages if entry.stage}),
        "operation": seen.operation,
        "commits": len(source.loose),
        "stashes": [commit for commit in source.stashes if commit in source.loose],
        "not_saved": lost[:20],
    }
    return CheckpointResult(
        ref=ref,
        commit=whole,
        base=head,
        files=seen.files,
        key=key,
        partial=bool(lost),
        details={name: value for name, value in details.items() if value},
    )


async def _state_tree(table: PrivateIndex, state: _GitState) -> str:
    """Write the state's tree: `git/…` the raw files, `stages/N/…` all sides of conflicts, `branches`, `absent`."""
    paths = "".join(f"{path}\n" for _name, path in state.copies)
    ids = (await table.run("hash-object", "-w", "--no-filters", "--stdin-paths", stdin=os.fsencode(paths))).split()
    lines = [("100644", oid, name) for (name, _path), oid in zip(state.copies, ids, strict=True)]
    lines += [(entry.mode, entry.oid, f"stages/{entry.stage}/{entry.path}") for entry in state.stages]
    index = os.path.join(table.path, "state")
    await table.put(lines, index=index)
    return (await table.run("write-tree", borrow=True, index=index)).strip()
