"""The doctor: is this machine fit, and does the home agree with the disk, with git and with /proc?

It looks for itself (directories, admin entries, branches, processes) and compares with the store, in both directions.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from holdfast.api.queries import Queries
from holdfast.errors import HoldfastError
from holdfast.folders import listed
from holdfast.storage import open_store
from holdfast.system import LINUX_ONLY, missing
from holdfast.workspaces import admin, git
from holdfast.workspaces.names import BRANCH_PREFIX, OWNER_SUFFIX, TRASH

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. `level` is ok, note (worth knowing) or problem."""

    level: str
    what: str
    text: str


def examine(home: str) -> list[Finding]:
    findings = [*_machine(home), *_settings(home)]
    if not os.path.exists(os.path.join(home, "holdfast.db")):
        return [*findings, Finding("note", "store", f"no store in {home} yet; `holdfast init` makes one")]
    try:
        findings += _store(home)
        findings.append(_disk(home))
        queries = Queries(home)
        findings += _supervisor(queries)
        findings += _directories(queries)
        findings += _repositories(queries)
        findings += _processes(queries)
        findings += _run_directories(queries)
    except HoldfastError as error:
        findings.append(Finding("problem", "store", str(error)))
    return findings


def _machine(home: str) -> Iterator[Finding]:
    import apsw

    from holdfast.store.sqlite.connection import SAFE_SQLITE

    version = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    shown = apsw.sqlite_lib_version()
    if version >= SAFE_SQLITE:
        yield Finding("ok", "sqlite", f"{shown}, free of the WAL-reset bug")
    else:
        yield Finding("problem", "sqlite", f"{shown} can corrupt the store; install a newer apsw")
    try:
        git.refuse_unusable()
        yield Finding("ok", "git", ".".join(str(part) for part in git.version()))
    except HoldfastError as error:
        yield Finding("problem", "git", str(error))
    lack = missing()
    if lack is not None:
        yield Finding("problem", "system", f"agents cannot be supervised here: {lack}")
        commands = ", ".join(f"`{name}`" for name in LINUX_ONLY)
        yield Finding("note", "system", f"not supported here: {commands}; adding and looking work")
    else:
        yield Finding("ok", "processes", "subreaper and pidfd: whole trees are ended with proof")
        yield _cgroup_tier(home)


def _cgroup_tier(home: str) -> Finding:
    """Probed by doing, as the supervisor does."""
    from holdfast.processes.cgroups import probe

    found = probe(home)
    if isinstance(found, str):
        return Finding(
            "note",
            "cgroups",
            f"none for agents: {found}. Trees are ended with proof all the same; if keeper and supervisor are both "
            "killed the task is frozen, and limits are held by rlimits and the keeper's own look",
        )
    found.leave()
    held = ", ".join(sorted(found.controllers)) or "none; rlimits and the keeper's own look hold them"
    return Finding("ok", "cgroups", f"one per agent, in {os.path.dirname(found.base)}; limits by controller: {held}")


def _settings(home: str) -> Iterator[Finding]:
    from holdfast.config.survey import survey

    seen = survey(None, home)
    for problem in seen.problems:
        yield Finding("problem", "settings", str(problem))
    for warning in seen.warnings:
        yield Finding("note", "settings", warning)
    if not seen.problems:
        yield Finding("ok", "settings", seen.files[0].place if seen.files[0].exists else "built-in defaults")


def _store(home: str) -> Iterator[Finding]:
    mode = os.stat(home).st_mode & 0o777
    if mode & 0o077:
        yield Finding("problem", "home", f"{home} is open to others (mode {mode:o}); chmod 700 it")
    problems = open_store(home, create=False).integrity_problems()
    if problems:
        yield Finding("problem", "store", f"integrity check: {problems[0]}")
    else:
        yield Finding("ok", "store", f"{home}, integrity check passed")


def _disk(home: str) -> Finding:
    from holdfast.api.disk import disk_of

    disk = disk_of(home)
    return Finding("problem" if disk.is_low else "ok", "disk", str(disk))


def _supervisor(queries: Queries) -> Iterator[Finding]:
    running = queries.supervisor()
    counts = queries.counts()
    if running is not None:
        yield Finding("ok", "supervisor", f"pid {running['pid']}, version {running['version']}")
    elif counts.get("running"):
        yield Finding(
            "problem",
            "supervisor",
            f"none is running, but {counts['running']} task(s) are marked running; `holdfast up` takes them over",
        )
    else:
        yield Finding("note", "supervisor", "none is running")
    for alert in queries.alerts():
        yield Finding("note", "alert", alert["message"])


def _directories(queries: Queries) -> Iterator[Finding]:
    """Workspaces on disk against the ledger."""
    rows = {row["path"]: row for row in queries.workspaces() if row["strategy"] != "none"}
    root = os.path.join(queries.home, "workspaces")
    clean = True
    for path in sorted(_workspace_directories(root)):
        if path not in rows or rows[path]["state"] not in ("intended", "ready", "preserved"):
            clean = False
            yield Finding("problem", "workspaces", f"{path} is on disk, but no live record knows it")
    for path, row in rows.items():
        if row["state"] in ("ready", "preserved") and not os.path.isdir(path):
            clean = False
            yield Finding("problem", "workspaces", f"{path} is {row['state']} in the ledger, but not on disk")
    known = tuple(str(row["id"]) for row in queries.workspaces())
    for name in listed(os.path.join(root, TRASH)):
        if not name.startswith(known):
            clean = False
            yield Finding("problem", "trash", f"{os.path.join(root, TRASH, name)} is left over")
    unfinished = [
        row for row in rows.values() if row["state"] == "trashed" or row["disposition"] in ("clean", "salvage")
    ]
    if unfinished and queries.supervisor() is None:
        yield Finding("note", "workspaces", f"{len(unfinished)} wait to be put away by the next `holdfast up`")
    if clean:
        yield Finding("ok", "workspaces", f"{len(rows)} in the ledger, all as recorded")


