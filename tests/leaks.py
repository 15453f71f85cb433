"""Leaked workspaces in any number: as a supervisor leaves them that is killed before it can put them away, and as
people make them. Made with the code that makes real ones, without agents."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

import apsw
from tests.fleet import Fleet

from holdfast.api.commands import Commands, NewTask
from holdfast.base import clock
from holdfast.base.ids import new_id
from holdfast.core.model import Workspace
from holdfast.core.states import WorkspaceState
from holdfast.processes.children import Children
from holdfast.processes.helpers import HelperRunner
from holdfast.store.port.transaction import Host, Ownership
from holdfast.store.sqlite.engine.store import SqliteStore
from holdfast.workspaces.git.git import Git
from holdfast.workspaces.names import task_branch, workspace_path
from holdfast.workspaces.strategies.worktree import WorktreeStrategy


@dataclass(frozen=True, slots=True)
class Leaked:
    tasks: list[str]  # over, their workspaces never removed
    dirty: list[str]  # those of them with work that nobody saved
    lost: list[str]  # those of them that the ledger does not know any more
    foreign: list[Path]


def leak_many(fleet: Fleet, count: int) -> Leaked:
    """Of `count` trees every tenth has unsaved work, and every fifth is known by its marker only; and a tenth as many
    foreign ones, made by hand in our folder."""
    before = os.environ.get("HOME")
    os.environ["HOME"] = fleet.env["HOME"]
    try:
        tasks = asyncio.run(_leak(fleet, count))
    finally:
        if before is not None:
            os.environ["HOME"] = before
    dirty, lost = tasks[::10], tasks[1::5]
    repo = workspaces_of(fleet, tasks[0]).parent
    for task in dirty:
        (repo / task / "unsaved.txt").write_text(f"work of {task}\n")
    store = apsw.Connection(str(fleet.home / "holdfast.db"))
    with store:
        store.execute("UPDATE tasks SET state = 'cancelled', owner = NULL, ended_at = 0 WHERE state = 'running'")
        store.execute("UPDATE workspaces SET disposition = 'salvage', reason = 'cancelled (default)'")
        store.executemany("UPDATE workspaces SET state = 'gone' WHERE task_id = ?", [(task,) for task in lost])
        store.execute("UPDATE hosts SET ended_at = 0")
    store.close()
    foreign = [repo / f"byhand{number}" for number in range(max(1, count // 10))]
    for path in foreign:
        fleet.git("worktree", "add", "--quiet", "--detach", str(path))
    return Leaked(tasks=tasks, dirty=dirty, lost=lost, foreign=foreign)


def workspaces_of(fleet: Fleet, task: str) -> Path:
    return Path(str(fleet.show(task)["workspace"]["path"]))


async def _leak(fleet: Fleet, count: int) -> list[str]:
    home = str(fleet.home)
    commands = Commands(home)
    new = NewTask(prompt="leak", directory=str(fleet.repo), command=("true",))
    tasks = [commands.add(new).id for _ in range(count)]
    store = SqliteStore(home)
    strategy = WorktreeStrategy(home, Git(HelperRunner(Children())))
    host = Host(id=new_id(), boot_id=clock.boot_id(), pid=1, start_ticks=0, version="0", agents=1)
    base = fleet.git("rev-parse", "HEAD")
    store.write(lambda tx: tx.hosts.open(host, 3600.0, clock.now()))
    for _ in range(count):
        task = store.write(lambda tx: tx.tasks.claim(host.id, clock.now()))
        assert task is not None
        repo = store.write(lambda tx: tx.workspaces.repo(task.spec.repo_id))  # noqa: B023 - run at once
        ownership = Ownership(task_id=task.id, fence=task.fence, owner=host.id)
        workspace = Workspace(
            id=new_id(),
            task_id=task.id,
            repo_id=repo.id,
            strategy=task.spec.strategy,
            path=workspace_path(home, repo.id, task.id),
            branch=task_branch(task.id, 0),
            base_commit=base,
            state=WorkspaceState.INTENDED,
            disposition=None,
        )
        store.write(lambda tx: _intend(tx, ownership, workspace))  # noqa: B023 - run at once
        await strategy.prepare(repo, workspace, None)
        store.write(lambda tx: tx.workspaces.ready(ownership, workspace, "made", clock.now()))  # noqa: B023 - run at once
    store.close()
    return tasks


def _intend(tx: object, ownership: Ownership, workspace: Workspace) -> None:
    from holdfast.store.sqlite.transaction import SqliteTransaction

    assert isinstance(tx, SqliteTransaction)
    tx.tasks.set_base(ownership, workspace.base_commit, workspace.branch, clock.now())
    tx.workspaces.intend(ownership, workspace, clock.now())
