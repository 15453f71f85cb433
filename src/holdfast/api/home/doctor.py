"""The doctor: checks of the machine and of the home, for `doctor`.

The home is compared with the disk, git and /proc. The doctor reads directories, admin entries, branches and
processes itself, and compares them with the store in both directions.

Alerts: the doctor lists open alerts, checks that alerts can be sent, and lists deliveries that failed. Schedules: it
lists files that are not accepted, refused fires, and schedules without a supervisor to fire them. `check_promises`
runs the independent checker with the limits of the settings. It turns the checker's errors into one clear line.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator

import apsw

from holdfast import config
from holdfast.alerts.messenger import INSTALL, find_mistakes, is_installed
from holdfast.api.fleet.alerts import list_undelivered
from holdfast.api.fleet.dispatch import describe_hold_row, list_holds
from holdfast.api.fleet.schedules import describe_no_supervisor, has_supervisor, list_schedules
from holdfast.api.home.doctor_agents import DoctorFinding, agent_findings
from holdfast.api.home.sweep import find_leftovers
from holdfast.api.queries import Queries
from holdfast.base.errors import HoldfastError, Unavailable, UsageError
from holdfast.base.files import listed
from holdfast.base.platform import LINUX_ONLY, missing, refuse_unsupported
from holdfast.checker import Violation, violations
from holdfast.checker.rules import CheckedLimits
from holdfast.checker.witness import read_witness
from holdfast.core.cleanup.compare import PASSIVE_ACTIONS, SweepAction
from holdfast.processes.strays import marked_processes
from holdfast.secrets.references import SecretMissing, look_up_secret
from holdfast.store.open import open_store
from holdfast.workspaces.git import git, git_versions
from holdfast.workspaces.names import OUR_EMAIL, OUR_NAME

SHOWN = 5
PROVEN_PYTHONS = ((3, 11), (3, 12), (3, 13))  # `make test-pythons` runs all of the tests with each of them


def alert_findings(queries: Queries) -> Iterator[DoctorFinding]:
    for alert in queries.alerts():
        yield DoctorFinding("note", "alert", f"{alert['level']}: {alert['message']}")
    yield from _targets()
    lost = list_undelivered(queries)
    for row in lost[-SHOWN:]:
        how = "was given up" if row["state"] == "given_up" else "waits"
        said = f": {row['told']}" if row["told"] else ""
        tried = f"after {row['attempts']} attempt(s)" if row["attempts"] else "to be sent"
        what = f"alert {row['alert']} ({row['transition']}) to the {row['target']}"
        yield DoctorFinding("note", "notices", f"{what} {how} {tried}{said}")
    if len(lost) > SHOWN:
        yield DoctorFinding("note", "notices", f"and {len(lost) - SHOWN} earlier one(s)")


def _program(name: str) -> Iterator[DoctorFinding]:
    if os.sep in name and not os.path.isabs(name):
        yield DoctorFinding("problem", "notices", f"notify.command: {name} is searched for in /; write its full path")
    elif shutil.which(name) is None:
        yield DoctorFinding("problem", "notices", f"notify.command: there is no program {name}")


def _targets() -> Iterator[DoctorFinding]:
    settings = config.load_valid_values()
    command, webhook, urls = settings["notify.command"], settings["notify.webhook"], settings["notify.urls"]
    if not command and not webhook and not urls:
        yield DoctorFinding(
            "note",
            "notices",
            "alerts are shown by `ps` and `top` only; `holdfast help alerts` has ways to send them to you",
        )
        return
    if command:
        yield from _program(os.path.expanduser(command[0]))
    for key, place in (
        ("notify.webhook", webhook),
        ("notify.secret", settings["notify.secret"]),
        *(("notify.urls", place) for place in urls),
    ):
        try:
            look_up_secret(place)
        except SecretMissing as missing:
            yield DoctorFinding("problem", "notices", f"{key} {missing}")
    if webhook and not settings["notify.secret"]:
        yield DoctorFinding("note", "notices", "notices to notify.webhook are not signed: `notify.secret` is not set")
    if urls and not is_installed():
        yield DoctorFinding("problem", "notices", f"notify.urls needs the package apprise: `{INSTALL}`")
    for mistake in find_mistakes(urls):
        yield DoctorFinding("problem", "notices", f"notify.urls: {mistake}")
    messengers = f"{len(urls)} messenger(s)"
    targets = (("a command", command), ("an address", webhook), (messengers, urls))
    names = " and ".join(name for name, there in targets if there)
    level = settings["notify.level"]
    yield DoctorFinding("ok", "notices", f"alerts from {level} on go to {names}; try it: `holdfast alerts test`")


def schedule_findings(home: str) -> Iterator[DoctorFinding]:
    rows, problems = list_schedules(home)
    for problem in problems.values():
        level = "note" if "`holdfast trust " in problem else "problem"  # a decision that the user has not made yet
        yield DoctorFinding(level, "schedules", problem)
    for row in rows:
        if row["trouble"] is not None:
            yield DoctorFinding("problem", "schedules", f"{row['name']} of {row['repo']} cannot fire: {row['trouble']}")
    live = [row for row in rows if row["enabled"]]
    if live and not has_supervisor(home):
        names = ", ".join(row["name"] for row in live[:5]) + (", …" if len(live) > 5 else "")
        yield DoctorFinding("note", "schedules", f"{names}: {describe_no_supervisor()}")
    elif rows:
        yield DoctorFinding("ok", "schedules", f"{len(live)} of {len(rows)} enabled; `holdfast schedule list`")


_REMEDY = "; `holdfast sweep` (or the next `up`) corrects it"


def run_doctor_checks(home: str, *, with_agents: bool = True) -> list[DoctorFinding]:
    """Return the findings about the machine and the home. `with_agents`: also start the agent CLIs to ask for their
    versions, although some CLIs then leave files in the user's home."""
    findings = [*_machine(home), *_settings(home)]
    if not os.path.exists(os.path.join(home, "holdfast.db")):
        findings += agent_findings(home, {}) if with_agents else ()
        return [*findings, DoctorFinding("note", "store", f"no store in {home} yet; `holdfast init` makes one")]
    try:
        findings += _store(home)
        findings.append(_disk(home))
        queries = Queries(home)
        findings += _repository_settings(home, queries)
        findings += _supervisor(queries)
        findings += alert_findings(queries)
        findings += schedule_findings(home)
        findings += agent_findings(home, _unfinished(queries), _repositories(queries)) if with_agents else ()
        findings += _leftovers(queries)
        findings += _processes(queries)
        findings += _run_directories(queries)
        findings += _left_probes(home)
    except HoldfastError as error:
        findings.append(DoctorFinding("problem", "store", str(error)))
    return findings


