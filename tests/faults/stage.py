"""A home with a store and a repository, on which whole supervisors run, each in a process of its own."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Any, cast

from tests.faults.conftest import assert_free, assert_no_process
from tests.fleet import Fleet, in_company
from tests.harness.await_case import run_case

from holdfast import config
from holdfast.agents.registry import AGENTS
from holdfast.api.commands import Commands, NewTask
from holdfast.api.home.models import EventRow
from holdfast.api.queries import Queries
from holdfast.api.tasks.models import TaskRow
from holdfast.base import clock
from holdfast.base.ids import new_id
from holdfast.config.retry_budgets import retry_limits_from_settings
from holdfast.core.model import Task
from holdfast.processes.children import Children
from holdfast.processes.helpers import HelperLock, HelperRunner
from holdfast.processes.identity import identify
from holdfast.processes.launcher import KeeperProcesses
from holdfast.store.port.transaction import Host
from holdfast.store.sqlite.engine.group_commit import GroupWriter
from holdfast.store.sqlite.engine.store import SqliteStore
from holdfast.supervisor.context import Context, Ports
from holdfast.supervisor.home_lock import HomeLock
from holdfast.supervisor.runs.attempt import Attempt
from holdfast.supervisor.settings import SupervisorSettings
from holdfast.wiring import supervisor
from holdfast.workspaces.git.git import Git
from holdfast.workspaces.setup.commands import CommandSetup
from holdfast.workspaces.strategies.worktree import WorktreeStrategy

RECOVERY_BOUND = 60.0  # seconds for a whole supervisor's life on a loaded machine; it takes a few tenths
CLEANUP_BOUND = 2.0  # R-TREE-01, on a machine with room: see `cleanup_bound`
FILES = 100


def cleanup_bound() -> float:
    """Seconds that a clean-up may take now: two, and more where others keep every core busy (it starts a git)."""
    return in_company(CLEANUP_BOUND)


class Stage:
    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.home = str(fleet.home)
        os.makedirs(os.path.join(self.home, "runs"))
        for number in range(FILES):
            (fleet.repo / f"file{number}").write_text(f"{number}\n")
        fleet.git("add", ".")
        fleet.git("commit", "--quiet", "-m", "A hundred files")
        self.go = fleet.root / "go"
        self.at_work = fleet.root / "at-work"

    def add(self, script: str, **options: Any) -> str:
        commands = Commands(self.home)
        try:
            new = NewTask(
                prompt="walk", directory=str(self.fleet.repo), agent="command", command=("sh", "-c", script), **options
            )
            return commands.add(new).id
        finally:
            commands._store.close()

    async def supervise(self) -> None:
        """A supervisor as `holdfast up --idle-exit 0` makes it."""
        lock = HomeLock(self.home)
        lock.take()
        try:
            await supervisor.run_on_home(self.home, config.load(), SupervisorSettings(agents=2, idle_exit=0.0), lock)
        finally:
            lock.release()

    def recover(self) -> None:
        """The next start: it has to end by itself, in bounded time."""
        began = time.monotonic()
        ended = run_case(self.supervise(), None, apart=True, patience=RECOVERY_BOUND)
        assert ended.how == "returned", f"the recovery {ended.how}: {ended.error!r} {ended.left}"
        assert not ended.left, f"the recovery left: {ended.left}"
        assert time.monotonic() - began < RECOVERY_BOUND
        with contextlib.suppress(ChildProcessError):  # keepers that became ours when their supervisor went
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    def task(self, task_id: str) -> dict[str, Any]:
        return cast("dict[str, Any]", Queries(self.home).task(task_id))

    def tasks(self) -> list[TaskRow]:
        return Queries(self.home).tasks(everything=True)

    def told(self, task_id: str) -> list[EventRow]:
        return Queries(self.home).events(task_id=task_id)

    def events(self, task_id: str) -> list[str]:
        return [str(event["kind"]) for event in Queries(self.home).events(task_id=task_id)]

    def assert_ended_once(self, task_id: str, state: str) -> None:
        """One terminal event, one agent that ever ran. A run that was only intended is another row, without a pid."""
        task = self.task(task_id)
        assert task["state"] == state, task
        assert self.events(task_id).count(f"task.{state}") == 1
        ran = [run for run in task["runs"] if run["pid"] is not None]
        assert len(ran) == 1, f"it was run {len(ran)} times: {task['runs']}"

    def assert_put_away_if_ended(self, task_id: str) -> None:
        """R-TREE-01, R-TREE-03: with the end of its task, before any recovery, directory and admin entry are gone."""
        if self.task(task_id)["state"] in ("completed", "failed", "cancelled"):
            assert [path for path in self.fleet.worktrees() if task_id in path] == []
            assert list((Path(self.home) / "workspaces").glob(f"*/{task_id}")) == []

    def assert_nothing_left(self) -> None:
        """R-TREE-01: directory gone, admin entry gone, every process dead, locks free, the store sound."""
        assert_no_process(self.fleet)
        assert self.fleet.worktrees() == []
        workspaces = Path(self.home) / "workspaces"
        left = [str(item) for item in workspaces.rglob("*") if item.name != ".trash"]
        assert left == [], left
        assert_free(Path(self.home) / "supervisor.lock")
        assert_free(self.fleet.repo / ".git" / "holdfast.lock")
        assert self._stale_locks() == []
        store = SqliteStore(self.home)
        try:
            assert store.integrity_problems() == []
        finally:
            store.close()

    def _stale_locks(self) -> list[Path]:
        return [path for path in (self.fleet.repo / ".git").rglob("*.lock") if path.name != "holdfast.lock"]

    # -- one attempt without a supervisor around it --------------------------------------------------------------------

    async def drive(self, attempts: list[Attempt]) -> None:
        """Claim the waiting task and drive it to its settlement, as the supervisor's loop would."""
        with contextlib.ExitStack() as closing:
            context = self.context(closing)
            task = await context.writer.write(lambda tx: tx.tasks.claim(context.host_id, context.clock()))
            assert isinstance(task, Task)
            attempts.append(Attempt(context, task))
            await attempts[-1].drive()

    def context(self, closing: contextlib.ExitStack) -> Context:
        """As wiring.py makes it."""
        children, helpers = Children(), HelperLock(self.home)
        closing.callback(os.close, helpers.fd)
        assert children.become_subreaper()
        helpers.take()
        store = SqliteStore(self.home)
        closing.callback(store.close)
        me = identify(os.getpid())
        assert me is not None
        host = Host(id=new_id(), boot_id=me.boot_id, pid=me.pid, start_ticks=me.start_ticks, version="walker", agents=1)
        store.write(lambda tx: tx.hosts.open(host, 30.0, clock.now()))
        writer = GroupWriter(self.home)
        closing.callback(writer.close)
        processes = KeeperProcesses(os.path.join(self.home, "runs"), children)
        closing.callback(processes.close)
        runner = HelperRunner(children, helpers)
        strategy = WorktreeStrategy(self.home, Git(runner))
        return Context(
            home=self.home,
            host_id=host.id,
            clock=clock.now,
            jitter=random.random,
            store=store,
            writer=writer,
            limits=retry_limits_from_settings(config.load()),
            settings=SupervisorSettings(agents=1),
            ports=Ports(
                processes=processes,
                strategy_of=lambda _spec: strategy,
                agents=AGENTS,
                environment=partial(supervisor.agent_environment, home=self.home),
                workspace_setup=CommandSetup(self.home, Git(runner), runner),
            ),
        )


Work = Coroutine[Any, Any, None]
