"""Saving what no branch holds, before a workspace goes. If it cannot be saved, the workspace is preserved instead.

A salvage is a commit in the shadow. Its tree is the work tree, byte for byte: everything that git would add. Its first
parent is the agent's HEAD. Where the index holds something else, that is the next parent ("index of task …"); where git
was in the middle of something, or commits are on no branch, that is the last one ("git state of task …": the raw files,
every stage of a conflict, and those commits as its parents). What was saved of the same workspace before is a parent
too: a commit that takes its name must not lose it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from holdfast import faults
from holdfast.core.model import Repo, Workspace
from holdfast.core.rules import DEFAULT_SALVAGE, SalvageRules
from holdfast.errors import WorkspaceProblem
from holdfast.workspaces import gitstate, refs, scratch
from holdfast.workspaces.admin import entry_of
from holdfast.workspaces.contents import refuse_pipes
from holdfast.workspaces.desk import Desk, desk
from holdfast.workspaces.git import Git, GitFailed
from holdfast.workspaces.names import salvage_ref
from holdfast.workspaces.nested import refuse_own_history
from holdfast.workspaces.port import Saved
from holdfast.workspaces.shadow import Shadow
from holdfast.workspaces.staged import Staged, read_staged
from holdfast.workspaces.survey import Taken, is_sparse, take_work_tree
from holdfast.workspaces.threads import in_thread


@dataclass(kw_only=True, slots=True)
class _Source:
    """Where the work lies."""

    git: Git
    repo: Repo
    workspace: Workspace
    tree: str  # the directory: the workspace's own path, or where it was renamed to
    git_dir: str | None  # the agent's own git directory: our admin entry of a worktree, the `.git` of a clone
    common_dir: str  # where its refs and objects are
    head: str | None = None
    loose: list[str] = field(default_factory=list)  # commits that no ref reaches
    lost: list[str] = field(default_factory=list)  # what could not be read


async def salvage(
    git: Git,
    home: str,
    repo: Repo,
    workspace: Workspace,
    reason: str,
    rules: SalvageRules = DEFAULT_SALVAGE,
    own_git: str | None = None,
    *,
    tree: str | None = None,
) -> Saved | None:
    """None when work tree, index and git directory hold nothing that the task's branch does not.

    Raises WorkspaceProblem when a commit could not hold it. `own_git` is the `.git` of a workspace that is a clone;
    `tree`: where the directory is now, if it was renamed.
    """
    git_dir = own_git or (None if workspace.branch is None else entry_of(repo.common_dir, workspace.path))
    source = _Source(
        git=git,
        repo=repo,
        workspace=workspace,
        tree=tree or workspace.path,
        git_dir=git_dir,
        common_dir=own_git or repo.common_dir,
    )
    has_tree = _is_there(source.tree)
    if not has_tree and git_dir is None:
        return None
    if has_tree and own_git is None:
        refuse_own_history(source.tree)
    await in_thread(refuse_pipes, source.tree, git_dir)
    shadow = Shadow(home, repo, git, lender=own_git)
    async with shadow.held(), desk(shadow, home, source.tree) as table:
        await _bring_commits(shadow, source)
        seeded = await table.seed(git_dir, source.head)
        # Of a sparse checkout only the index knows what is absent on purpose and what was deleted.
        unsure = not seeded and is_sparse(git_dir, source.common_dir)
        # A tree that the agent removed says nothing; its commits and its index still do.
        taken = (
            await take_work_tree(git, table, git_dir, source.common_dir, rules, keep_absent=unsure)
            if has_tree
            else Taken()
        )
        staged = await read_staged(table, git_dir, source.head)
        return await _keep(shadow, table, source, taken, staged, reason)


def _is_there(path: str) -> bool:
    """A directory with something in it; not a link that an agent put in its place. A file there may be work."""
    if os.path.isfile(path) and not os.path.islink(path) and os.path.getsize(path):
        raise WorkspaceProblem(f"{path} is a file, where a directory was")
    return os.path.isdir(path) and not os.path.islink(path) and bool(os.listdir(path))


async def _bring_commits(shadow: Shadow, source: _Source) -> None:
    """The commit that the work tree is based on, and those that only the git directory remembers."""
    workspace = source.workspace
    if workspace.branch is None:
        return
    source.head = await _bring_head(shadow, source)
    if source.git_dir is None:
        return
    known = {oid for oid in (source.head, workspace.base_commit) if oid and await shadow.has(oid)}
    candidates = gitstate.mentioned(source.git_dir)
    for commit in await gitstate.unheld_commits(source.git, source.common_dir, candidates, known):
        try:
            await shadow.fetch(source.git_dir, commit)
            source.loose.append(commit)
        except GitFailed as error:
            if not error.answered:
                raise
            source.lost.append(f"commit {commit[:12]}")


async def _bring_head(shadow: Shadow, source: _Source) -> str | None:
    """From our admin entry, which an agent that removes its tree or its `.git` leaves behind; else from the branch."""
    ref = f"refs/heads/{source.workspace.branch}"
    places = [(source.repo.common_dir, source.repo.common_dir, ref)]
    if source.git_dir is not None:
        places.insert(0, (source.git_dir, source.common_dir, "HEAD"))
    for place, common_dir, name in places:
        commit = await _stored(source.git, place, common_dir, name)
        if commit is None:
            continue
        try:
            await shadow.fetch(place, commit)
        except GitFailed as error:
            if not error.answered:
                raise
            continue
        return commit
    base = source.workspace.base_commit
    return base if base and await shadow.has(base) else None


async def _stored(git: Git, git_dir: str, common_dir: str, name: str) -> str | None:
    try:
        return refs.stored(git_dir, common_dir, name)
    except (refs.Unusual, OSError):
        pass
    try:
        question = ["rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"]
        return (await git.run(*question, cwd=git_dir, env=gitstate.LOOKING)).strip()
    except GitFailed as error:
        if not error.answered:
            raise
        return None
    except (FileNotFoundError, NotADirectoryError):
        return None


async def _keep(
    shadow: Shadow, table: Desk, source: _Source, taken: Taken, staged: Staged, reason: str
) -> Saved | None:
    workspace, head = source.workspace, source.head
    head_tree = (await shadow.run("rev-parse", f"{head}^{{tree}}")).strip() if head else None
    tree = await table.tree()
    index_matters = staged.tree is not None and staged.tree not in (tree, head_tree)
    files = await _changed(shadow, head_tree, tree)
    operation = gitstate.operation(source.git_dir) if source.git_dir else None
    has_state = bool(operation or staged.stages or staged.damaged or source.loose)
    detached = not await _branch_holds(source)
    lost = [*source.lost, *taken.lost, *staged.lost]
    if not (files or index_matters or has_state or detached or lost):
        return None
    parents = [head] if head else []
    known = list(parents)
    if index_matters and staged.tree is not None:
        await shadow.copy_objects(staged.tree, *known)
        files = max(files, await _changed(shadow, head_tree, staged.tree))
        parents.append(await _commit(shadow, staged.tree, known, f"index of task {workspace.task_id}"))
    if has_state and source.git_dir is not None:
        state = await _state_tree(table, source.git_dir, staged)
        await shadow.copy_objects(state, *known)
        parents.append(await _commit(shadow, state, source.loose, f"git state of task {workspace.task_id}"))
    ref = salvage_ref(workspace.task_id, workspace.id)
    earlier = await refs.tip(source.git, shadow.path, ref)
    parents += [earlier] if earlier is not None and await shadow.has(earlier) else []
    commit = await _commit(shadow, tree, parents, f"Work of task {workspace.task_id}, saved by Holdfast: {reason}")
    faults.effect("salvage.ref")
    await shadow.keep(ref, commit)
    faults.passed("salvage.saved")
    details: dict[str, object] = {
        "size": taken.size,
        "untracked": taken.untracked,
        "index": "damaged" if staged.damaged else "unmerged" if staged.stages else "saved" if index_matters else None,
        "unmerged": len({entry.path for entry in staged.stages if entry.stage}),
        "operation": operation,
        "commits": len(source.loose),
        "detached": detached,
        "not_saved": lost[:20],
    }
    return Saved(
        ref=ref,
        commit=commit,
        base=head,
        files=files,
        partial=bool(lost),
        details={name: value for name, value in details.items() if value},
    )


async def _branch_holds(source: _Source) -> bool:
    """Whether the task's branch reaches the agent's HEAD: if not, its commits are on no branch of ours."""
    if source.head is None:
        return True
    branch = f"refs/heads/{source.workspace.branch}"
    return await source.git.ok("merge-base", "--is-ancestor", source.head, branch, cwd=source.repo.common_dir)


async def _changed(shadow: Shadow, before: str | None, after: str) -> int:
    """How many paths differ between two trees; None is the empty one."""
    if before == after:
        return 0
    against = before if before is not None else (await shadow.run("mktree")).strip()
    listed = await shadow.run("diff-tree", "-r", "--name-only", "-z", "--no-renames", against, after)
    return len([name for name in listed.split("\0") if name])


async def _state_tree(table: Desk, git_dir: str, staged: Staged) -> str:
    """`git/…`: the raw files; `stages/N/…`: each version of what is unmerged."""
    names = list(gitstate.state_files(git_dir))
    if staged.stages or staged.damaged:
        names.append("index")
    paths = "".join(f"{os.path.join(git_dir, name)}\n" for name in names)
    ids = (await table.run("hash-object", "-w", "--no-filters", "--stdin-paths", stdin=os.fsencode(paths))).split()
    lines = [("100644", oid, f"git/{name}") for name, oid in zip(names, ids, strict=True)]
    lines += [(entry.mode, entry.oid, f"stages/{entry.stage}/{entry.path}") for entry in staged.stages]
    index = os.path.join(table.path, "state")
    await table.put(lines, index=index)
    return (await table.run("write-tree", borrow=True, index=index)).strip()


async def _commit(shadow: Shadow, tree: str, parents: list[str], message: str) -> str:
    options = [word for parent in parents for word in ("-p", parent)]
    return (await shadow.run("commit-tree", tree, *options, "-m", message)).strip()


async def restore_into(git: Git, home: str, repo: Repo, workspace: Workspace, commit: str) -> None:
    """Make the files of a workspace equal to a salvaged commit, byte for byte; git's own state is not touched."""
    shadow = Shadow(home, repo, git)
    async with shadow.held():
        aside = scratch.make(home, "restore")
        index = os.path.join(aside, "index")
        try:
            faults.effect("salvage.restore")
            await shadow.run("add", "--all", "--ignore-errors", ".", work_tree=workspace.path, index=index)
            await shadow.run("read-tree", "-u", "--reset", commit, work_tree=workspace.path, index=index)
        finally:
            scratch.drop(aside)
    faults.passed("salvage.restored")