def _machine(home: str) -> Iterator[DoctorFinding]:
    import apsw

    from holdfast.store.sqlite.engine.connection import SAFE_SQLITE

    version = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    shown = apsw.sqlite_lib_version()
    if version >= SAFE_SQLITE:
        yield DoctorFinding("ok", "sqlite", f"{shown}, free of the WAL-reset bug")
    else:
        yield DoctorFinding("problem", "sqlite", f"{shown} can corrupt the store; install a newer apsw")
    yield _python(sys.version_info[:2])
    try:
        found = git_versions.ask_version()
        git_versions.refuse_old_git(found)
        yield _check_git_version(found, _describe_identity(home))
    except HoldfastError as error:
        yield DoctorFinding("problem", "git", str(error))
    lack = missing()
    if lack is not None:
        yield DoctorFinding("problem", "system", f"agents cannot be supervised here: {lack}")
        commands = ", ".join(f"`{name}`" for name in LINUX_ONLY)
        yield DoctorFinding("note", "system", f"not supported here: {commands}; adding and listing tasks works")
    else:
        yield DoctorFinding("ok", "processes", "subreaper and pidfd: whole trees are ended with proof")
        yield _cgroup_tier(home)


def _check_git_version(found: tuple[int, ...], identity: str) -> DoctorFinding:
    shown = ".".join(str(part) for part in found)
    oldest, newest = (".".join(str(part) for part in version) for version in git_versions.PROVEN_GIT)
    if found[:2] <= git_versions.PROVEN_GIT[1]:  # older ones are refused
        return DoctorFinding("ok", "git", f"{shown}; proven with {oldest} to {newest}{identity}")
    words = f"{shown} is newer than any version that Holdfast was tested with ({oldest} to {newest}){identity}"
    return DoctorFinding("note", "git", words)


