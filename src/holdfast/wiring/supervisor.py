"""The supervisor's wiring: it chooses the concrete adapters, opens the home, and runs the supervisor or one sweep."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import Callable, Mapping
from functools import partial

from holdfast import __version__, config
from holdfast.agents.common.environment import OWN_VARIABLES, filter_environment
from holdfast.agents.registry import AGENTS
from holdfast.base import clock
from holdfast.base.errors import Unavailable
from holdfast.base.home import ensure_directories
from holdfast.base.ids import new_id
from holdfast.config.env_secrets import look_up_secrets
from holdfast.config.retry_budgets import retry_limits_from_settings
from holdfast.containers.container_run import Enclosure
from holdfast.containers.engine import Engines, socket_of
from holdfast.containers.workspaces import ContainerStrategy
from holdfast.containers.workspaces import EngineContainerSweeper as ContainerSweeper
from holdfast.core.cleanup.sweep_report import SweepReport
from holdfast.core.model import Strategy, TaskSpec
from holdfast.core.runs.retry_budgets import RetryLimits
from holdfast.intake.accounts import UserAccounts
from holdfast.intake.new_task import describe_host_of
from holdfast.processes.cgroups import CgroupRecord, probe_cgroups
from holdfast.processes.children import Children, protect_from_oom, run_without_foreign_children
from holdfast.processes.helpers import HelperLock, HelperRunner
from holdfast.processes.identity import identify
from holdfast.processes.launcher import KeeperProcesses
from holdfast.processes.observe.machine import Machine
from holdfast.processes.observe.process_tree import read_activity
from holdfast.processes.open_files import is_git_lock_in_use
from holdfast.processes.supervisor_facts import record_surroundings
from holdfast.secrets.redact import learn, secrets_in
from holdfast.store.port.transaction import Host
from holdfast.store.sqlite.engine.connection import refuse_network_filesystem
from holdfast.store.sqlite.engine.disk_reserve import DiskReserve
from holdfast.store.sqlite.engine.group_commit import GroupWriter
from holdfast.store.sqlite.engine.store import SqliteStore
from holdfast.supervisor.context import Context, Ports, WakeUp
from holdfast.supervisor.daemon import Supervisor
from holdfast.supervisor.home_lock import HomeLock
from holdfast.supervisor.log import log_line
from holdfast.supervisor.settings import SupervisorSettings
from holdfast.supervisor.workspaces.cleanup import CleanupService
from holdfast.supervisor.workspaces.sweep import SweepService
from holdfast.wiring.alerts import UserAlertTargets
from holdfast.wiring.reload import UserSettings
from holdfast.wiring.schedules import RepoScheduleFiles
from holdfast.wiring.trackers import RepoTrackers
from holdfast.workspaces import scratch
from holdfast.workspaces.git import git_versions
from holdfast.workspaces.git.changes import ChangesReader, touched_by
from holdfast.workspaces.git.config_view import drop_stale_views
from holdfast.workspaces.git.git import Git
from holdfast.workspaces.port import CommandRunner, WorkspaceStrategy
from holdfast.workspaces.removal import in_use
from holdfast.workspaces.removal.sweeper import DiskSweeper
from holdfast.workspaces.setup.commands import CommandSetup
from holdfast.workspaces.snapshots.reclaim import Reclaimer
from holdfast.workspaces.strategies.clone import CloneStrategy
from holdfast.workspaces.strategies.directory import DirectoryStrategy
from holdfast.workspaces.strategies.none import NoneStrategy
from holdfast.workspaces.strategies.worktree import WorktreeStrategy


def agent_environment(wanted: Mapping[str, object], home: str) -> dict[str, str]:
    """Return an agent's environment: the allow-list, and the variables that the task's settings pass on or set.

    Values that look like secrets are not stored with the task. They are read now, from the settings file that has them.
    A task that an earlier version added may set a variable of Holdfast itself. Such variables are left out.
    """
    passed = wanted.get("pass", ())
    extra = wanted.get("set", {})
    assert isinstance(passed, list | tuple)
    assert isinstance(extra, dict)
    chosen = {str(k): str(v) for k, v in extra.items() if not str(k).startswith(OWN_VARIABLES)}
    chosen |= look_up_secrets(wanted, home)
    learn(secrets_in(chosen))
    return filter_environment(os.environ, tuple(str(name) for name in passed)) | chosen


def make_strategy_chooser(
    home: str, git: Git, runner: CommandRunner, engines: Engines
) -> Callable[[TaskSpec], WorkspaceStrategy]:
    made: dict[tuple[Strategy, bool], WorkspaceStrategy] = {
        (Strategy.WORKTREE, False): WorktreeStrategy(home, git),
        (Strategy.CLONE, False): CloneStrategy(home, git),
        (Strategy.DIRECTORY, False): DirectoryStrategy(home, git, runner, copy=False),
        (Strategy.DIRECTORY, True): DirectoryStrategy(home, git, runner, copy=True),
        (Strategy.NONE, False): NoneStrategy(),
    }

    def strategy_of(spec: TaskSpec) -> WorkspaceStrategy:
        if spec.strategy is Strategy.CONTAINER:
            socket = socket_of(spec.container)
            return ContainerStrategy(home, git, engines.at(socket), is_used=socket in engines.all())
        return made[spec.strategy, spec.directory_copy]

    return strategy_of


async def run_on_home(
    home: str,
    settings: config.Config,
    how: SupervisorSettings,
    lock: HomeLock,
    flags: Mapping[str, object] | None = None,
) -> None:
    """Run a supervisor on `home` until it is asked to stop."""
    with contextlib.ExitStack() as closing:
        if DiskReserve(home).release_if_full():
            log_line("holdfast: the disk is nearly full; the reserved space is used now")
        store = SqliteStore(home)
        closing.callback(store.close)
        try:
            store.backup("start")
        except (Unavailable, OSError) as trouble:  # for example a full disk: clean-up may free space, so continue
            log_line(f"holdfast: no backup was made: {trouble}")
        store.forget_old_operations(clock.now().wall - 86400)
        helpers = HelperLock(home)
        closing.callback(helpers.close)
        source = UserSettings(settings, how, flags)
        await _supervise_locked(home, store, helpers, source, retry_limits_from_settings(settings), how, lock)


async def _supervise_locked(
    home: str,
    store: SqliteStore,
    helpers: HelperLock,
    source: UserSettings,
    limits: RetryLimits,
    how: SupervisorSettings,
    lock: HomeLock,
) -> None:
    children = Children()
    if not children.become_subreaper():
        raise Unavailable("This system has no child subreapers, so agents could not be ended with proof. Use Linux.")
    protect_from_oom()
    helpers.take()
    scratch.clear_scratch(home)
    drop_stale_views(home)
    in_use.clear_dead_locks(home)
    bases = CgroupRecord(home)
    cgroups = probe_cgroups(home, bases) if source.cgroup == "auto" else "switched off by the setting processes.cgroup"
    if isinstance(cgroups, str):
        log_line(f"holdfast: agents run without cgroups of their own: {cgroups}")
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
    news = WakeUp()
    writer = GroupWriter(
        home,
        beat=lambda tx: tx.hosts.beat(host.id, how.lease_ttl, clock.now()),
        beat_every=how.beat_every,
        on_lease_lost=lambda: supervisors[0].on_lease_lost(),
        on_batch=news.ring,
    )
    runner = HelperRunner(children, helpers)
    git = Git(runner, is_git_lock_in_use)
    engines = Engines(home)
    processes = KeeperProcesses(
        os.path.join(home, "runs"), children, None if isinstance(cgroups, str) else cgroups, bases
    )
    context = Context(
        home=home,
        host_id=host.id,
        clock=clock.now,
        jitter=random.random,
        store=store,
        writer=writer,
        limits=limits,
        settings=how,
        news=news,
        ports=Ports(
            processes=processes,
            strategy_of=make_strategy_chooser(home, git, runner, engines),
            agents=dict(AGENTS),  # loads all agents now, because the installed version may change while we run
            environment=partial(agent_environment, home=home),
            surroundings=describe_host_of,
            accounts=UserAccounts(source.held),
            alert_targets=UserAlertTargets(source.held, runner),
            agent_containers=Enclosure(home, engines, runner),
            containers=ContainerSweeper(home, engines),
            source=source,
            trackers=RepoTrackers(home, runner),
            schedule_files=RepoScheduleFiles(home, git),
            reclaimer=Reclaimer(home, git),
            sweeper=DiskSweeper(home, git),
            pressure=Machine(home=home).pressure,
            free_disk=Machine(home=home).free_disk_elsewhere,
            activity=read_activity,
            home_is_ours=lock.is_held,
            changes_so_far=ChangesReader(home, git).read,
            changed_files=touched_by(git),
            workspace_setup=CommandSetup(home, git, runner),
            may_be_held=is_git_lock_in_use,
        ),
    )
    try:
        supervisors.append(Supervisor(context))
        await supervisors[0].run()
    finally:
        writer.close()
        processes.close()
        bases.leave()


def run_supervisor(
    home: str, settings: config.Config, how: SupervisorSettings, flags: Mapping[str, object] | None = None
) -> None:
    """Run a supervisor on `home`. The call blocks until the supervisor has stopped."""
    code = run_without_foreign_children(lambda: _run_locked(home, settings, how, flags))
    if code:
        raise SystemExit(code)


def _run_locked(
    home: str, settings: config.Config, how: SupervisorSettings, flags: Mapping[str, object] | None
) -> None:
    refuse_network_filesystem(home)
    ensure_directories(home, "runs", "workspaces", "shadows", "backups")
    git_versions.refuse_old_git(git_versions.ask_version())
    lock = HomeLock(home)
    lock.take()
    try:
        record_surroundings(home, config.user_file_path())
        # asyncio.run() returns only when the deleting threads are done too.
        asyncio.run(run_on_home(home, settings, how, lock, flags))
    finally:
        lock.release()


def run_sweep(home: str, settings: config.Config) -> SweepReport:
    """Run a whole sweep without a supervisor, under the home's lock.

    Running tasks of a dead supervisor are left for the next `up`.
    """
    refuse_network_filesystem(home)
    ensure_directories(home, "runs", "workspaces", "shadows", "backups")
    git_versions.refuse_old_git(git_versions.ask_version())
    lock = HomeLock(home)
    lock.take()
    try:
        return asyncio.run(_sweep_locked(home, settings, lock))
    finally:
        lock.release()


async def _sweep_locked(home: str, settings: config.Config, lock: HomeLock) -> SweepReport:
    with contextlib.ExitStack() as closing:
        store = SqliteStore(home, create=False)
        closing.callback(store.close)
        helpers = HelperLock(home)
        closing.callback(helpers.close)
        helpers.take()
        scratch.clear_scratch(home)
        drop_stale_views(home)
        children = Children()
        runner = HelperRunner(children, helpers)
        git = Git(runner, is_git_lock_in_use)
        bases, engines = CgroupRecord(home), Engines(home)
        processes = KeeperProcesses(os.path.join(home, "runs"), children, None, bases)
        closing.callback(processes.close)
        writer = GroupWriter(home)
        closing.callback(writer.close)
        context = Context(
            home=home,
            host_id="sweep",
            clock=clock.now,
            jitter=random.random,
            store=store,
            writer=writer,
            limits=retry_limits_from_settings(settings),
            settings=SupervisorSettings(agents=1),
            ports=Ports(
                processes=processes,
                strategy_of=make_strategy_chooser(home, git, runner, engines),
                agents=dict(AGENTS),
                environment=partial(agent_environment, home=home),
                home_is_ours=lock.is_held,
                sweeper=DiskSweeper(home, git),
                containers=ContainerSweeper(home, engines),
                agent_containers=Enclosure(home, engines, runner),
                workspace_setup=CommandSetup(home, git, runner),
            ),
        )
        return await SweepService(context, CleanupService(context)).run_whole_sweep()
