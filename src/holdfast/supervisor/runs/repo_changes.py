"""What a run left in the user's repository outside its workspace and branch: changes (R-TREE-16), locks (R-TREE-15).

Only for worktrees: other strategies do not share a `.git` with their agents, or, with `none`, are meant to change it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import time
from dataclasses import dataclass

from holdfast.base.concurrency import in_thread
from holdfast.base.text import as_text
from holdfast.core.model import Event, Level, Repo, Strategy, Task
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.log import say
from holdfast.supervisor.service import Service
from holdfast.workspaces.git.fingerprint import Changes, shared_locks

SHOWN, TOLD = 8, 200  # names in a message, names in an event
SETTLING = 0.2  # seconds that a lock without a holder must stay as it is: other programs than git use them for moments
LOCK_ALERT = "git-lock:"


@dataclass(frozen=True, kw_only=True, slots=True)
class Findings:
    """What a look at the end of a run found."""

    repo: Repo
    changes: Changes | None
    locks: tuple[str, ...]


async def note_before(context: Context, task: Task, run_id: str) -> None:
    """Before the agent is started. What cannot be noted now cannot be compared later; the run goes on."""
    if task.spec.strategy is Strategy.WORKTREE:
        repo = await context.writer.write(lambda tx: tx.workspaces.repo(task.spec.repo_id))
        with contextlib.suppress(OSError):
            await in_thread(context.ports.fingerprints.note, repo.common_dir, _folder(context, run_id))


async def look_after(context: Context, task: Task, run_id: str) -> Findings | None:
    """After the proof of emptiness, whoever started the run. None: nothing to tell."""
    if task.spec.strategy is not Strategy.WORKTREE:
        return None
    repo = await context.writer.write(lambda tx: tx.workspaces.repo(task.spec.repo_id))
    try:
        return await in_thread(_look, context, repo, run_id)
    except OSError as trouble:  # out of descriptors, say: the ending of a task does not wait for this
        say(f"holdfast: {repo.path} could not be compared after task {task.id}: {trouble}")
        return None


def _look(context: Context, repo: Repo, run_id: str) -> Findings | None:
    changes = context.ports.fingerprints.compare(repo.common_dir, _folder(context, run_id))
    folders = (repo.path, repo.common_dir, os.path.join(context.home, "workspaces", repo.id))
    locks = _lying_around(repo.common_dir, folders, context)
    return Findings(repo=repo, changes=changes, locks=locks) if changes or locks else None


def _lying_around(common_dir: str, folders: tuple[str, ...], context: Context) -> tuple[str, ...]:
    """Locks that nobody holds, and that are the same a moment later."""
    seen = [(lock, _stamp(lock)) for lock in shared_locks(common_dir)]
    free = [(lock, stamp) for lock, stamp in seen if stamp and not context.ports.may_be_held(lock, folders)]
    if free:
        time.sleep(SETTLING)
    return tuple(lock for lock, stamp in free if _stamp(lock) == stamp and not context.ports.may_be_held(lock, folders))


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns


def tell(tx: Transaction, context: Context, task: Task, run_id: str, found: Findings | None) -> None:
    """In the transaction that ends the run: told once, whatever crashes."""
    if found is None:
        return
    if found.changes is not None:
        _tell_changes(tx, context, task, run_id, found.repo, found.changes)
    for lock in map(as_text, found.locks):
        tx.events.raise_alert(
            f"{LOCK_ALERT}{lock}",
            f"The git lock {lock} was there when a run of task {task.id} ended, and no process holds it: "
            f"git refuses to work in {found.repo.path} while it is there.",
            f"Make sure that no git is at work there, then: rm {shlex.quote(lock)}",
            context.clock(),
            task_id=task.id,
            level=Level.WARNING,
        )


def _tell_changes(tx: Transaction, context: Context, task: Task, run_id: str, repo: Repo, changes: Changes) -> None:
    names, now = [as_text(name) for name in changes.names], context.clock()
    shown = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
    message = f"{shown} of {repo.path} changed while task {task.id} ran: by its agent, or by you or another program."
    tx.events.emit(
        Event(
            kind="repo.changed-outside",
            level=Level.WARNING,
            component="workspaces",
            task_id=task.id,
            run_id=run_id,
            message=message,
            data={"repo": repo.path, "names": names[:TOLD], "count": len(names)},
        ),
        now,
    )
    # Many agents may see the same change, a commit of the user say: that is one alert, which counts.
    tx.events.raise_alert(
        f"outside:{repo.id}:{changes.digest}",
        message,
        "If that was you, acknowledge it (`holdfast alerts ack`). If not, look at what the agent did "
        f"(`holdfast logs {task.id}`), and consider `--workspace clone`, whose agents cannot reach your repository.",
        now,
        task_id=task.id,
        level=Level.CRITICAL if changes.files else Level.WARNING,
    )


def _folder(context: Context, run_id: str) -> str:
    return os.path.join(context.home, "runs", run_id)


class LockAlerts(Service):
    """Closes the alert of a lock when the lock is gone."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._next = 0.0

    async def tick(self) -> None:
        """With a look at the store, but not each one: nobody waits for this."""
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
