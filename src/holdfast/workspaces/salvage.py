"""Saving what no branch holds, before a workspace goes. If it cannot be saved, the workspace is preserved instead."""

from __future__ import annotations

import os
import shutil

from holdfast import faults
from holdfast.core.model import Repo, Workspace
from holdfast.core.rules import DEFAULT_SALVAGE, SalvageRules
from holdfast.errors import WorkspaceProblem, is_passing
from holdfast.workspaces import scratch
from holdfast.workspaces.admin import entry_of
from holdfast.workspaces.contents import refuse_what_git_cannot_hold
from holdfast.workspaces.git import Git, GitFailed
from holdfast.workspaces.names import salvage_ref
from holdfast.workspaces.port import Saved
from holdfast.workspaces.shadow import Shadow
from holdfast.workspaces.threads import in_thread

HEADS = "refs/agent-heads/"


async def salvage(
    git: Git,
    home: str,
    repo: Repo,
    workspace: Workspace,
    reason: str,
    rules: SalvageRules = DEFAULT_SALVAGE,
    own_git: str | None = None,
) -> Saved | None:
    """A stash-like commit of the whole work tree in the shadow: parents are the agent's HEAD and its index.

    None when work tree, index and HEAD hold nothing that the task's branch does not.
    `own_git` is the `.git` of a workspace that is a clone.
    """
    entry = own_git or (None if workspace.branch is None else entry_of(repo.common_dir, workspace.path))
    has_tree = _is_there(workspace.path)
    if not has_tree and entry is None:
        return None
    shadow = Shadow(home, repo, git, lender=own_git)
    await shadow.ensure()
    if has_tree:
        await _refuse_too_much(shadow, workspace, rules, own_git is not None)
    head = await _agents_head(shadow, repo, workspace, entry)
    head_tree = (await shadow.run("rev-parse", f"{head}^{{tree}}")).strip() if head else None
    aside = scratch.make(home, "salvage")
    try:
        # A tree that the agent removed says nothing; its commits and its index still do.
        tree = await _work_tree(shadow, workspace, head, os.path.join(aside, "index")) if has_tree else head_tree
        staged = await _staged_tree(shadow, entry, os.path.join(aside, "staged"))
    finally:
        scratch.drop(aside)
    if tree is None:
        return None
    staged_matters = staged is not None and staged not in (tree, head_tree)
    files = await _changed(shadow, head_tree, tree)
    if files == 0 and not staged_matters and await _branch_holds(git, repo, workspace, head):
        return None
    parents = [head] if head else []
    if staged_matters and staged is not None:
        await shadow.copy_objects(staged)
        files = max(files, await _changed(shadow, head_tree, staged))
        parents.append(await _commit(shadow, staged, parents, f"index of task {workspace.task_id}"))
    commit = await _commit(shadow, tree, parents, f"Work of task {workspace.task_id}, saved by Holdfast: {reason}")
    ref = salvage_ref(workspace.task_id, workspace.id)
    faults.effect("salvage.ref")
    shadow.unlock(ref)
    await shadow.run("update-ref", ref, commit)
    faults.passed("salvage.saved")
    return Saved(ref=ref, commit=commit, base=head, files=files)


def _is_there(path: str) -> bool:
    """A directory with something in it; not a link that an agent put in its place."""
    return os.path.isdir(path) and not os.path.islink(path) and bool(os.listdir(path))


async def _agents_head(shadow: Shadow, repo: Repo, workspace: Workspace, entry: str | None) -> str | None:
    """The commit that the work tree is based on, fetched into the shadow.

    From our admin entry, which an agent that removes its tree or its `.git` leaves behind; else from the branch.
    """
    if workspace.branch is None:
        return None
    kept_at = f"{HEADS}{workspace.task_id}"
    sources = [(entry, "HEAD")] if entry is not None else []
    for source, what in [*sources, (repo.common_dir, f"refs/heads/{workspace.branch}")]:
        try:
            return await shadow.fetch(source, what, kept_at)
        except GitFailed:
            continue
    if workspace.base_commit and await shadow.has(workspace.base_commit):
        return workspace.base_commit
    return None


async def _branch_holds(git: Git, repo: Repo, workspace: Workspace, head: str | None) -> bool:
    """Whether the task's branch reaches the agent's HEAD: if not, its commits are on no branch of ours."""
    if head is None:
        return True
    branch = f"refs/heads/{workspace.branch}"
    return await git.ok("merge-base", "--is-ancestor", head, branch, cwd=repo.common_dir)


async def _refuse_too_much(shadow: Shadow, workspace: Workspace, rules: SalvageRules, is_clone: bool) -> None:
    """Giant trees would fill the disk: preserve those. Only what would be added counts, not what is ignored."""
    files, size = await in_thread(refuse_what_git_cannot_hold, workspace.path, is_clone)
    if files <= rules.max_files and size <= rules.max_size:
        return
    index = os.path.join(shadow.path, "none")
    listed = await shadow.run("ls-files", "--others", "--exclude-standard", "-z", work_tree=workspace.path, index=index)
    names = [name for name in listed.split("\0") if name]
    size = sum(os.lstat(os.path.join(workspace.path, name)).st_size for name in names)
    if len(names) > rules.max_files or size > rules.max_size:
        raise WorkspaceProblem(f"it holds {len(names)} files with {size} bytes, more than a salvage may take")


async def _work_tree(shadow: Shadow, workspace: Workspace, head: str | None, index: str) -> str:
    """The tree of everything that git would add."""
    if head is not None:
        await shadow.run("read-tree", head, index=index)
    await shadow.run("add", "--all", "--ignore-errors", ".", work_tree=workspace.path, index=index)
    return (await shadow.run("write-tree", index=index)).strip()


async def _changed(shadow: Shadow, before: str | None, after: str) -> int:
    """How many paths differ between two trees; None is the empty one."""
    against = before if before is not None else (await shadow.run("mktree")).strip()
    listed = await shadow.run("diff-tree", "-r", "--name-only", "-z", "--no-renames", against, after)
    return len([name for name in listed.split("\0") if name])


async def _staged_tree(shadow: Shadow, entry: str | None, copy: str) -> str | None:
    """The tree of the agent's own index, or None when it has none or it is unmerged."""
    if entry is None:
        return None
    try:
        shutil.copyfile(os.path.join(entry, "index"), copy)
        return (await shadow.run("write-tree", index=copy, borrow=True)).strip()
    except FileNotFoundError:
        return None
    except GitFailed as error:
        if is_passing(error):
            raise  # a full disk, say: what was staged is not to be given up for that
        return None


async def _commit(shadow: Shadow, tree: str, parents: list[str], message: str) -> str:
    options = [word for parent in parents for word in ("-p", parent)]
    return (await shadow.run("commit-tree", tree, *options, "-m", message)).strip()


async def restore_into(git: Git, home: str, repo: Repo, workspace: Workspace, commit: str) -> None:
    """Make the files of a workspace equal to a salvaged commit, byte for byte; git's own state is not touched."""
    shadow = Shadow(home, repo, git)
    await shadow.ensure()
    aside = scratch.make(home, "restore")
    index = os.path.join(aside, "index")
    try:
        faults.effect("salvage.restore")
        await shadow.run("add", "--all", "--ignore-errors", ".", work_tree=workspace.path, index=index)
        await shadow.run("read-tree", "-u", "--reset", commit, work_tree=workspace.path, index=index)
    finally:
        scratch.drop(aside)
    faults.passed("salvage.restored")
