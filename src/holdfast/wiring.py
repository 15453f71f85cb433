"""The only place that picks concrete adapters."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Mapping

from holdfast import __version__, clock, config
from holdfast.agents.command import CommandAgent
from holdfast.agents.environment import allowed
from holdfast.agents.port import AgentAdapter
from holdfast.agents.scripted import ScriptedAgent
from holdfast.core.model import Strategy, TaskSpec
from holdfast.core.policy import Limits
from holdfast.errors import Unavailable
from holdfast.home import ensure_directories
from holdfast.ids import new_id
from holdfast.processes.children import Children
from holdfast.processes.helperlock import HelperLock
from holdfast.processes.helpers import HelperRunner
from holdfast.processes.identity import identify
from holdfast.processes.launcher import KeptProcesses
from holdfast.store.port import Host
from holdfast.store.sqlite.connection import refuse_network_filesystem
from holdfast.store.sqlite.reserve import Reserve
from holdfast.store.sqlite.store import SqliteStore
from holdfast.store.sqlite.writer import GroupWriter
from holdfast.supervisor.context import Context, Settings
from holdfast.supervisor.lock import HomeLock
from holdfast.supervisor.loop import Supervisor
from holdfast.supervisor.saying import say
from holdfast.workspaces import git as git_calls
from holdfast.workspaces.directory import DirectoryStrategy
from holdfast.workspaces.git import Git
from holdfast.workspaces.none import NoneStrategy
from holdfast.workspaces.port import WorkspaceStrategy
from holdfast.workspaces.worktree import WorktreeStrategy

AGENTS: dict[str, AgentAdapter] = {agent.name: agent for agent in (CommandAgent(), ScriptedAgent())}


def limits_of(settings: config.Config) -> Limits:
    return Limits(
        runs=settings["runs.max"],
        crash=settings["crash.max_in_window"],
        crash_window=settings["crash.window"],
        retry=settings["retry.max"],
        lost=settings["lost.max"],
        default_hold=settings["resume.default_hold"],
    )


def agent_environment(wanted: Mapping[str, object]) -> dict[str, str]:
    """The allow-list, what the task's settings pass on, what they set."""
    passed = wanted.get("pass", ())
    extra = wanted.get("set", {})
    assert isinstance(passed, list | tuple)
    assert isinstance(extra, dict)
    return allowed(os.environ, tuple(str(name) for name in passed)) | {str(k): str(v) for k, v in extra.items()}


async def supervise(home: str, settings: config.Config, agents: int, idle_exit: float | None) -> None:
    """Run a supervisor on `home` until it is told to stop. The caller holds the home's lock."""
    if Reserve(home).give_up_if_full():
        say("holdfast: the disk is nearly full; the room that was kept back is used now")
    store = SqliteStore(home)
    try:
        store.backup("start")
    except (Unavailable, OSError) as trouble:  # a full disk, say: clean-up may free room, so we go on
        say(f"holdfast: no backup was made: {trouble}")
    store.forget_old_operations(clock.now().wall - 86400)
    await _supervise_locked(home, store, settings, Settings(agents=agents, idle_exit=idle_exit))
    store.close()


async def _supervise_locked(home: str, store: SqliteStore, settings: config.Config, how: Settings) -> None:
    children = Children()
    if not children.become_subreaper():
        raise Unavailable("This system has no child subreapers (Linux has): agents could not be ended with proof.")
    helpers = HelperLock(home)
    helpers.take()
    identity = identify(os.getpid())
    assert identity is not None  # we are alive
    host = Host(
        id=new_id(),
        boot_id=clock.boot_id(),
        pid=os.getpid(),
        start_ticks=identity.start_ticks,
        version=__version__,
        agents=how.agents,
    )
    supervisors: list[Supervisor] = []
    store.write(lambda tx: tx.hosts.open(host, how.lease_ttl, clock.now()))
    writer = GroupWriter(
        home,
        beat=lambda tx: tx.hosts.beat(host.id, how.lease_ttl, clock.now()),
        beat_every=how.beat_every,
        on_lease_lost=lambda: supervisors[0].on_lease_lost(),
    )
    runner = HelperRunner(children, helpers)
    git = Git(runner)
    strategies: dict[tuple[Strategy, bool], WorkspaceStrategy] = {
        (Strategy.WORKTREE, False): WorktreeStrategy(home, git),
        (Strategy.DIRECTORY, False): DirectoryStrategy(home, git, runner, copy=False),
        (Strategy.DIRECTORY, True): DirectoryStrategy(home, git, runner, copy=True),
        (Strategy.NONE, False): NoneStrategy(),
    }

    def strategy_of(spec: TaskSpec) -> WorkspaceStrategy:
        return strategies[spec.strategy, spec.directory_copy]

    context = Context(
        home=home,
        host_id=host.id,
        clock=clock.now,
        jitter=random.random,
        store=store,
        writer=writer,
        processes=KeptProcesses(os.path.join(home, "runs"), children),
        strategy_of=strategy_of,
        agents=AGENTS,
        environment=agent_environment,
        limits=limits_of(settings),
        settings=how,
    )
    supervisor = Supervisor(context)
    supervisors.append(supervisor)
    try:
        await supervisor.run()
    finally:
        writer.close()


def run_supervisor(home: str, settings: config.Config, agents: int, idle_exit: float | None) -> None:
    """Blocks until the supervisor has stopped."""
    refuse_network_filesystem(home)
    ensure_directories(home, "runs", "workspaces", "shadows", "backups")
    git_calls.refuse_unusable()
    lock = HomeLock(home)
    lock.take()
    try:
        asyncio.run(supervise(home, settings, agents, idle_exit))  # returns when its deleting threads are done too
    finally:
        lock.release()
