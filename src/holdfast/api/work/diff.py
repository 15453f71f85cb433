"""The changes of a task: committed, uncommitted and new files. They are read from the current location of the work."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from holdfast.api.queries import Queries
from holdfast.api.work.checkpoints import find_checkpoint
from holdfast.api.work.git_runner import run_here
from holdfast.base import faults
from holdfast.base.errors import NotFound, Refused, WorkspaceProblem
from holdfast.base.files import NotRegularFile
from holdfast.workspaces import scratch
from holdfast.workspaces.git import git
from holdfast.workspaces.git.git_state import READ_ONLY_ENV
from holdfast.workspaces.git.index_entries import ENTER_FILES, LIST_NEW_FILES, empty_entries
from holdfast.workspaces.names import shadow_path
from holdfast.workspaces.removal import in_use
from holdfast.workspaces.snapshots.private_index import copy_plain

if TYPE_CHECKING:
    from holdfast.api.tasks.models import TaskDetails
    from holdfast.api.work.models import CheckpointRow, DiffGlance, SalvageRow

PATIENCE = 10.0


class DiffForm(NamedTuple):
    """Options of `git diff`."""

    options: tuple[str, ...]
    most: int | None = None  # bytes of output


def diff(queries: Queries, task_id: str, *, stat: bool, checkpoint: int | None = None) -> str:
    """Return a diff against the task's base. The diff is of a checkpoint, else of the workspace, else of the newest
    salvage, else of the branch."""
    return _diff_task(queries, task_id, DiffForm(("--stat",) if stat else ("--binary",)), checkpoint)


def diff_for_screen(queries: Queries, task_id: str, most: int, checkpoint: int | None = None) -> DiffGlance:
    """Return the diff for a screen, cut to about `most` bytes. `is_cut`: the diff is longer. Binary files are only
    named."""
    form = DiffForm(("--stat=200", "--stat-count=200", "--patch"), most)
    told = _diff_task(queries, task_id, form, checkpoint)
    summary, _, text = told.partition("\n\n")
    return {"summary": summary, "text": text, "is_cut": len(told.encode(errors="surrogateescape")) >= most}


def _diff_task(queries: Queries, task_id: str, form: DiffForm, checkpoint: int | None) -> str:
    if checkpoint is not None:
        row = find_checkpoint(queries, task_id, checkpoint)
        since = _since(queries.home, row, queries.task(task_id)["base_commit"])
        return _diff(shadow_path(queries.home, row["repo_id"]), form, [since, row["commit"]])
    deadline = time.monotonic() + PATIENCE
    while True:
        task = queries.task(task_id)
        workspace, path = task["workspace"], task["workspace"]["path"]
        if workspace["state"] not in ("ready", "preserved") or path is None or not os.path.isdir(path):
            return _diff_saved(queries.home, task, form)
        # so that the workspace is not removed while we read it
        held = in_use.lock_shared(queries.home, workspace["id"])
        if held is not None:
            try:
                if queries.task(task_id)["workspace"] == workspace:
                    return _in_workspace(queries.home, task, path, form)
            finally:
                os.close(held)
        elif time.monotonic() > deadline:
            raise Refused(f"{path} is still being removed; its work is saved. Try again in a moment.")
        time.sleep(0.05)  # the workspace is being removed at this moment


def _in_workspace(home: str, task: TaskDetails, path: str, form: DiffForm) -> str:
    base = task["base_commit"]
    if base is not None and os.path.lexists(os.path.join(path, ".git")):
        with _scratch(home) as folder:
            return _diff_worktree(folder, path, base, form)
    if task["workspace"]["strategy"] == "directory":
        with _scratch(home) as folder:
            return _diff_directory(folder, path, form)
    return _diff_saved(home, task, form)


def _diff_saved(home: str, task: TaskDetails, form: DiffForm) -> str:
    base, saved = task["base_commit"], _saved(task)
    if saved is not None:
        return _diff(shadow_path(home, saved["repo_id"]), form, [_since(home, saved, base), saved["commit"]])
    if base and task["branch"] and _exists(task["repo"], f"refs/heads/{task['branch']}"):
        return _diff(task["repo"], form, [f"{base}..refs/heads/{task['branch']}"])
    if task["state"] == "completed" and base:
        return ""  # the task changed nothing: its branch had no commit and was removed
    raise NotFound(
        f"Task {task['id']} has no workspace, branch or saved work to compare; see `holdfast why {task['id']}`."
    )


def _diff_worktree(folder: str, path: str, base: str, form: DiffForm) -> str:
    """Return the diff of a workspace with git, new files included. New files are entered by name only, into a copy of
    the index. Nothing is written to the repository."""
    index = os.path.join(folder, "index")
    # By the name of its directory: as a path, git would name what a link in its place leads to.
    theirs = os.path.join(_answer(path, "rev-parse", "--absolute-git-dir"), "index")
    objects = _answer(path, "rev-parse", "--path-format=absolute", "--git-path", "objects")
    faults.effect("diff.index")
    os.mkdir(os.path.join(folder, "objects"))
    try:
        copy_plain(theirs, index)
    except FileNotFoundError:
        pass
    except (NotRegularFile, WorkspaceProblem) as error:
        raise Refused(f"{theirs} is not a plain index of git, so nothing was compared: {error}") from error
    env = {
        **asyncio.run(git.Git(run_here).disable_filters(path, all_of_them=True)),
        "GIT_INDEX_FILE": index,
        "GIT_OBJECT_DIRECTORY": os.path.join(folder, "objects"),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": objects,
        # A clone belongs to its agent. To fetch a missing object, git would run the commands that the clone's settings
        # name.
        **(READ_ONLY_ENV if os.path.isdir(os.path.join(path, ".git")) else {}),
    }
    _enter_new_files(path, env, len(base))
    return _diff(path, form, ["--ignore-submodules=dirty", base], env)


def _enter_new_files(path: str, env: dict[str, str], id_length: int) -> None:
    code, out, err = git.run_sync(*LIST_NEW_FILES, cwd=path, env=env)
    if code != 0:
        raise Refused(f"git could not compare: {err.strip()}")
    if new := empty_entries(out, id_length):
        git.run_sync(*ENTER_FILES, cwd=path, env=env, stdin=new)


def _diff_directory(folder: str, path: str, form: DiffForm) -> str:
    """Return the diff of a directory without git: every file in it is new."""
    bare = os.path.join(folder, "bare.git")
    git.run_sync("init", "--quiet", "--bare", bare, cwd="/")
    env = {"GIT_DIR": bare, "GIT_WORK_TREE": path, "GIT_INDEX_FILE": os.path.join(folder, "index")}
    _enter_new_files(path, env, 40)
    return _diff(path, form, ["--ignore-submodules=dirty", _answer("/", "hash-object", "-t", "tree", "/dev/null")], env)


def _saved(task: TaskDetails) -> SalvageRow | None:
    """Return the newest salvage if it is of the task's last workspace, or if the task has no branch left. The salvage
    includes the commits of the branch. Work that was set aside when a checkpoint was restored does not count."""
    salvages = [row for row in task["salvages"] if not row["details"].get("set_aside")]
    if not salvages:
        return None
    newest = salvages[-1]
    is_last = newest["ref"].rpartition("/")[2].startswith(str(task["workspace"].get("id")))
    has_branch = bool(task["branch"]) and _exists(task["repo"], f"refs/heads/{task['branch']}")
    return newest if is_last or not has_branch else None


def _since(home: str, saved: SalvageRow | CheckpointRow, base: str | None) -> str:
    """Return the task's base if the shadow repository has it, else the base of the salvage, else the empty tree."""
    shadow = shadow_path(home, saved["repo_id"])
    if base is not None and git.run_sync("cat-file", "-e", f"{base}^{{commit}}", cwd=shadow)[0] == 0:
        return base
    return str(saved["base"] or _answer("/", "hash-object", "-t", "tree", "/dev/null"))


@contextlib.contextmanager
def _scratch(home: str) -> Iterator[str]:
    folder = scratch.make_scratch(home, "diff")
    try:
        yield folder
    finally:
        scratch.drop_scratch(folder)


def _diff(directory: str, form: DiffForm, arguments: list[str], env: dict[str, str] | None = None) -> str:
    words = ("--no-ext-diff", "--no-textconv", "--color=never", *form.options, *arguments)
    code, out, err = git.run_sync("diff", *words, cwd=directory, env=env, most=form.most)
    if code != 0:
        raise Refused(f"git could not compare: {err.strip()}")
    return out


def _answer(directory: str, *arguments: str) -> str:
    code, out, err = git.run_sync(*arguments, cwd=directory)
    if code != 0:
        raise Refused(f"git could not compare: {err.strip()}")
    return out.removesuffix("\n")


def _exists(repo: str, ref: str) -> bool:
    return os.path.isdir(repo) and git.run_sync("show-ref", "--verify", "--quiet", ref, cwd=repo)[0] == 0
