"""A snapshot: a whole workspace as commits of the shadow. Salvages and checkpoints share this code.

The tree of a snapshot's commit is the work tree, byte for byte: everything that git would add. Its first parent is the
agent's HEAD. If the index holds something else, that is the next parent ("index of task …"). The commits on which the
work is based are brought into the shadow first.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field

from holdfast.base.concurrency import run_in_thread
from holdfast.base.errors import WorkspaceProblem
from holdfast.core.model import Repo, Workspace
from holdfast.core.task_settings import SalvageRules
from holdfast.workspaces.git import git_state, refs
from holdfast.workspaces.git.git import Git, GitFailed
from holdfast.workspaces.git.reflogs import read_log
from holdfast.workspaces.git.worktree_entries import find_entry
from holdfast.workspaces.snapshots.collect_files import (
    CollectedTree,
    StagedContent,
    collect_files_in_the_way,
    collect_work_tree,
    is_sparse,
    read_staged,
    refuse_pipes,
)
from holdfast.workspaces.snapshots.nested_repos import refuse_own_history
from holdfast.workspaces.snapshots.private_index import PrivateIndex
from holdfast.workspaces.snapshots.shadow_repo import ShadowRepo

BRANCHES = "branches"  # in the state's tree, for a clone: one line `<id> <ref>` per branch
MOST_BRANCHES = 500  # branches and stashes of a clone that differ from the user's; the rest is reported as not saved
_OWN_REFS = ("refs/heads", "refs/stash")
_MOST_STASHES = 200  # stashes of one list that are looked at, the newest ones
_DETACHED = "(no branch)"
_MADE_ON = re.compile(r"(?:WIP on|On) (\(no branch\)|[^:]+):")
_MOVED = re.compile(r"checkout: moving from (\S+) to (\S+)$")


@dataclass(kw_only=True, slots=True)
class SnapshotSource:
    """The directories and commits of the workspace that is saved."""

    git: Git
    repo: Repo
    workspace: Workspace
    tree: str  # the directory: the workspace's own path, or the path to which it was renamed
    git_dir: str | None  # the agent's git directory: our entry of a worktree, or the `.git` of a clone
    common_dir: str  # the directory of its refs and objects
    head: str | None = None
    branches: dict[str, str] = field(
        default_factory=dict
    )  # of a clone: refs that the user's repository lacks → commits
    held: frozenset[str] | None = None  # together with `branches`: the commits that the user's repository has
    loose: list[str] = field(default_factory=list)  # commits that no ref reaches
    lost: list[str] = field(default_factory=list)  # what could not be read
    stashes: list[str] = field(default_factory=list)  # of a worktree's agent, in the user's own list of stashes

    @property
    def branch_list(self) -> bytes:
        """The content of the file `branches`."""
        lines = (f"{oid} {name}\n" for name, oid in sorted(self.branches.items()))
        return "".join(lines).encode(errors="surrogateescape")


def make_source(
    git: Git, repo: Repo, workspace: Workspace, own_git: str | None, tree: str | None = None
) -> SnapshotSource:
    """Return the source. `own_git`: the `.git` of a clone. `tree`: where the directory is now, if it was renamed."""
    git_dir = own_git or (None if workspace.branch is None else find_entry(repo.common_dir, workspace.path))
    return SnapshotSource(
        git=git,
        repo=repo,
        workspace=workspace,
        tree=tree or workspace.path,
        git_dir=git_dir,
        common_dir=own_git or repo.common_dir,
    )


def has_content(path: str) -> bool:
    """True for a directory with content. False for a link, which an agent put there. A file raises: it may be work."""
    if os.path.isfile(path) and not os.path.islink(path) and os.path.getsize(path):
        raise WorkspaceProblem(f"{path} is a file, where a directory was")
    return os.path.isdir(path) and not os.path.islink(path) and bool(os.listdir(path))


async def add_clone_branches(source: SnapshotSource, own_git: str | None, *, everything: bool = False) -> None:
    """Add the branches and stashes that a clone has and the user's repository lacks. They exist nowhere else.

    `everything`: also tags, and without a limit, because the clone is about to be removed.
    """
    if own_git is None:
        return
    form, kinds = "--format=%(objectname) %(refname)", (*_OWN_REFS, *(("refs/tags",) if everything else ()))
    try:
        ours = await source.git.run("for-each-ref", form, *kinds, cwd=own_git, env=git_state.READ_ONLY_ENV)
        theirs = await source.git.run("for-each-ref", form, cwd=source.repo.common_dir)
    except GitFailed as error:
        if not error.answered:
            raise
        source.lost.append("the branches of the clone")
        return
    same = set(theirs.splitlines())
    differing = [line.split(" ", 1) for line in ours.splitlines() if line not in same]
    own = f"refs/heads/{source.workspace.branch}"
    differing.sort(key=lambda pair: (pair[1] != own, pair[1]))  # the task's own branch is never left out
    kept = differing if everything else differing[:MOST_BRANCHES]
    if len(kept) < len(differing):
        source.lost.append(f"{len(differing) - len(kept)} of the {len(differing)} branches that its agent made")
    source.branches = {name: oid for oid, name in kept}
    source.held = frozenset(line.split(" ", 1)[0] for line in same)


async def list_agent_stashes(git: Git, common_dir: str, git_dir: str | None, branch: str | None) -> list[str]:
    """Return the stash commits that the agent of a worktree made, the newest first.

    All worktrees share one list of stashes. `git reflog expire` and `git gc` of the user can destroy an agent's stash
    there. The message of a stash commit names the branch that it was made on, whatever `git stash store` wrote into the
    list. The reflog of the agent's HEAD names the branches and commits where the agent was.
    """
    commits = [new for _old, new, _message in reversed(read_log(os.path.join(common_dir, "logs", "refs", "stash")))]
    commits = list(dict.fromkeys(commits))[:_MOST_STASHES]
    if not commits or branch is None:
        return []
    branches, places = {branch}, set()
    for old, new, message in read_log(os.path.join(git_dir, "logs", "HEAD")) if git_dir is not None else []:
        places |= {old, new}
        moved = _MOVED.match(message)
        branches |= set(moved.groups()) if moved else set()
    asked = ("log", "--no-walk=unsorted", "--ignore-missing", "--format=%H %P%x09%s", "--stdin")
    told = await git.run(*asked, cwd=common_dir, stdin="\n".join(commits).encode())
    return [line.split(" ", 1)[0] for line in told.splitlines() if _is_made_by(line, branches, places)]


def _is_made_by(line: str, branches: set[str], places: set[str]) -> bool:
    """True if a stash was made on a branch of the agent, or on a commit that the agent's HEAD was at, on no branch."""
    names, _tab, subject = line.partition("\t")
    made_on = _MADE_ON.match(subject)
    if made_on is not None and made_on[1] != _DETACHED:
        return made_on[1] in branches
    return names.split()[1:2] != [] and names.split()[1] in places


