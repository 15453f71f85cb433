"""The removal of everything that Holdfast made, or of everything about one repository. A purge that would lose work is
refused.

Order: the intent file, our entries in the repositories, workspaces, the rest of the home, the store, the intent file.
The store is removed after everything that it names. The same command finds and removes what a killed purge left.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

from holdfast.api.home.inventory import (
    HOME_NAMES,
    Inventory,
    RepoInventory,
    SavedWork,
    list_everything,
    list_foreign_names,
)
from holdfast.api.home.restore import refuse_running_agents
from holdfast.api.work.git_runner import run_here
from holdfast.base import clock, faults
from holdfast.base.dataclass import dataclass
from holdfast.base.errors import Conflict, NotFound, Refused, Unavailable, UsageError, WorkspaceProblem
from holdfast.base.files import listed, open_private
from holdfast.base.ids import new_id
from holdfast.core.model import Repo, Workspace
from holdfast.core.states import WorkspaceState
from holdfast.processes.cgroups import CgroupRecord
from holdfast.processes.children import Children
from holdfast.processes.helpers import HelperLock, HelperRunner
from holdfast.processes.open_files import is_git_lock_in_use, processes_with_open
from holdfast.store.open import open_store
from holdfast.store.port.transaction import Salvaged
from holdfast.store.sqlite.engine.copies import sync_file
from holdfast.store.sqlite.engine.reader import DATABASE
from holdfast.store.sqlite.engine.store import SqliteStore
from holdfast.supervisor.home_lock import NAME as SUPERVISOR_LOCK
from holdfast.supervisor.home_lock import HomeLock
from holdfast.workspaces.git import git
from holdfast.workspaces.git.branch_files import drop_deletion_locks
from holdfast.workspaces.git.git import Git
from holdfast.workspaces.git.repo_lock import hold_repo_lock
from holdfast.workspaces.git.worktree_entries import drop_entry
from holdfast.workspaces.names import OWNER_SUFFIX, REPO_LOCK, TRASH, setup_logs, shadow_path
from holdfast.workspaces.removal import owner_marker
from holdfast.workspaces.removal.in_use import WorkspaceUsers, lock_exclusive
from holdfast.workspaces.removal.trash import delete_tree
from holdfast.workspaces.snapshots import bundles
from holdfast.workspaces.snapshots.salvage import salvage_workspace

INTENT = "purge.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class PurgePlan:
    """A list of what a purge would remove. `store` is None if an earlier purge has removed the store."""

    home: str
    only: Repo | None  # None: the whole home
    store: SqliteStore | None
    found: Inventory
    strangers: tuple[str, ...]


@contextmanager
def open_plan(home: str, directory: str | None) -> Iterator[PurgePlan | None]:
    """Take the home lock and yield the plan. None: there is nothing to remove."""
    has_store = os.path.exists(os.path.join(home, DATABASE))
    if not has_store and not os.path.exists(os.path.join(home, INTENT)):
        yield None
        return
    lock = HomeLock(home)
    lock.take()
    try:
        refuse_running_agents(home)  # no agent may be at work in what will be removed
        store = open_store(home, create=False) if has_store else None
        only = _find_repo(store, directory) if directory is not None else None
        repos = [] if store is None else list(store.write(lambda tx: tx.workspaces.repos()))
        yield PurgePlan(
            home=home,
            only=only,
            store=store,
            found=_list_inventory(home, store, repos if only is None else [only], whole=only is None),
            strangers=tuple(list_foreign_names(home)),
        )
        # the purge of a whole home closed the store before it removed the file
        if store is not None and only is not None:
            store.close()
    except OSError as error:
        raise Unavailable(
            f"The purge stopped: {error.strerror or error} ({error.filename or home}). "
            "Fix that and give the command again: it finishes what is left."
        ) from error
    finally:
        lock.release()


def _list_inventory(home: str, store: SqliteStore | None, repos: list[Repo], *, whole: bool) -> Inventory:
    if store is None:
        return Inventory(repos=(), workspaces=(), unknown=(), foreign=(), saved=(), tasks={})
    return list_everything(home, store, repos, whole=whole)


def _find_repo(store: SqliteStore | None, directory: str) -> Repo:
    path = os.path.realpath(directory)
    for repo in store.write(lambda tx: tx.workspaces.repos()) if store is not None else ():
        if path == repo.path:
            return repo
    raise NotFound(f"No repository {path} is known. Give the top of its checkout, as `holdfast doctor` lists it.")


def refuse_unfinished(plan: PurgePlan) -> None:
    """Raise if a task still needs the repository of the plan. A purge of the whole home is not refused here."""
    only = plan.only
    if only is not None and plan.store is not None:
        plan.store.write(lambda tx: tx.history.refuse_unfinished(only))


@contextmanager
def lock_workspaces(plan: PurgePlan) -> Iterator[None]:
    """Refuse while a process uses a workspace that would be removed (R-CLEAN-08). Inside this context no `holdfast
    shell` can enter one."""
    users = WorkspaceUsers()
    with ExitStack() as held:
        for workspace in plan.found.workspaces:
            alone = held.enter_context(lock_exclusive(plan.home, workspace.id))
            found = ["a `holdfast shell`"] if not alone else users.of(workspace.path)
            if found:
                raise Conflict(
                    f"Nothing was removed: {workspace.path} is in use by {', '.join(found)}. Stop that, then try again."
                )
        yield


# -- work that would be lost -------------------------------------------------------------------------------------------


def save_workspaces(plan: PurgePlan) -> tuple[PurgePlan, list[str]]:
    """Salvage the content of the workspaces. Return the new plan, and why some work could not be saved."""
    if plan.store is None:
        return plan, []
    problems = [f"{path} has our marker, but the store does not know it" for path in plan.found.unknown]
    problems += asyncio.run(_salvage_all(plan))
    repos = [things.repo for things in plan.found.repos]
    found = _list_inventory(plan.home, plan.store, repos, whole=plan.only is None)
    return PurgePlan(home=plan.home, only=plan.only, store=plan.store, found=found, strangers=plan.strangers), problems


async def _salvage_all(plan: PurgePlan) -> list[str]:
    problems = []
    repos = {things.repo.id: things.repo for things in plan.found.repos}
    with closing(HelperLock(plan.home)) as helpers:
        helpers.take()
        tool = Git(HelperRunner(Children(), helpers))
        for workspace in plan.found.workspaces:
            if workspace.state is WorkspaceState.INTENDED:
                continue  # the workspace was never finished, so no agent has worked in it
            try:
                await _salvage_one(plan, tool, repos[workspace.repo_id], workspace)
            except (WorkspaceProblem, Unavailable, OSError) as error:
                problems.append(f"the work in {workspace.path} could not be saved: {error}")
    return problems


async def _salvage_one(plan: PurgePlan, tool: Git, repo: Repo, workspace: Workspace) -> None:
    saved = await salvage_workspace(tool, plan.home, repo, workspace, "purge")
    if saved is None or plan.store is None:
        return
    record = Salvaged(
        id=new_id(),
        ref=saved.ref,
        commit=saved.commit,
        base=saved.base,
        files=saved.files,
        reason="purge",
        partial=saved.partial,
        details=saved.details,
    )
    plan.store.write(lambda tx: tx.workspaces.record_salvage(workspace, record, clock.now()))
    if saved.partial:
        raise WorkspaceProblem(saved.describe_missing)


def refuse_loss(saved: tuple[SavedWork, ...], problems: list[str]) -> None:
    if problems:
        raise Refused(
            f"Nothing was removed: {problems[0]} ({len(problems)} in all). Copy what you need, then give "
            f"--discard-work."
        )
    if saved:
        tasks = ", ".join(sorted({work.task_id for work in saved})[:5])
        raise Refused(
            f"Nothing was removed: the work of {len(saved)} salvage(s) exists only here (tasks {tasks}). "
            "Write it to files with --export DIR, restore it with `holdfast salvage restore`, or give --discard-work."
        )


def export_saved_work(plan: PurgePlan, folder: str) -> list[str]:
    """Write bundles of all saved work, one per repository, and a list of what is in them. Never overwrites a file."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    written = []
    for things in plan.found.repos:
        works = [work for work in plan.found.saved if work.repo_id == things.repo.id]
        if not works:
            continue
        name = f"{os.path.basename(things.repo.path)}-{things.repo.id}"
        target = os.path.join(folder, f"{name}.bundle")
        if os.path.lexists(target):
            raise Conflict(f"{target} exists already: choose another directory.")
        faults.effect("purge.export")
        bundles.write_bundle(shadow_path(plan.home, things.repo.id), f"{target}.part")
        sync_file(f"{target}.part")
        os.rename(f"{target}.part", target)
        listed = [{"task": work.task_id, "commit": work.commit, "files": work.files} for work in works]
        with open(os.path.join(folder, f"{name}.json"), "w", encoding="utf-8") as file:
            json.dump({"repository": things.repo.path, "bundle": target, "work": listed}, file, indent=1)
        written.append(target)
    sync_file(folder)
    return written