def _python(version: tuple[int, int]) -> DoctorFinding:
    proven = ", ".join(f"{major}.{minor}" for major, minor in PROVEN_PYTHONS)
    if version in PROVEN_PYTHONS:
        return DoctorFinding("ok", "python", f"{platform.python_version()}; proven with {proven}")
    return DoctorFinding("note", "python", f"{platform.python_version()} is not one of the tested versions: {proven}")


def _describe_identity(home: str) -> str:
    """Return a note on commits if the user has no git identity, else nothing."""
    if not os.path.isdir(home) or git.view_of_sync("/").value("user.email"):
        return ""
    return f"; git has no identity configured, so commits are made as {OUR_NAME} <{OUR_EMAIL}>"


def _cgroup_tier(home: str) -> DoctorFinding:
    """Test cgroups by making one, as the supervisor does."""
    from holdfast.processes.cgroups import CgroupRecord, probe_cgroups

    trial = CgroupRecord(home, is_trial=True) if os.path.isdir(home) else None
    found = probe_cgroups(home, trial)
    if trial is not None:
        trial.leave()
    if isinstance(found, str):
        return DoctorFinding(
            "note",
            "cgroups",
            f"none for agents: {found}. Process trees are still ended with proof. If a keeper and its supervisor are "
            "both killed, the task is frozen. rlimits and the keeper's own checks enforce limits",
        )
    found.leave()
    held = ", ".join(sorted(found.controllers)) or "none; rlimits and the keeper's own checks enforce them"
    return DoctorFinding(
        "ok", "cgroups", f"one per agent, in {os.path.dirname(found.base)}; limits by controller: {held}"
    )


def _settings(home: str) -> Iterator[DoctorFinding]:
    from holdfast.config.report import report_settings

    seen = report_settings(None, home)
    for problem in seen.problems:
        yield DoctorFinding("problem", "settings", str(problem))
    for warning in seen.warnings:
        yield DoctorFinding("note", "settings", warning)
    if not seen.problems:
        yield DoctorFinding("ok", "settings", seen.files[0].place if seen.files[0].exists else "built-in defaults")


def _repository_settings(home: str, queries: Queries) -> Iterator[DoctorFinding]:
    """Yield findings about values in the files of known repositories that are not applied, because the files are not
    trusted."""
    from holdfast.config.report import report_settings

    for repo in queries.repos():
        if os.path.exists(config.repo_file_path(repo["path"])):
            for each in report_settings(repo["path"], home).config.not_applied:
                yield DoctorFinding("note", "settings", str(each))


def _store(home: str) -> Iterator[DoctorFinding]:
    mode = os.stat(home).st_mode & 0o777
    if mode & 0o077:
        yield DoctorFinding("problem", "home", f"{home} is open to others (mode {mode:o}); chmod 700 it")
    problems = open_store(home, create=False, for_reading=True).integrity_problems()
    if problems:
        yield DoctorFinding("problem", "store", f"integrity check: {problems[0]}")
    else:
        yield DoctorFinding("ok", "store", f"{home}, integrity check passed")


def _disk(home: str) -> DoctorFinding:
    from holdfast.api.work.workspaces import read_disk

    disk = read_disk(home)
    return DoctorFinding("problem" if disk.is_low else "ok", "disk", str(disk))


def _supervisor(queries: Queries) -> Iterator[DoctorFinding]:
    running = queries.supervisor()
    counts = queries.counts()
    if running is not None:
        yield DoctorFinding("ok", "supervisor", f"pid {running['pid']}, version {running['version']}")
    elif counts.get("running"):
        yield DoctorFinding(
            "problem",
            "supervisor",
            f"none is running, but {counts['running']} task(s) are marked running; `holdfast up` takes them over",
        )
    else:
        yield DoctorFinding("note", "supervisor", "none is running")
    for hold in list_holds(queries):
        yield DoctorFinding(
            "note", "dispatch", f"{describe_hold_row(hold)}; `holdfast dispatch release {hold['hold']}` lets it start"
        )


def _unfinished(queries: Queries) -> dict[str, int]:
    """Count, for each agent, the unfinished tasks that need it."""
    return {str(row["agent"]): int(row["n"]) for row in queries.view("unfinished_agents")}


def _repositories(queries: Queries) -> list[str]:
    return [row["path"] for row in queries.repos()]


