"""The branches of our tasks in the users' repositories: a list of them, and their removal.

Only branches with our prefix may be removed, and only those of ended tasks that this home knows. Commits that no other
branch holds are removed only on request. They are saved first, like everything else that Holdfast removes.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from holdfast.api.queries import Queries
from holdfast.api.work.git_runner import run_here
from holdfast.base import clock, faults
from holdfast.base.dataclass import dataclass
from holdfast.base.errors import Refused, WorkspaceProblem
from holdfast.base.ids import new_id
from holdfast.core.model import Repo, Task, Workspace
from holdfast.core.states import TASK_TERMINAL
from holdfast.store.open import open_store
from holdfast.store.port.transaction import Salvaged
from holdfast.store.sqlite.engine.store import SqliteStore
from holdfast.workspaces.git import git
from holdfast.workspaces.git.merge import find_checkout, has_commit
from holdfast.workspaces.git.repo_lock import hold_repo_lock
from holdfast.workspaces.names import BRANCH_PREFIX, salvage_ref
from holdfast.workspaces.snapshots.shadow_repo import ShadowRepo

if TYPE_CHECKING:
    from holdfast.api.tasks.models import TaskRow
    from holdfast.api.work.models import BranchRow

_TASK = re.compile(re.escape(BRANCH_PREFIX) + r"([a-z0-9]+)(?:-r\d+|--[A-Za-z0-9_.-]+)?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Branch:
    name: str
    repo: Repo
    tip: str
    task: str | None  # None: the branch belongs to no task of this home
    task_state: str | None
    merged_into: str | None  # a branch outside our prefix that has all commits of this one
    stays: str  # why the branch may not be removed. Empty: it may be removed

    def as_row(self) -> BranchRow:
        return {
            "branch": self.name,
            "repo": self.repo.path,
            "commit": self.tip,
            "task": self.task,
            "task_state": self.task_state,
            "merged_into": self.merged_into,
            "stays": self.stays or None,
        }


def list_branches(queries: Queries) -> list[Branch]:
    tasks = {row["id"]: row for row in queries.tasks(everything=True)}
    open_ones = {str(row["branch"]): row["state"] for row in queries.workspaces() if row["state"] != "trashed"}
    wanted = {row["id"] for row in queries.view("to_start_from")}
    squashed = {(row["task"], row["source"]): (row["into"], row["commit"]) for row in queries.view("squashed")}
    found: list[Branch] = []
    for row in queries.repos():
        repo = Repo(id=row["id"], path=row["path"], common_dir=row["common_dir"])
        found += _in_repo(repo, tasks, open_ones, wanted, squashed) if os.path.isdir(repo.common_dir) else ()
    return found


def _in_repo(
    repo: Repo,
    tasks: Mapping[str, TaskRow],
    open_ones: Mapping[str, str],
    wanted: Container[str],
    squashed: Mapping[tuple[str, str], tuple[str, str]],
) -> Iterator[Branch]:
    listed = git.run_sync(
        "for-each-ref", "--format=%(objectname) %(refname)", f"refs/heads/{BRANCH_PREFIX}", cwd=repo.common_dir
    )
    for line in listed[1].splitlines():
        tip, ref = line.split(" ", 1)
        name = ref.removeprefix("refs/heads/")
        match = _TASK.fullmatch(name)
        task = tasks.get(match[1]) if match else None
        ours = task is not None and task["repo"] == repo.path
        into, commit = squashed.get((match[1] if match else "", tip), ("", ""))
        yield Branch(
            name=name,
            repo=repo,
            tip=tip,
            task=task["id"] if task is not None and ours else None,
            task_state=task["state"] if task is not None and ours else None,
            merged_into=_find_containing_branch(repo, tip) or (_has(repo, into, commit) and into) or None,
            stays=_why_it_stays(repo, name, task if ours else None, open_ones, wanted),
        )


def _has(repo: Repo, branch: str, commit: str) -> bool:
    """True if the branch still has the commit into which a task's branch was squashed."""
    return bool(branch) and has_commit(repo.common_dir, f"refs/heads/{branch}", commit)