# -- removal -----------------------------------------------------------------------------------------------------------


def purge(plan: PurgePlan, *, branches: bool) -> list[str]:
    """Remove everything in the plan. Return what was not removed, and why."""
    if plan.only is None:
        _write_intent(plan.home)
    elif plan.store is not None:  # again: a task may have been added or retried while we waited for the user's answer
        only = plan.only
        plan.store.write(lambda tx: tx.history.refuse_unfinished(only))
    faults.effect("purge.begin")
    kept: list[str] = []
    for things in plan.found.repos:
        asyncio.run(_clean_repository(things, branches=branches, kept=kept))
        faults.effect("purge.repository")
    kept += [f"{path} has no marker of ours" for path in plan.found.foreign]
    _remove_containers(plan, kept)
    _delete_workspaces(plan)
    faults.effect("purge.workspaces")
    if plan.only is not None:
        _forget_repository(plan, plan.only)
    else:
        _delete_home(plan, kept)
    return kept


async def _clean_repository(things: RepoInventory, *, branches: bool, kept: list[str]) -> None:
    common = things.repo.common_dir
    if not os.path.isdir(common):
        return
    async with hold_repo_lock(common):
        for path in things.entries:
            drop_entry(common, path)
        for branch in things.branches if branches else ():
            faults.effect("purge.branch")
            code, _out, err = git.run_sync("branch", "--quiet", "-D", "--", branch, cwd=common)
            if code != 0:
                kept.append(f"branch {branch} of {things.repo.path}: {err.strip()}")
        await drop_deletion_locks(Git(run_here, is_git_lock_in_use), common)
        lock = os.path.join(common, REPO_LOCK)
        if not processes_with_open(os.stat(lock)):  # another home may be waiting for the lock
            os.unlink(lock)