def _workspace_directories(root: str) -> Iterator[str]:
    for repo in listed(root):
        if repo == TRASH:
            continue
        for name in listed(os.path.join(root, repo)):
            path = os.path.join(root, repo, name)
            if os.path.isdir(path):
                yield path
            elif name.endswith(OWNER_SUFFIX) and not os.path.lexists(path.removesuffix(OWNER_SUFFIX)):
                yield path.removesuffix(OWNER_SUFFIX)


def _repositories(queries: Queries) -> Iterator[Finding]:
    """Admin entries and branches of ours in every repository, against the ledger."""
    live = {os.path.realpath(row["path"]) for row in queries.workspaces() if row["state"] != "trashed"}
    in_use = {row["branch"] for row in queries.workspaces() if row["state"] != "trashed"}
    tasks = {row["branch"]: row for row in queries.tasks(everything=True) if row["branch"]}
    root = os.path.realpath(os.path.join(queries.home, "workspaces"))
    for repo in queries.repos():
        if not os.path.isdir(repo["common_dir"]):
            yield Finding("note", "repo", f"{repo['path']} is gone")
            continue
        problems = [*_stray_entries(repo["common_dir"], root, live), *_stray_branches(repo, tasks, in_use)]
        yield from problems
        if not problems:
            yield Finding("ok", "repo", f"{repo['path']}: no stray worktree entry or branch")


def _stray_entries(common_dir: str, root: str, live: set[str]) -> Iterator[Finding]:
    folder = os.path.join(common_dir, "worktrees")
    for name in listed(folder):
        path = admin.worktree_of(os.path.join(folder, name))
        if path is not None and path.startswith(root + "/") and path not in live:
            yield Finding("problem", "repo", f"worktree entry {name} in {common_dir} stands for nothing ({path})")


def _stray_branches(repo: Row, tasks: dict[str, Row], in_use: set[str]) -> Iterator[Finding]:
    """Ours and empty, though its task has ended: it should have been deleted. Unknown ones may be another home's."""
    _code, out, _err = git.call(
        "for-each-ref", "--format=%(refname:short) %(objectname)", f"refs/heads/{BRANCH_PREFIX}", cwd=repo["common_dir"]
    )
    for line in out.splitlines():
        branch, _, tip = line.rpartition(" ")
        task = tasks.get(branch)
        if (
            branch not in in_use
            and task is not None
            and task["state"] in ("completed", "failed", "cancelled")
            and tip == task["base_commit"]
        ):
            yield Finding("problem", "repo", f"branch {branch} of the {task['state']} task {task['id']} is empty")


def _processes(queries: Queries) -> Iterator[Finding]:
    """Every process that carries the marker of a run of this home."""
    if missing() is not None:
        yield Finding("note", "processes", "whether one is left over cannot be seen on this system")
        return
    open_runs = {
        run["id"]: run["state"]
        for task in queries.tasks(everything=True)
        if task["state"] == "running"
        for run in queries.task(task["id"])["runs"]
        if run["state"] != "settled"
    }
    marked = list(marked_processes(queries.home))
    strays = [(pid, run) for pid, run in marked if run not in open_runs]
    alive = {run for _pid, run in marked}
    for run, state in open_runs.items():
        if state in ("started", "stopping") and run not in alive and queries.supervisor() is not None:
            over = os.path.exists(os.path.join(queries.run_directory(run), "empty.json"))
            if not over:
                yield Finding("problem", "processes", f"run {run} has lost its keeper; see `holdfast alerts`")
    for pid, run in strays:
        yield Finding("problem", "processes", f"pid {pid} belongs to run {run}, which is over")
    if not strays:
        yield Finding("ok", "processes", f"none left over ({len(open_runs)} run(s) open)")


def marked_processes(home: str) -> Iterator[tuple[int, str]]:
    """(pid, run id) of every process of a run of `home`: agents by their environment, keepers by where they work."""
    runs = os.path.join(home, "runs") + "/"
    prefix = b"HOLDFAST_RUN_DIR=" + os.fsencode(runs)
    inside = os.path.realpath(runs) + "/"
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            folder = os.readlink(f"/proc/{name}/cwd")
            with open(f"/proc/{name}/environ", "rb") as file:
                variables = file.read().split(b"\0")
        except OSError:
            continue
        if folder.startswith(inside):
            yield int(name), folder.removeprefix(inside).split("/")[0]
        for variable in variables:
            if variable.startswith(prefix):
                yield int(name), variable[len(prefix) :].decode(errors="replace")


def _run_directories(queries: Queries) -> Iterator[Finding]:
    known = {run["id"] for task in queries.tasks(everything=True) for run in queries.task(task["id"])["runs"]}
    strays = [name for name in listed(os.path.join(queries.home, "runs")) if name not in known]
    for name in strays:
        yield Finding("problem", "runs", f"run directory {name} has no record")
    if not strays:
        yield Finding("ok", "runs", f"{len(known)} run(s) recorded, no stray directory")
