"""Saving what no branch holds, before a workspace goes. If it cannot be saved, the workspace is preserved instead."""

from __future__ import annotations

import os
import shutil
import tempfile

from holdfast import faults
from holdfast.core.model import Repo, Workspace
from holdfast.errors import WorkspaceProblem
from holdfast.workspaces.git import Git, GitFailed
from holdfast.workspaces.names import salvage_ref
from holdfast.workspaces.port import Saved
from holdfast.workspaces.shadow import Shadow

HEADS = "refs/agent-heads/"
BIGGEST = 512 * 1024 * 1024
MOST_FILES = 50_000


async def salvage(git: Git, home: str, repo: Repo, workspace: Workspace, reason: str) -> Saved | None:
    """A stash-like commit of the whole work tree in the shadow: parents are the agent's HEAD and its index.

    None when work tree, index and HEAD hold nothing that the task's branch does not.
    """
    if not os.path.isdir(workspace.path) or not os.listdir(workspace.path):
        return None
    shadow = Shadow(home, repo, git)
    await shadow.ensure()
    head = await _agents_head(git, shadow, repo, workspace)
    await _refuse_what_we_cannot_save(shadow, workspace)
    scratch = tempfile.mkdtemp(prefix="salvage-", dir=os.path.dirname(shadow.path))
    try:
        tree, files = await _work_tree(shadow, workspace, head, os.path.join(scratch, "index"))
        index_tree = await _staged_tree(git, shadow, repo, workspace, os.path.join(scratch, "staged"))
    finally:
        shutil.rmtree(scratch)  # our own scratch directory: two index files
    head_tree = (await shadow.run("rev-parse", f"{head}^{{tree}}")).strip() if head else None
    staged_matters = index_tree is not None and index_tree not in (tree, head_tree)
    on_branch = head is None or head == await _branch_tip(git, repo, workspace)
    if tree == head_tree and not staged_matters and on_branch:
        return None
    if head is None and files == 0:
        return None
    parents = [head] if head else []
    if staged_matters and index_tree is not None:
        await shadow.copy_objects(index_tree)
        parents.append(await _commit(shadow, index_tree, parents, f"index of task {workspace.task_id}"))
    commit = await _commit(shadow, tree, parents, f"Work of task {workspace.task_id}, saved by Holdfast: {reason}")
    ref = salvage_ref(workspace.task_id, workspace.id)
    faults.effect("salvage.ref")
    await shadow.run("update-ref", ref, commit)
    faults.effect("salvage.saved")
    return Saved(ref=ref, commit=commit, base=head, files=files)


async def _agents_head(git: Git, shadow: Shadow, repo: Repo, workspace: Workspace) -> str | None:
    """The commit that the work tree is based on, fetched into the shadow. From the branch when `.git` is destroyed."""
    if workspace.branch is None:
        return None
    kept_at = f"{HEADS}{workspace.task_id}"
    for source, what in ((workspace.path, "HEAD"), (repo.common_dir, f"refs/heads/{workspace.branch}")):
        try:
            return await shadow.fetch(source, what, kept_at)
        except GitFailed:
            continue
    if workspace.base_commit and await shadow.has(workspace.base_commit):
        return workspace.base_commit
    return None


async def _branch_tip(git: Git, repo: Repo, workspace: Workspace) -> str | None:
    try:
        ref = f"refs/heads/{workspace.branch}"
        return (await git.run("rev-parse", "--verify", "--quiet", ref, cwd=repo.common_dir)).strip()
    except GitFailed:
        return None


async def _refuse_what_we_cannot_save(shadow: Shadow, workspace: Workspace) -> None:
    """Nested repositories are only a link to git, and giant trees would fill the disk: preserve those."""
    size = count = 0
    for folder, names, files in os.walk(workspace.path):
        if folder != workspace.path and ".git" in (*names, *files):
            raise WorkspaceProblem(f"{folder} is a repository of its own, which a commit cannot hold")
        if folder == workspace.path and ".git" in names:
            names.remove(".git")
        count += len(files)
        for name in files:
            try:
                size += os.lstat(os.path.join(folder, name)).st_size
            except FileNotFoundError:
                continue
        if count > MOST_FILES or size > BIGGEST:
            await _refuse_if_really_new(shadow, workspace)
            return


async def _refuse_if_really_new(shadow: Shadow, workspace: Workspace) -> None:
    """A large tree is fine while most of it is known or ignored: count only what would be added."""
    listed = await shadow.run(
        "ls-files",
        "--others",
        "--exclude-standard",
        "-z",
        work_tree=workspace.path,
        index=os.path.join(shadow.path, "none"),
    )
    names = [name for name in listed.split("\0") if name]
    size = sum(os.lstat(os.path.join(workspace.path, name)).st_size for name in names)
    if len(names) > MOST_FILES or size > BIGGEST:
        raise WorkspaceProblem(f"it holds {len(names)} files with {size} bytes, more than a salvage may take")


async def _work_tree(shadow: Shadow, workspace: Workspace, head: str | None, index: str) -> tuple[str, int]:
    """The tree of everything that git would add, and how many paths differ from HEAD."""
    if head is not None:
        await shadow.run("read-tree", head, index=index)
    await shadow.run("add", "--all", "--ignore-errors", ".", work_tree=workspace.path, index=index)
    tree = (await shadow.run("write-tree", index=index)).strip()
    against = head if head is not None else (await shadow.run("mktree", index=index)).strip()
    changed = await shadow.run("diff-tree", "-r", "--name-only", "-z", "--no-renames", f"{against}^{{tree}}", tree)
    return tree, len([name for name in changed.split("\0") if name])


async def _staged_tree(git: Git, shadow: Shadow, repo: Repo, workspace: Workspace, copy: str) -> str | None:
    """The tree of the agent's own index, or None when it has none or it is unmerged."""
    try:
        theirs = (
            await git.run("rev-parse", "--path-format=absolute", "--git-path", "index", cwd=workspace.path)
        ).strip()
        top = (await git.run("rev-parse", "--show-toplevel", cwd=workspace.path)).strip()
        if os.path.realpath(top) != os.path.realpath(workspace.path):
            return None  # `.git` is gone and git looked at a parent directory: that index is not ours
        shutil.copyfile(theirs, copy)
        return (await shadow.run("write-tree", index=copy, borrow=True)).strip()
    except (GitFailed, OSError):
        return None


async def _commit(shadow: Shadow, tree: str, parents: list[str], message: str) -> str:
    options = [word for parent in parents for word in ("-p", parent)]
    return (await shadow.run("commit-tree", tree, *options, "-m", message)).strip()


async def restore_into(git: Git, home: str, repo: Repo, workspace: Workspace, commit: str) -> None:
    """Make the files of a workspace equal to a salvaged commit, byte for byte; git's own state is not touched."""
    shadow = Shadow(home, repo, git)
    await shadow.ensure()
    scratch = tempfile.mkdtemp(prefix="restore-", dir=os.path.dirname(shadow.path))
    index = os.path.join(scratch, "index")
    try:
        await shadow.run("add", "--all", "--ignore-errors", ".", work_tree=workspace.path, index=index)
        await shadow.run("read-tree", "-u", "--reset", commit, work_tree=workspace.path, index=index)
    finally:
        shutil.rmtree(scratch)  # our own scratch directory
    faults.effect("salvage.restored")
