"""Salvages as people handle them: list them, show their files, restore them, drop them."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast import config
from holdfast.api.commands import operator_name
from holdfast.api.queries import Queries
from holdfast.api.work.git_runner import run_here
from holdfast.base import clock, faults
from holdfast.base.errors import Conflict, HoldfastError, NotFound, Refused, UsageError
from holdfast.store.open import open_store
from holdfast.store.port.workspaces import DroppedSalvage
from holdfast.workspaces.git import git
from holdfast.workspaces.names import shadow_path
from holdfast.workspaces.removal.trash import delete_tree
from holdfast.workspaces.snapshots.reclaim import Reclaimer
from holdfast.workspaces.snapshots.shadow_repo import PRIVATE

if TYPE_CHECKING:
    from holdfast.api.work.models import ChangedFile, SalvageRow

_INDEX = "index of task "  # how a salvage names the commit of what was staged


def list_salvages(queries: Queries, task_id: str | None = None) -> list[SalvageRow]:
    """Return one row per salvage. `expires_at` is None if the salvage is kept for ever, `size` is None if it was not
    measured."""
    keep = float(config.load()["salvage.keep"])
    rows = queries.salvages(task_id)
    for row in rows:
        row["size"] = row["details"].get("size")
        row["expires_at"] = None if keep == math.inf else row["created_at"] + keep
    return rows


def find_salvage(queries: Queries, word: str) -> SalvageRow:
    """Return the salvage whose id begins with `word`, or the newest salvage of the task that `word` names."""
    rows = list_salvages(queries)
    found = [row for row in rows if word and row["id"].startswith(word)]
    if len(found) > 1:
        raise Conflict(f"'{word}' may be any of {', '.join(row['id'] for row in found)}: type more of the id.")
    if found:
        return found[0]
    try:
        task_id = queries.resolve(word)
    except NotFound as error:
        raise NotFound(
            f"Neither a salvage nor a task has the id '{word}'. `holdfast salvage list` shows all."
        ) from error
    of_task = [row for row in rows if row["task"] == task_id]
    if not of_task:
        raise NotFound(f"Nothing was salvaged for task {task_id}.")
    return of_task[-1]


def list_files(home: str, row: SalvageRow) -> list[ChangedFile]:
    """Return the files that differ from the commit that the agent began with. `status` is git's: A, M, D or T."""
    out = _shadow(home, row, "diff-tree", "-r", "--name-status", "--no-renames", "-z", _base(home, row), row["commit"])
    words = out.split("\0")
    return [{"status": status, "path": path} for status, path in zip(words[::2], words[1::2], strict=False) if status]


def render_patch(home: str, row: SalvageRow, *, staged: bool) -> str:
    """Return the changes of a salvage as a patch that `git apply` accepts."""
    options = ["--no-ext-diff", "--no-textconv", "--color=never", "--binary", "--no-renames"]
    return _shadow(home, row, "diff", *options, _base(home, row), _commit(home, row, staged=staged))


def _base(home: str, row: SalvageRow) -> str:
    return row["base"] or _shadow(home, row, "hash-object", "-t", "tree", "/dev/null").strip()


def _commit(home: str, row: SalvageRow, *, staged: bool) -> str:
    if not staged:
        return str(row["commit"])
    for line in _shadow(home, row, "show", "--no-patch", "--format=%H %s", f"{row['commit']}^@").splitlines():
        commit, _, subject = line.partition(" ")
        if subject.startswith(_INDEX):
            return commit
    raise NotFound(f"Salvage {row['id']} has no staged content of its own: what was staged is in its files.")


def _shadow(home: str, row: SalvageRow, *arguments: str) -> str:
    shadow = shadow_path(home, row["repo_id"])
    if not os.path.isdir(shadow):
        raise Refused(f"The saved work is not where it should be ({shadow}); `holdfast doctor --invariants` says more.")
    code, out, err = git.run_sync(*arguments, cwd=shadow, env=PRIVATE)
    if code != 0:
        raise Refused(f"git could not read the saved work: {err.strip()}")
    return out


# -- restore -----------------------------------------------------------------------------------------------------------


