"""Salvage: saves what no branch holds, before a workspace is removed. If that fails, the workspace is preserved.

A salvage is a commit in the shadow repository. Its tree is the work tree, byte for byte: everything that git would add.
Its parents are, in this order:
- the agent's HEAD.
- "index of task …", if the index holds something else.
- "git state of task …", if an operation was under way or commits are on no branch. Its tree has the raw files and every
  stage of a conflict. Those commits are its parents.
- the earlier salvage of the same workspace, because the new commit takes over its ref and must not lose it.
"""

from __future__ import annotations

import os

from holdfast.base import faults
from holdfast.base.errors import WorkspaceProblem
from holdfast.core.model import Repo, Workspace
from holdfast.core.task_settings import DEFAULT_SALVAGE, SalvageRules
from holdfast.workspaces import scratch
from holdfast.workspaces.git import git_state, refs
from holdfast.workspaces.git.git import Git
from holdfast.workspaces.names import salvage_ref
from holdfast.workspaces.port import CheckpointResult, SalvageResult
from holdfast.workspaces.snapshots.collect_files import StagedContent
from holdfast.workspaces.snapshots.private_index import PrivateIndex, open_private_index
from holdfast.workspaces.snapshots.shadow_repo import ShadowRepo
from holdfast.workspaces.snapshots.snapshot import (
    BRANCHES,
    Snapshot,
    SnapshotSource,
    add_clone_branches,
    bring_branch,
    commit,
    commit_index,
    has_anything_to_take,
    make_source,
    take_snapshot,
)


async def salvage_workspace(
    git: Git,
    home: str,
    repo: Repo,
    workspace: Workspace,
    reason: str,
    rules: SalvageRules = DEFAULT_SALVAGE,
    own_git: str | None = None,
    *,
    tree: str | None = None,
    over: str | None = None,
) -> SalvageResult | None:
    """Save the workspace. None: work tree, index and git directory hold nothing that the task's branch does not.

    Raises WorkspaceProblem if a commit could not hold the work. `own_git`: the `.git` of a workspace that is a clone.
    `tree`: where the directory is now, if it was renamed. `over`: a checkpoint that is about to be restored. That moves
    the branch and overwrites files. So the branch's tip, and every file in the way, count as work to save.
    """
    source = make_source(git, repo, workspace, own_git, tree)
    if not await has_anything_to_take(source, own_git):
        return None
    await add_clone_branches(source, own_git, everything=True)
    shadow = ShadowRepo(home, repo, git, lender=own_git)
    async with shadow.held(), open_private_index(shadow, home, source.tree) as table:
        seen = await take_snapshot(shadow, table, source, rules, over)
        if over is not None:
            await bring_branch(shadow, source)
        return await _keep(shadow, table, source, seen, reason, is_set_aside=over is not None)


async def _keep(
    shadow: ShadowRepo, table: PrivateIndex, source: SnapshotSource, seen: Snapshot, reason: str, *, is_set_aside: bool
) -> SalvageResult | None:
    workspace, head, staged = source.workspace, source.head, seen.staged
    has_state = bool(seen.operation or staged.stages or staged.damaged or source.loose)
    detached = not await _branch_reaches_head(source)
    lost = [*source.lost, *seen.taken.lost, *staged.lost]
    if not (seen.files or seen.index_matters or has_state or detached or lost or is_set_aside):
        return None
    index = await commit_index(shadow, source, seen)
    parents = [oid for oid in (head, index) if oid]
    if has_state and source.git_dir is not None:
        state = await _state_tree(table, source, source.git_dir, staged)
        await shadow.copy_objects(state, *([head] if head else []))
        parents.append(await commit(shadow, state, source.loose, f"git state of task {workspace.task_id}"))
    ref = salvage_ref(workspace.task_id, workspace.id)
    earlier = await refs.resolve_ref(source.git, shadow.path, ref)
    parents += [earlier] if earlier is not None and await shadow.has(earlier) else []
    saved = await commit(shadow, seen.tree, parents, f"Work of task {workspace.task_id}, saved by Holdfast: {reason}")
    await _write_ref(shadow, ref, saved)
    details: dict[str, object] = {
        "size": seen.taken.size,
        "untracked": seen.taken.untracked,
        "index": "damaged" if staged.damaged else "unmerged" if staged.stages else "saved" if index else None,
        "unmerged": len({entry.path for entry in staged.stages if entry.stage}),
        "operation": seen.operation,
        "commits": len(source.loose),
        "detached": detached,
        "not_saved": lost[:20],
        "set_aside": is_set_aside,  # the task went back to a checkpoint: no later workspace starts with this work
    }
    return SalvageResult(
        ref=ref,
        commit=saved,
        base=head,
        files=seen.files,
        partial=bool(lost),
        details={name: value for name, value in details.items() if value},
    )


