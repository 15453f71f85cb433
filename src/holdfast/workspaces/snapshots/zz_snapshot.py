"""A whole workspace as commits of the shadow: what salvages and checkpoints have in common.

The tree of such a commit is the work tree, byte for byte: everything that git would add. Its first parent is the
agent's HEAD. Where the index holds something else, that is the next parent ("index of task …").
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.base.concurrency import in_thread
from holdfast.core.task_settings import SalvageRules
from holdfast.workspaces.git import git_state
from holdfast.workspaces.snapshots.collect_files import Taken, is_sparse, take_in_the_way, take_work_tree
from holdfast.workspaces.snapshots.contents import refuse_pipes
from holdfast.workspaces.snapshots.nested_repos import refuse_own_history
from holdfast.workspaces.snapshots.private_index import Desk
from holdfast.workspaces.snapshots.shadow_repo import Shadow
from holdfast.workspaces.snapshots.snapshot import Source, bring_commits, is_there
from holdfast.workspaces.snapshots.staged import Staged, read_staged


@dataclass(kw_only=True, slots=True)
class Snapshot:
    tree: str
    head_tree: str | None
    taken: Taken
    staged: Staged
    files: int  # how many paths differ from HEAD
    operation: str | None

    @property
    def index_matters(self) -> bool:
        return self.staged.tree is not None and self.staged.tree not in (self.tree, self.head_tree)


async def may_be_taken(source: Source, own_git: str | None) -> bool:
    """False: there is nothing at all. Raises WorkspaceProblem where git would wait for ever, or lose a history."""
    has_tree = is_there(source.tree)
    if not has_tree and source.git_dir is None:
        return False
    if has_tree and own_git is None:
        refuse_own_history(source.tree)
    await in_thread(refuse_pipes, source.tree, source.git_dir)
    return True


async def take(shadow: Shadow, table: Desk, source: Source, rules: SalvageRules, over: str | None = None) -> Snapshot:
    """Everything into the shadow; nothing has a name there yet. Raises WorkspaceProblem when it is too much.

    `over`: a commit that is about to be written over it; then also what lies in its way, ignored or not.
    """
    await bring_commits(shadow, source)
    seeded = await table.seed(source.git_dir, source.head)
    # Of a sparse checkout only the index knows what is absent on purpose and what was deleted.
    unsure = not seeded and is_sparse(source.git_dir, source.common_dir)
    # A tree that the agent removed says nothing; its commits and its index still do.
    taken = (
        await take_work_tree(source.git, table, source.git_dir, source.common_dir, rules, keep_absent=unsure)
        if is_there(source.tree)
        else Taken()
    )
    if over is not None:
        taken.lost += await take_in_the_way(table, over)
    staged = await read_staged(table, source.git_dir, source.head)
    head_tree = (await shadow.run("rev-parse", f"{source.head}^{{tree}}")).strip() if source.head else None
    tree = await table.tree()
    return Snapshot(
        tree=tree,
        head_tree=head_tree,
        taken=taken,
        staged=staged,
        files=await changed(shadow, head_tree, tree),
        operation=git_state.operation(source.git_dir) if source.git_dir else None,
    )


async def keep_index(shadow: Shadow, source: Source, seen: Snapshot) -> str | None:
    """A commit of what is staged, where the work tree does not hold it too."""
    if not seen.index_matters or seen.staged.tree is None:
        return None
    known = [source.head] if source.head else []
    await shadow.copy_objects(seen.staged.tree, *known)
    seen.files = max(seen.files, await changed(shadow, seen.head_tree, seen.staged.tree))
    return await commit(shadow, seen.staged.tree, known, f"index of task {source.workspace.task_id}")


async def changed(shadow: Shadow, before: str | None, after: str) -> int:
    """How many paths differ between two trees; None is the empty one."""
    if before == after:
        return 0
    against = before if before is not None else (await shadow.run("mktree")).strip()
    listed = await shadow.run("diff-tree", "-r", "--name-only", "-z", "--no-renames", against, after)
    return len([name for name in listed.split("\0") if name])


async def commit(shadow: Shadow, tree: str, parents: list[str], message: str) -> str:
    options = [word for parent in parents for word in ("-p", parent)]
    return (await shadow.run("commit-tree", tree, *options, "-m", message)).strip()