async def bring_commits(shadow: ShadowRepo, source: SnapshotSource) -> None:
    """Bring the commit of HEAD into the shadow, and the commits that only the git directory mentions."""
    workspace = source.workspace
    if workspace.branch is None:
        return
    source.head = await _bring_head(shadow, source)
    if source.git_dir is None:
        return
    known = {oid for oid in (source.head, workspace.base_commit) if oid and await shadow.has(oid)}
    candidates = git_state.list_mentioned_objects(source.git_dir) | set(source.branches.values())
    found = await git_state.find_unreferenced_commits(source.git, source.common_dir, candidates, known, source.held)
    found += [commit for commit in source.stashes if commit not in found]
    if found and await _fetch_or_refuse(shadow, source.git_dir, *found):
        source.loose += found
        return
    for commit in found:  # one of them cannot be read: bring the others
        if await _fetch_or_refuse(shadow, source.git_dir, commit):
            source.loose.append(commit)
        else:
            source.lost.append(f"commit {commit[:12]}")


async def _fetch_or_refuse(shadow: ShadowRepo, git_dir: str, *commits: str) -> bool:
    """Fetch the commits. False: git cannot read one of them."""
    try:
        await shadow.fetch(git_dir, *commits)
    except GitFailed as error:
        if not error.answered:
            raise
        return False
    return True


async def bring_branch(shadow: ShadowRepo, source: SnapshotSource) -> None:
    """Bring the tip of the task's branch into the shadow, if HEAD is somewhere else."""
    ref = f"refs/heads/{source.workspace.branch}"
    tip = (
        None
        if source.workspace.branch is None
        else await resolve_commit(source.git, source.common_dir, source.common_dir, ref)
    )
    if tip is not None and tip != source.head and tip not in source.loose:
        await shadow.fetch(source.common_dir, tip)
        source.loose.append(tip)