async def _write_ref(shadow: ShadowRepo, ref: str, saved: str) -> None:
    faults.effect("salvage.ref")
    await shadow.keep(ref, saved)
    faults.passed("salvage.saved")


async def _branch_reaches_head(source: SnapshotSource) -> bool:
    """True if the base or the task's branch reaches the agent's HEAD. Otherwise its commits are on no branch of ours.

    A clone whose agent committed nothing has no branch in the user's repository: its HEAD is the base.
    """
    head, base = source.head, source.workspace.base_commit
    if head is None or head == base:
        return True
    for known in (f"refs/heads/{source.workspace.branch}", *([base] if base else [])):
        if await source.git.ok("merge-base", "--is-ancestor", head, known, cwd=source.repo.common_dir):
            return True
    return False


async def _state_tree(table: PrivateIndex, source: SnapshotSource, git_dir: str, staged: StagedContent) -> str:
    """Write the tree of the git state.

    `git/…` has the raw files, `stages/N/…` all sides of conflicts, `branches` the refs of a clone that no branch of the
    user's repository holds.
    """
    names = list(git_state.list_state_files(git_dir))
    if staged.stages or staged.damaged:
        names.append("index")
    paths = "".join(f"{os.path.join(git_dir, name)}\n" for name in names)
    ids = (await table.run("hash-object", "-w", "--no-filters", "--stdin-paths", stdin=os.fsencode(paths))).split()
    lines = [("100644", oid, f"git/{name}") for name, oid in zip(names, ids, strict=True)]
    if source.branches:
        oid = await table.run("hash-object", "-w", "--stdin", stdin=source.branch_list)
        lines.append(("100644", oid.strip(), BRANCHES))
    lines += [(entry.mode, entry.oid, f"stages/{entry.stage}/{entry.path}") for entry in staged.stages]
    index = os.path.join(table.path, "state")
    await table.put(lines, index=index)
    return (await table.run("write-tree", borrow=True, index=index)).strip()


async def salvage_checkpoint(
    git: Git, home: str, repo: Repo, workspace: Workspace, checkpoint: CheckpointResult, reason: str
) -> SalvageResult | None:
    """Keep a checkpoint of a workspace that is gone as a salvage. None: the task's branch holds everything.

    An earlier salvage of the same workspace becomes a parent, as in every salvage.
    """
    source = make_source(git, repo, workspace, None)
    source.head = checkpoint.base
    has_more = checkpoint.files or any(checkpoint.details.get(name) for name in ("unmerged", "operation", "commits"))
    if not has_more and await _branch_reaches_head(source):
        return None
    shadow = ShadowRepo(home, repo, git)
    async with shadow.held():
        if not await shadow.has(checkpoint.commit):
            raise WorkspaceProblem(f"the checkpoint {checkpoint.commit[:12]} cannot be read")
        tree, *parents = (await shadow.run("show", "--no-patch", "--format=%T %P", checkpoint.commit)).split()
        ref = salvage_ref(workspace.task_id, workspace.id)
        earlier = await refs.resolve_ref(git, shadow.path, ref)
        parents += [earlier] if earlier is not None and await shadow.has(earlier) else []
        saved = await commit(shadow, tree, parents, f"Work of task {workspace.task_id}, saved by Holdfast: {reason}")
        await _write_ref(shadow, ref, saved)
    return SalvageResult(
        ref=ref, commit=saved, base=checkpoint.base, files=checkpoint.files, details=dict(checkpoint.details)
    )


async def restore_salvage(git: Git, home: str, repo: Repo, workspace: Workspace, commit: str) -> None:
    """Make the files of a workspace equal to a salvaged commit, byte for byte. git's own state is not touched."""
    shadow = ShadowRepo(home, repo, git)
    async with shadow.held():
        aside = scratch.make_scratch(home, "restore")
        index = os.path.join(aside, "index")
        try:
            faults.effect("salvage.restore")
            await shadow.run("add", "--all", "--ignore-errors", ".", work_tree=workspace.path, index=index)
            await shadow.run("read-tree", "-u", "--reset", commit, work_tree=workspace.path, index=index)
        finally:
            scratch.drop_scratch(aside)
    faults.passed("salvage.restored")