def _find_containing_branch(repo: Repo, tip: str) -> str | None:
    """Return a branch outside our prefix, local or of a remote, that reaches `tip`."""
    code, out, _err = git.run_sync(
        "for-each-ref", "--format=%(refname)", f"--contains={tip}", "refs/heads", "refs/remotes", cwd=repo.common_dir
    )
    others = [ref for ref in out.split() if not ref.startswith(f"refs/heads/{BRANCH_PREFIX}")]
    # the branch's own copy on a remote is not a merge
    pushed = re.compile(rf"refs/remotes/[^/]+/{re.escape(BRANCH_PREFIX)}")
    others = [ref for ref in others if not pushed.match(ref)]
    return others[0].removeprefix("refs/heads/").removeprefix("refs/remotes/") if code == 0 and others else None


def _why_it_stays(
    repo: Repo, name: str, task: TaskRow | None, open_ones: Mapping[str, str], wanted: Container[str]
) -> str:
    if task is None:
        return "no task of this home made it"
    if task["state"] not in {str(state) for state in TASK_TERMINAL}:
        return f"its task is {task['state']}"
    if name in open_ones:
        return f"its workspace is {open_ones[name]}"
    if task["id"] in wanted:
        return "a subtask will start from it"
    try:
        checkout = find_checkout(repo.common_dir, name)
    except Refused as error:
        return str(error)
    return f"it is checked out in {checkout}" if checkout is not None else ""


def select_removable(found: Sequence[Branch], *, unmerged: bool) -> list[Branch]:
    return [one for one in found if not one.stays and (unmerged or one.merged_into is not None)]


def remove_branch(home: str, branch: Branch) -> bool:
    """Save the commits that no other branch holds, then compare and delete the branch. False: the branch moved
    meanwhile, or its task is active again."""
    assert branch.task is not None
    return asyncio.run(_remove(home, open_store(home, create=False), branch, branch.task))


async def _remove(home: str, store: SqliteStore, branch: Branch, task_id: str) -> bool:
    async with hold_repo_lock(branch.repo.common_dir):  # so that no worktree is added meanwhile
        task = store.write(lambda tx: tx.tasks.get(task_id))
        workspaces = store.write(lambda tx: tx.workspaces.all_current(task_id))
        if task.state not in TASK_TERMINAL or workspaces:
            return False
        # checked again: the branch that had the commits may have been deleted or reset
        if _find_containing_branch(branch.repo, branch.tip) is None:
            await _save(home, store, branch, task)
        ref = f"refs/heads/{branch.name}"
        faults.effect("branches.delete")
        if git.run_sync("update-ref", "-d", ref, branch.tip, cwd=branch.repo.common_dir)[0] != 0:
            return False
        faults.passed("branches.deleted")
    git.change_config_file(branch.repo.common_dir, "--remove-section", f"branch.{branch.name}")  # as `git branch -d`
    if task.branch == branch.name:
        store.write(lambda tx: tx.tasks.clear_branch(task_id, clock.now()))
    return True


async def _save(home: str, store: SqliteStore, branch: Branch, task: Task) -> None:
    """Fetch the branch's commits into the shadow repository, unless a salvage of the task has them. `salvage restore`
    brings them back."""
    shadow = ShadowRepo(home, branch.repo, git.Git(run_here))
    async with shadow.held():
        rows = store.view("salvages", task=task.id)
        for row in rows:
            if await _reaches(shadow, str(row["commit"]), branch.tip):
                return
        workspace = _last_workspace(store, task.id)
        ref = salvage_ref(task.id, f"{workspace.id}-branch-{branch.tip[:12]}")  # a workspace may have several
        await shadow.fetch(branch.repo.common_dir, branch.tip)
        await shadow.keep(ref, branch.tip)
        base = task.base_commit
        changed = await shadow.run("diff-tree", "-r", "--name-only", "-z", base, branch.tip) if base is not None else ""
    saved = Salvaged(
        id=new_id(),
        ref=ref,
        commit=branch.tip,
        base=base,
        files=len([name for name in changed.split("\0") if name]),
        reason=f"branch {branch.name} was pruned",
    )
    store.write(lambda tx: tx.workspaces.record_salvage(workspace, saved, clock.now()))


async def _reaches(shadow: ShadowRepo, commit: str, tip: str) -> bool:
    try:
        await shadow.run("merge-base", "--is-ancestor", tip, commit)
    except WorkspaceProblem:
        return False
    return True


def _last_workspace(store: SqliteStore, task_id: str) -> Workspace:
    row = store.view("workspace", id=task_id)[0]
    return store.write(lambda tx: tx.workspaces.get(str(row["id"])))
