"""Changes (R-TREE-16) and stale git locks (R-TREE-15) that a run left in the user's repository outside its workspace
and branch.

The user works in the repository too. So a change is only recorded. An alert is raised for new hooks, for new keys that
run commands, and for refs that the agent moved (workspaces/git/reflogs.py).

Only worktrees are checked. Other strategies do not share a `.git` directory with their agents. With `none`, the agent
is meant to change the repository.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import time
from collections.abc import Sequence

from holdfast.base.concurrency import run_in_thread
from holdfast.base.dataclass import dataclass
from holdfast.base.text import make_text
from holdfast.core.model import Event, Level, Repo, Strategy, Task
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.log import log_line
from holdfast.supervisor.service import Service
from holdfast.workspaces.git.fingerprint import RepoChanges, list_shared_locks
from holdfast.workspaces.names import workspace_path

SHOWN, MOST_NAMES_IN_EVENT = 8, 200  # names in a message, names in an event
# seconds that a lock without a holder must stay unchanged: other programs than git use such locks for moments
LOCK_UNCHANGED_FOR = 0.2
LOCK_ALERT = "git-lock:"


@dataclass(frozen=True, kw_only=True, slots=True)
class RepoFindings:
    """The changes and locks that were found at the end of a run."""

    repo: Repo
    changes: RepoChanges | None
    locks: tuple[str, ...]


async def fingerprint_before(context: Context, task: Task, run_id: str) -> None:
    """Fingerprint the repository before the agent starts. If that fails, the run continues, but its changes cannot be
    found later."""
    if task.spec.strategy is Strategy.WORKTREE:
        repo = await context.writer.write(lambda tx: tx.workspaces.repo(task.spec.repo_id))
        with contextlib.suppress(OSError):
            await run_in_thread(_note, context, repo, task, run_id)


async def compare_after(context: Context, task: Task, run_id: str) -> RepoFindings | None:
    """Compare the repository with its fingerprint after the tree is proven empty, whichever supervisor started the run.
    None: no findings."""
    if task.spec.strategy is not Strategy.WORKTREE:
        return None
    repo = await context.writer.write(lambda tx: tx.workspaces.repo(task.spec.repo_id))
    try:
        return await run_in_thread(_compare, context, repo, task, run_id)
    except OSError as trouble:  # For example out of descriptors: the settlement of a task does not wait for this.
        log_line(f"holdfast: {repo.path} could not be compared after task {task.id}: {trouble}")
        return None


def _note(context: Context, repo: Repo, task: Task, run_id: str) -> None:
    workspace = workspace_path(context.home, repo.id, task.id)
    context.ports.fingerprints.note(repo.common_dir, _folder(context, run_id), workspace)


def _compare(context: Context, repo: Repo, task: Task, run_id: str) -> RepoFindings | None:
    workspace = workspace_path(context.home, repo.id, task.id)
    changes = context.ports.fingerprints.compare(repo.common_dir, _folder(context, run_id), workspace)
    folders = (repo.path, repo.common_dir, os.path.join(context.home, "workspaces", repo.id))
    locks = _find_stale_locks(repo.common_dir, folders, context)
    return RepoFindings(repo=repo, changes=changes, locks=locks) if changes or locks else None


def _find_stale_locks(common_dir: str, folders: tuple[str, ...], context: Context) -> tuple[str, ...]:
    """Return the git locks that no process holds and that are still unchanged a moment later."""
    seen = [(lock, _stamp(lock)) for lock in list_shared_locks(common_dir)]
    free = [(lock, stamp) for lock, stamp in seen if stamp and not context.ports.may_be_held(lock, folders)]
    if free:
        time.sleep(LOCK_UNCHANGED_FOR)
    return tuple(lock for lock, stamp in free if _stamp(lock) == stamp and not context.ports.may_be_held(lock, folders))


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns


def report_findings(tx: Transaction, context: Context, task: Task, run_id: str, found: RepoFindings | None) -> None:
    """Emit the findings in the transaction that ends the run: exactly once, even after a crash."""
    if found is None:
        return
    if found.changes is not None:
        _report_changes(tx, context, task, run_id, found.repo, found.changes)
    for lock in map(make_text, found.locks):
        tx.events.raise_alert(
            f"{LOCK_ALERT}{lock}",
            f"The git lock {lock} existed when a run of task {task.id} ended, but no process holds it. git refuses to "
            f"work in {found.repo.path} while the lock exists.",
            f"Make sure that no git is running there, then: rm {shlex.quote(lock)}",
            context.clock(),
            task_id=task.id,
            level=Level.WARNING,
        )


def _report_changes(
    tx: Transaction, context: Context, task: Task, run_id: str, repo: Repo, changes: RepoChanges
) -> None:
    names, alarming, now = list(map(make_text, changes.names)), list(map(make_text, changes.alarming)), context.clock()
    tx.events.emit(
        Event(
            kind="repo.changed-outside",
            level=Level.WARNING if alarming else Level.INFO,
            component="workspaces",
            task_id=task.id,
            run_id=run_id,
            message=f"While task {task.id} ran, these changed in {repo.path}: {_shorten(names)}.",
            data={
                "repo": repo.path,
                "names": names[:MOST_NAMES_IN_EVENT],
                "count": len(names),
                "alarming": alarming[:MOST_NAMES_IN_EVENT],
            },
        ),
        now,
    )
    if not alarming:
        return
    # Many agents may see the same change, for example a hook of the user. That is one alert, which counts them.
    tx.events.raise_alert(
        f"outside:{repo.id}:{changes.digest}",
        _describe(repo, task, changes),
        "If you made this change, acknowledge it (`holdfast alerts ack`). If not, look at what the agent did "
        f"(`holdfast logs {task.id}`), and consider `--workspace clone`, whose agents cannot reach your repository.",
        now,
        task_id=task.id,
        level=Level.CRITICAL if changes.commands else Level.WARNING,
        details={"repo": repo.path, "names": alarming[:MOST_NAMES_IN_EVENT]},
    )


def _describe(repo: Repo, task: Task, changes: RepoChanges) -> str:
    sentences = [f"While task {task.id} ran, {repo.path} was changed outside the task's branch."]
    if commands := [make_text(name) for name in sorted(changes.commands)]:
        sentences.append(f"git will run the commands in these: {_shorten(commands)}.")
    if refs := [make_text(name) for name in sorted(changes.agent_refs)]:
        sentences.append(f"Not moved by Holdfast or from a checkout of yours: {_shorten(refs)}.")
    return " ".join(sentences)


def _shorten(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def _folder(context: Context, run_id: str) -> str:
    return os.path.join(context.home, "runs", run_id)


class LockAlerts(Service):
    """The service that closes the alert of a git lock when the lock is gone."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._next = 0.0

    async def tick(self) -> None:
        """Check the locks that have an alert, at most every two seconds, because this is not urgent."""
        now = asyncio.get_running_loop().time()
        if now < self._next:
            return
        self._next = now + 2.0
        for row in self._context.store.view("alerts", all=0):
            key = str(row["key"])
            if key.startswith(LOCK_ALERT) and not os.path.lexists(key.removeprefix(LOCK_ALERT)):
                await self._close(key)

    async def _close(self, key: str) -> None:
        await self._context.writer.write(lambda tx: tx.events.close_alert(key, "the lock's end", self._context.clock()))