async def _bring_head(shadow: ShadowRepo, source: SnapshotSource) -> str | None:
    """Bring HEAD from our worktree entry, which remains if an agent deletes its tree or `.git`. Else use the branch."""
    ref = f"refs/heads/{source.workspace.branch}"
    places = [(source.repo.common_dir, source.repo.common_dir, ref)]
    if source.git_dir is not None:
        places.insert(0, (source.git_dir, source.common_dir, "HEAD"))
    for place, common_dir, name in places:
        commit = await resolve_commit(source.git, place, common_dir, name)
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


async def resolve_commit(git: Git, git_dir: str, common_dir: str, name: str) -> str | None:
    try:
        return refs.read_ref(git_dir, common_dir, name)
    except (refs.UnusualRef, OSError):
        pass
    try:
        question = ["rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"]
        return (await git.run(*question, cwd=git_dir, env=git_state.READ_ONLY_ENV)).strip()
    except GitFailed as error:
        if not error.answered:
            raise
        return None
    except (FileNotFoundError, NotADirectoryError):
        return None


@dataclass(kw_only=True, slots=True)
class Snapshot:
    """The saved trees of a workspace, and what was found there."""

    tree: str
    head_tree: str | None
    taken: CollectedTree
    staged: StagedContent
    files: int  # how many paths differ from HEAD
    operation: str | None

    @property
    def index_matters(self) -> bool:
        return self.staged.tree is not None and self.staged.tree not in (self.tree, self.head_tree)


async def has_anything_to_take(source: SnapshotSource, own_git: str | None) -> bool:
    """True if there is something to save. Raises WorkspaceProblem if git would wait forever, or lose a history."""
    has_tree = has_content(source.tree)
    if not has_tree and source.git_dir is None:
        return False
    if has_tree and own_git is None:
        refuse_own_history(source.tree)
    await run_in_thread(refuse_pipes, source.tree, source.git_dir)
    return True


async def take_snapshot(
    shadow: ShadowRepo, table: PrivateIndex, source: SnapshotSource, rules: SalvageRules, over: str | None = None
) -> Snapshot:
    """Copy everything into the shadow, still without a ref. Raises WorkspaceProblem if it is too much.

    `over`: a commit that will be written over the workspace. Files in its way are saved too, ignored or not.
    """
    await bring_commits(shadow, source)
    seeded = await table.start_from_head(source.git_dir, source.head)
    # In a sparse checkout, only the index distinguishes files that are left out on purpose from deleted files.
    unsure = not seeded and is_sparse(source.git_dir, source.common_dir)
    # If the agent removed its tree, the missing files prove nothing. Its commits and its index are still saved.
    taken = (
        await collect_work_tree(source.git, table, source.git_dir, source.common_dir, rules, keep_absent=unsure)
        if has_content(source.tree)
        else CollectedTree()
    )
    if over is not None:
        taken.lost += await collect_files_in_the_way(table, over)
    staged = await read_staged(table, source.git_dir, source.head)
    head_tree = (await shadow.run("rev-parse", f"{source.head}^{{tree}}")).strip() if source.head else None
    tree = await table.tree()
    return Snapshot(
        tree=tree,
        head_tree=head_tree,
        taken=taken,
        staged=staged,
        files=await count_changed_paths(shadow, head_tree, tree),
        operation=git_state.find_operation(source.git_dir) if source.git_dir else None,
    )


async def commit_index(shadow: ShadowRepo, source: SnapshotSource, seen: Snapshot) -> str | None:
    """Commit the staged content, if the work tree does not hold it too. Return the commit or None."""
    if not seen.index_matters or seen.staged.tree is None:
        return None
    known = [source.head] if source.head else []
    await shadow.copy_objects(seen.staged.tree, *known)
    seen.files = max(seen.files, await count_changed_paths(shadow, seen.head_tree, seen.staged.tree))
    return await commit(shadow, seen.staged.tree, known, f"index of task {source.workspace.task_id}")


async def count_changed_paths(shadow: ShadowRepo, before: str | None, after: str) -> int:
    """Return how many paths differ between two trees. None means the empty tree."""
    if before == after:
        return 0
    against = before if before is not None else (await shadow.run("mktree")).strip()
    listed = await shadow.run("diff-tree", "-r", "--name-only", "-z", "--no-renames", against, after)
    return len([name for name in listed.split("\0") if name])


async def commit(shadow: ShadowRepo, tree: str, parents: list[str], message: str) -> str:
    options = [word for parent in parents for word in ("-p", parent)]
    return (await shadow.run("commit-tree", tree, *options, "-m", message)).strip()