def _remove_containers(plan: PurgePlan, kept: list[str]) -> None:
    """Remove the containers of the whole home, or of the workspaces that are removed."""
    if not os.path.exists(os.path.join(plan.home, "engines")):
        return  # this home never had a container
    from holdfast.containers.workspaces import remove_containers

    ids = None if plan.only is None else [workspace.id for workspace in plan.found.workspaces]
    faults.effect("purge.containers")
    kept += remove_containers(plan.home, ids)


def _delete_workspaces(plan: PurgePlan) -> None:
    for path in [*(workspace.path for workspace in plan.found.workspaces), *plan.found.unknown]:
        if owner_marker.read_owner(path) is not None:  # checked again: the proof comes right before the removal
            delete_tree(path)
            faults.effect("purge.workspace")
            delete_tree(path + OWNER_SUFFIX)
    for repo in (things.repo for things in plan.found.repos):
        folder = os.path.join(plan.home, "workspaces", repo.id)
        for name in listed(folder):  # left by a purge that was killed between a workspace and its marker
            if name.endswith(OWNER_SUFFIX) and name.removesuffix(OWNER_SUFFIX) not in listed(folder):
                delete_tree(os.path.join(folder, name))
        _remove_if_empty(folder)


def _forget_repository(plan: PurgePlan, repo: Repo) -> None:
    assert plan.store is not None  # the repository was found in the store
    ids = plan.store.write(lambda tx: tx.history.records_of_repo(repo.id))
    for workspace_id in ids.workspaces:
        for name in listed(trash := os.path.join(plan.home, "workspaces", TRASH)):
            if name == workspace_id or name.startswith((f"{workspace_id}-", f"{workspace_id}.")):
                delete_tree(os.path.join(trash, name))
        for name in listed(logs := setup_logs(plan.home)):
            if workspace_id in name.split("."):
                delete_tree(os.path.join(logs, name))
    for run_id in ids.runs:
        delete_tree(os.path.join(plan.home, "runs", run_id))
    for suffix in ("", ".new", ".lock"):
        delete_tree(shadow_path(plan.home, repo.id) + suffix)
    faults.effect("purge.deleted")
    plan.store.write(lambda tx: tx.history.forget_repo(repo, clock.now()))


def _delete_home(plan: PurgePlan, kept: list[str]) -> None:
    """Remove the files of the home with known names. The store is removed after everything that it names, then the
    intent file, then the home itself."""
    root = os.path.join(plan.home, "workspaces")
    if plan.found.foreign:
        delete_tree(os.path.join(root, TRASH))
    else:
        delete_tree(root)
    if plan.store is not None:
        plan.store.close()  # closing the last connection moves the -wal into the file
    CgroupRecord(plan.home).abandon()
    names = [name for name in listed(plan.home) if HOME_NAMES.fullmatch(name) and name != "workspaces"]
    for name in sorted(names, key=lambda name: (name == SUPERVISOR_LOCK, name.startswith(DATABASE), name)):
        delete_tree(os.path.join(plan.home, name))
        faults.effect("purge.name")
    os.unlink(os.path.join(plan.home, INTENT))
    faults.effect("purge.intent")
    kept += [f"{os.path.join(plan.home, name)} is not ours" for name in plan.strangers]
    _remove_if_empty(plan.home)


def _write_intent(home: str) -> None:
    path = os.path.join(home, INTENT)
    faults.effect("purge.intend")
    with open(f"{path}.new", "w", encoding="utf-8", opener=open_private) as file:
        json.dump({"purge": "began", "at": clock.now().wall}, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(f"{path}.new", path)
    sync_file(home)


def _remove_if_empty(folder: str) -> None:
    try:
        faults.effect("purge.home")
        os.rmdir(folder)
    except OSError:
        return  # something that is not ours is in the directory


def refuse_both(discard: bool, folder: str | None) -> None:
    if discard and folder is not None:
        raise UsageError("Choose one: --export DIR keeps the saved work, --discard-work does not.")