def restore_branch(home: str, row: SalvageRow, branch: str, *, staged: bool) -> None:
    """Restore a salvage as a new branch of the user's repository. Never touches an existing branch."""
    repo = row["repo"]
    if not os.path.isdir(repo):
        raise Refused(
            f"The repository {repo} is gone. Write the files out: `holdfast salvage restore {row['id']} --to DIR`."
        )
    if git.run_sync("check-ref-format", "--branch", branch, cwd="/")[0] != 0:
        raise Refused(f"'{branch}' is not a valid branch name.")
    if git.run_sync("show-ref", "--verify", "--quiet", f"refs/heads/{branch}", cwd=repo)[0] == 0:
        raise Conflict(f"The branch '{branch}' exists in {repo}; choose another name.")
    what = _commit(home, row, staged=staged)
    options = ["--quiet", "--no-tags", "--no-write-fetch-head"]
    source = shadow_path(home, row["repo_id"])
    by_id = ["-c", "protocol.version=2", "-c", "protocol.file.allow=always"]
    code, _out, err = git.run_sync(*by_id, "fetch", *options, source, f"{what}:refs/heads/{branch}", cwd=repo)
    if code != 0:
        raise Refused(f"git could not fetch the saved work: {err.strip()}")


def restore_to(home: str, row: SalvageRow, target: str, *, staged: bool) -> str:
    """Restore a salvage as plain files, byte for byte, in a new or empty directory, and return its path. The directory
    appears whole or not at all."""
    target = os.path.abspath(target)
    parent = os.path.dirname(target)
    if os.path.lexists(target) and (os.path.islink(target) or not os.path.isdir(target) or os.listdir(target)):
        raise Conflict(f"{target} exists and is not an empty directory. Nothing was written; choose another place.")
    if not os.path.isdir(parent):
        raise UsageError(f"The directory {parent} does not exist. Make it, or choose another place.")
    commit = _commit(home, row, staged=staged)
    try:
        faults.effect("salvage.write")
        aside = tempfile.mkdtemp(prefix=f".{os.path.basename(target)}.", suffix=".holdfast-restore", dir=parent)
    except OSError as error:
        raise Refused(f"Nothing can be written to {parent}: {error.strerror}.") from error
    try:
        tree = os.path.join(aside, "tree")
        os.mkdir(tree)
        env = {**PRIVATE, "GIT_DIR": shadow_path(home, row["repo_id"]), "GIT_WORK_TREE": tree}
        env["GIT_INDEX_FILE"] = os.path.join(aside, "index")
        for arguments in (["read-tree", commit], ["checkout-index", "--all", "--force"]):
            settings = ["-c", "core.protectNTFS=false", "-c", "core.protectHFS=false"]
            code, _out, err = git.run_sync(*settings, *arguments, cwd=tree, env=env, timeout=3600)
            if code != 0:
                raise Refused(f"The files could not be written: {err.strip()}")
        try:
            faults.effect("salvage.place")
            os.rename(tree, target)
        except OSError as error:
            raise Conflict(f"{target} could not be made: {error.strerror}. Nothing was overwritten.") from error
    finally:
        delete_tree(aside)
    return target


# -- drop --------------------------------------------------------------------------------------------------------------


def expired(queries: Queries) -> list[SalvageRow]:
    """Return salvages older than `salvage.keep`, except those that an unfinished task may need."""
    now = clock.now().wall
    ended = ("completed", "failed", "cancelled")
    return [
        row
        for row in list_salvages(queries)
        if row["expires_at"] is not None and row["expires_at"] < now and row["task_state"] in ended
    ]


def drop_salvages(home: str, rows: Sequence[SalvageRow]) -> bool:
    """Drop all the salvages, or none. True: their disk space is freed. False: a supervisor frees it later."""
    store = open_store(home, create=False)
    store.write(lambda tx: tx.salvages.drop([row["id"] for row in rows], operator_name(), clock.now()))
    gone: dict[str, list[DroppedSalvage]] = {}
    for one in store.write(lambda tx: tx.salvages.dropped()):
        gone.setdefault(one.repo_id, []).append(one)
    done = [_reclaim(home, store, repo_id, dropped) for repo_id, dropped in gone.items()]
    return all(done)


def _reclaim(home: str, store: Any, repo_id: str, dropped: list[DroppedSalvage]) -> bool:
    repo = store.write(lambda tx: tx.workspaces.repo(repo_id))
    reclaimer = Reclaimer(home, git.Git(run_here))
    # the salvages are dropped. The supervisor's next pass frees the disk space
    with contextlib.suppress(HoldfastError, OSError):
        if asyncio.run(reclaimer.reclaim(repo, {one.ref: one.commit for one in dropped})):
            store.write(lambda tx: tx.salvages.forget(dropped))
            return True
    return False