def _leftovers(queries: Queries) -> Iterator[DoctorFinding]:
    """Compare directories, markers, trash, git entries, branches and processes with the ledger, both ways, as the sweep
    does."""
    scene, found = find_leftovers(queries)
    waiting = [finding for finding in found if finding.in_backlog]
    wrong = [finding for finding in found if finding not in waiting and finding.action is not SweepAction.KEEP]
    if wrong and queries.supervisor() is not None:
        # A step of the supervisor between our look at the disk and at the ledger is no leftover: it is not seen twice.
        again = {(finding.what, finding.where) for finding in find_leftovers(queries)[1]}
        wrong = [finding for finding in wrong if (finding.what, finding.where) in again]
    for finding in wrong:
        level = "note" if finding.foreign else "problem"
        yield DoctorFinding(level, finding.what, str(finding) + ("" if finding.action in PASSIVE_ACTIONS else _REMEDY))
    for path in scene.odd:
        yield DoctorFinding("note", "workspaces", f"{path} is not a name that Holdfast uses; it is left alone")
    for where, why in scene.unseen:
        yield DoctorFinding("problem", "workspaces", f"{where} cannot be looked at: {why}")
    if waiting and queries.supervisor() is None:
        yield DoctorFinding("note", "workspaces", f"{len(waiting)} will be removed by the next `holdfast up`")
    if not any(finding.what in ("workspace", "marker", "trash") for finding in wrong):
        yield DoctorFinding("ok", "workspaces", f"{len(queries.workspaces())} in the ledger, all as recorded")
    for repo in queries.repos():
        if not os.path.isdir(repo["common_dir"]):
            yield DoctorFinding("note", "repo", f"{repo['path']} is gone")
        elif not any(finding.repo == repo["id"] and finding.what in ("entry", "branch") for finding in wrong):
            yield DoctorFinding("ok", "repo", f"{repo['path']}: no stray worktree entry or branch")
    if missing() is None and not any(finding.what == "process" for finding in wrong):
        yield DoctorFinding("ok", "processes", "none left over")


def _processes(queries: Queries) -> Iterator[DoctorFinding]:
    """Report open runs that have no process."""
    if missing() is not None:
        yield DoctorFinding("note", "processes", "leftover processes cannot be detected on this system")
        return
    open_runs = {row["id"]: row["state"] for row in queries.view("sweep_runs")}
    alive = {run for _pid, run in marked_processes(queries.home)}
    for run, state in open_runs.items():
        if state in ("started", "stopping") and run not in alive and queries.supervisor() is not None:
            over = os.path.exists(os.path.join(queries.run_directory(run), "empty.json"))
            if not over:
                yield DoctorFinding("problem", "processes", f"run {run} has lost its keeper; see `holdfast alerts`")


def _run_directories(queries: Queries) -> Iterator[DoctorFinding]:
    # read before the store: a run is recorded before its directory is made
    names = listed(os.path.join(queries.home, "runs"))
    known = {row["id"] for row in queries.view("recorded_runs")}
    strays = [name for name in names if name not in known]
    for name in strays:
        yield DoctorFinding("problem", "runs", f"run directory {name} has no record")
    if not strays:
        yield DoctorFinding("ok", "runs", f"{len(known)} run(s) recorded, no stray directory")


def _left_probes(home: str) -> Iterator[DoctorFinding]:
    from holdfast.processes.cgroups import CgroupRecord

    for group in CgroupRecord(home).leftover_probes():
        left = f"{group} is left over from a test of cgroups that was killed{_REMEDY}"
        yield DoctorFinding("problem", "cgroups", left)


def check_promises(home: str, *, at_rest: bool, witness: str | None) -> list[Violation]:
    if not os.path.exists(os.path.join(home, "holdfast.db")):
        raise Unavailable(f"There is no Holdfast store in {home} yet, so there is nothing to check.")
    refuse_unsupported("The checker of the promises")
    settings = config.load()
    limits = CheckedLimits(
        runs=settings["runs.max"],
        crash=settings["crash.max_in_window"],
        retry=settings["retry.max"],
        lost=settings["lost.max"],
    )
    if witness is not None:
        _refuse_unreadable(witness)
    try:
        return violations(home, at_rest=at_rest, witness=witness, limits=limits)
    except apsw.Error as error:
        raise Unavailable(f"The store in {home} cannot be read: {error}. Nothing was changed.") from error
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"git could not be run ({error}), so the promises cannot be checked.") from error


def _refuse_unreadable(witness: str) -> None:
    try:
        read_witness(witness)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UsageError(f"The witness {witness} cannot be read: {error}") from error
