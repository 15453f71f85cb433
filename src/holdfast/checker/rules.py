"""The rules, one function each, grouped by promise. docs/faults.md lists them.

`at_rest` adds rules that hold when every task has ended and no supervisor runs. A `witness` file records what happened
outside: which tasks were acknowledged, and which bytes agents wrote.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from holdfast.checker.evidence import Evidence, Row, git, living, task_of
from holdfast.checker.violation import Violation
from holdfast.checker.witness import LIVE_WORKSPACES, Witness, check_witness, read_witness

TERMINAL = ("completed", "failed", "cancelled")
RECHECK_DELAY = 0.3
RESUME, LOST, RETRY, CRASH, RUNS = "resume", "lost", "retry", "crash", "runs"


@dataclass(frozen=True, slots=True)
class CheckedLimits:
    """The retry budgets as configured. Each budget may be reached, and none may be exceeded."""

    runs: int = 12
    crash: int = 3
    retry: int = 3
    lost: int = 5


def violations(
    home: str, *, at_rest: bool = False, witness: str | None = None, limits: CheckedLimits | None = None
) -> list[Violation]:
    """Return everything that breaks a promise, in the order of the promises.

    Rows, directories and processes cannot be read at the same instant. So the rules run a second time a moment later,
    and only violations that are found twice are returned. A task that is just starting may look like a leak, but only
    in one of the two.
    """
    first = _run_rules(home, at_rest, witness, limits)
    if not first:
        return []
    time.sleep(RECHECK_DELAY)
    second = set(_run_rules(home, at_rest, witness, limits))
    return [violation for violation in first if violation in second]


def _run_rules(home: str, at_rest: bool, witness: str | None, limits: CheckedLimits | None) -> list[Violation]:
    evidence = Evidence(home)
    found = [violation for rule in RULES for violation in _run_rule(rule, evidence)]
    found += _run_rule(lambda seen: _budgets_are_kept(seen, limits or CheckedLimits()), evidence)
    found += check_witness(evidence, read_witness(witness) if witness else Witness())
    if at_rest:
        found += _run_rule(_nothing_under_way, evidence)
    return found


def _run_rule(rule: Callable[[Evidence], Iterable[Violation]], evidence: Evidence) -> list[Violation]:
    """Run one rule. A record that cannot be read counts as lost: it is a violation, but the other rules still run."""
    try:
        return list(rule(evidence))
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        return [Violation("lost", "record", f"a record cannot be read ({type(error).__name__}: {error})")]


# -- nothing lost --------------------------------------------------------------------------------------------------


def _store_is_sound(evidence: Evidence) -> Iterator[Violation]:
    for answer in evidence.integrity:
        if answer != "ok":
            yield Violation("lost", "integrity", answer)
    for row in evidence.orphan_rows:
        yield Violation("lost", "integrity", f"{row} refers to nothing")


def _salvage_is_there(evidence: Evidence) -> Iterator[Violation]:
    for row in evidence.tables["salvages"]:
        if "dropped" in json.loads(row["details"]):
            continue  # it goes, ref first, then row
        shadow = evidence.shadow(row["repo_id"])
        if git(shadow, "rev-parse", "--verify", "--quiet", f"{row['ref']}^{{commit}}").strip() == "":
            yield Violation("lost", "salvage", f"{row['ref']} of task {row['task_id']} is not in {shadow}")
        elif git(shadow, "cat-file", "-t", row["commit_id"]).strip() != "commit":
            yield Violation("lost", "salvage", f"commit {row['commit_id']} of task {row['task_id']} is gone")


def _checkpoint_is_there(evidence: Evidence) -> Iterator[Violation]:
    for row in evidence.tables["checkpoints"]:
        if row["dropped"] is not None:
            continue  # it goes, ref first, then row
        shadow = evidence.shadow(row["repo_id"])
        if git(shadow, "rev-parse", "--verify", "--quiet", f"{row['ref']}^{{commit}}").strip() != row["commit_id"]:
            yield Violation("lost", "checkpoint", f"{row['ref']} of task {row['task_id']} is not in {shadow}")


def _workspaces_exist(evidence: Evidence) -> Iterator[Violation]:
    entries = {
        path for repo in evidence.tables["repos"] for _name, path in evidence.worktree_entries(repo["common_dir"])
    }
    for row in evidence.tables["workspaces"]:
        if row["state"] not in ("ready", "preserved") or row["strategy"] == "none" or _is_under_way(evidence, row):
            continue
        if not os.path.isdir(row["path"]):
            yield Violation("lost", "workspace", f"{row['path']} is {row['state']}, but not on disk")
        elif row["strategy"] == "worktree" and os.path.realpath(row["path"]) not in entries:
            yield Violation("lost", "workspace", f"{row['path']} is {row['state']}, but git has no entry for it")


def _is_under_way(evidence: Evidence, workspace: Row) -> bool:
    """True if the task runs or the workspace is being removed, so that the next step is under way. Also true if the
    whole repository is gone."""
    repo = {row["id"]: row for row in evidence.tables["repos"]}[workspace["repo_id"]]
    return (
        evidence.tasks[workspace["task_id"]]["state"] == "running"
        or workspace["disposition"] in ("clean", "salvage")
        or not os.path.isdir(repo["common_dir"])
    )


# -- nothing leaked ------------------------------------------------------------------------------------------------


def _no_stray_process(evidence: Evidence) -> Iterator[Violation]:
    for pid, run_id in evidence.marked_processes().items():
        run = evidence.runs.get(run_id)
        if run is None or run["state"] in ("ended", "settled"):
            state = "unknown" if run is None else run["state"]
            yield Violation("leaked", "process", f"pid {pid} belongs to run {run_id}, which is {state}")
    open_paths = {
        os.path.realpath(row["path"]) for row in evidence.tables["workspaces"] if row["state"] in LIVE_WORKSPACES
    }
    for pid, folder in evidence.processes_inside().items():
        if not any(folder == path or folder.startswith(path + "/") for path in open_paths):
            yield Violation("leaked", "process", f"pid {pid} works in {folder}, which no open workspace owns")


def _no_stray_cgroup(evidence: Evidence) -> Iterator[Violation]:
    for run_id, path in evidence.cgroups():
        run = evidence.runs.get(run_id)
        probe = run_id.removeprefix("probe-")
        if probe != run_id:
            if probe not in map(str, living()):
                yield Violation("leaked", "cgroup", f"{path} is left over from a test of cgroups that was killed")
        elif run is None or run["state"] == "settled":
            yield Violation("leaked", "cgroup", f"{path} is left of run {run_id}")


def _no_stray_directory(evidence: Evidence) -> Iterator[Violation]:
    rows = evidence.tables["workspaces"]
    live = {row["path"] for row in rows if row["state"] in LIVE_WORKSPACES}
    unfinished = {row["path"] for row in rows if row["state"] != "gone"}
    for path in evidence.workspace_directories():
        if path not in live:
            yield Violation("leaked", "directory", f"{path} has no live row")
    for path in evidence.owner_markers():
        if path not in unfinished:
            yield Violation("leaked", "marker", f"{path} has an owner marker, but no row that is not gone")
    ids = tuple(row["id"] for row in rows if row["state"] != "gone")
    for name in evidence.trash():
        if not ids or not name.startswith(ids):
            yield Violation("leaked", "trash", f"{name} belongs to no row that is not gone")
    for name in evidence.run_directories():
        if name not in evidence.runs:
            yield Violation("leaked", "run directory", f"{name} has no row")


def _no_stray_git(evidence: Evidence) -> Iterator[Violation]:
    live = {os.path.realpath(row["path"]) for row in evidence.tables["workspaces"] if row["state"] in LIVE_WORKSPACES}
    in_use = {row["branch"] for row in evidence.tables["workspaces"] if row["state"] != "gone"}
    for repo in evidence.tables["repos"]:
        for name, path in evidence.worktree_entries(repo["common_dir"]):
            ours = bool(path) or any(name.startswith(task_id) for task_id in evidence.tasks)
            # An agent may have made a worktree of its own inside its workspace.
            inside = any(path.startswith(workspace + "/") for workspace in live)
            if ours and path not in live and not inside:
                yield Violation("leaked", "worktree entry", f"{name} in {repo['path']} points to '{path}'")
        for branch, tip in evidence.branches(repo["common_dir"]).items():
            task = evidence.tasks.get(task_of(branch))
            if task is None or branch in in_use or task["state"] not in TERMINAL:
                continue
            if tip == task["base_commit"]:
                yield Violation("leaked", "branch", f"{branch} of the {task['state']} task {task['id']} is empty")


# -- nothing run twice ---------------------------------------------------------------------------------------------


def _ends_once(evidence: Evidence) -> Iterator[Violation]:
    """Check that no terminal event follows a terminal event, until an operator's retry opens the task again. If event
    numbers are missing between the two, history was deleted, and the event of the retry may be deleted too."""
    ended: dict[str, str] = {}
    at: dict[str, tuple[int, int]] = {}  # the last ending: (its position among the remaining events, its number)
    for place, event in enumerate(evidence.events):
        task_id, kind = event["task_id"], event["kind"]
        if kind == "task.queued":
            ended.pop(task_id, None)
        elif kind in ("task.completed", "task.failed", "task.cancelled"):
            if task_id in ended and place - at[task_id][0] == event["seq"] - at[task_id][1]:
                yield Violation("twice", "ending", f"task {task_id} has {kind} after {ended[task_id]}")
            ended[task_id], at[task_id] = kind, (place, event["seq"])
    for task_id, task in evidence.tasks.items():
        told = ended.get(task_id, "")
        if (task["state"] in TERMINAL) != bool(told) or (told and told != f"task.{task['state']}"):
            yield Violation("twice", "ending", f"task {task_id} is {task['state']}, its events say '{told}'")


def _fences_rise(evidence: Evidence) -> Iterator[Violation]:
    """Check that claims and adoptions raise the fence, and that every other accepted write carries the newest fence."""
    newest: dict[str, int] = {}
    for event in evidence.events:
        task_id, fence = event["task_id"], event["data"].get("fence")
        if task_id is None or not isinstance(fence, int):
            continue
        if event["kind"] in ("task.claimed", "task.adopted"):
            if fence <= newest.get(task_id, 0):
                yield Violation("twice", "fence", f"event {event['seq']}: task {task_id} was claimed under {fence}")
            newest[task_id] = fence
        elif fence != newest.get(task_id, fence):
            yield Violation(
                "twice", "fence", f"event {event['seq']} ({event['kind']}) of task {task_id} was written under fence "
                f"{fence}, but {newest[task_id]} held it",
            )  # fmt: skip
    for task_id, task in evidence.tasks.items():
        if task["fence"] < newest.get(task_id, 0):  # a restore raises fences above those of all events
            yield Violation(
                "twice", "fence", f"task {task_id} has fence {task['fence']}, but an event has {newest[task_id]}"
            )


def _claims_are_leased(evidence: Evidence) -> Iterator[Violation]:
    """Check that no supervisor claims or adopts a task after another one has recorded it as lost."""
    lost: set[str] = set()
    for event in evidence.events:
        host = event["data"].get("host")
        if event["kind"] == "host.lost":
            lost.add(host)
        elif event["kind"] in ("task.claimed", "task.adopted") and host in lost:
            words = (
                f"event {event['seq']}: task {event['task_id']} was taken by supervisor {host}, which was lost before"
            )
            yield Violation("twice", "lease", words)


def _one_agent_at_a_time(evidence: Evidence) -> Iterator[Violation]:
    """Check that a task has at most one open run. During a parallel stage each member has at most one, and the task has
    no other run."""
    left = [run for run in evidence.runs.values() if run["state"] != "settled"]
    open_runs = Counter((run["task_id"], run["member"]) for run in left)
    for (task_id, member), count in open_runs.items():
        if count > 1:
            who = f"member {member} of task {task_id}" if member else f"task {task_id}"
            yield Violation("twice", "runs", f"{who} has {count} open runs")
        if not member and any(run["task_id"] == task_id and run["member"] for run in left):
            yield Violation("twice", "runs", f"task {task_id} has an open run in addition to those of its members")
        if evidence.tasks[task_id]["state"] != "running":
            state = evidence.tasks[task_id]["state"]
            yield Violation("twice", "runs", f"task {task_id} is {state}, but a run of it is open")
    told = Counter(event["run_id"] for event in evidence.events if event["kind"] == "agent.terminated")
    for run_id, run in evidence.runs.items():
        if told[run_id] > 1:
            yield Violation("twice", "runs", f"run {run_id} has {told[run_id]} events that it ended")
        if run["state"] in ("ended", "settled") and run["outcome"] is None:
            yield Violation("silent", "runs", f"run {run_id} is {run['state']} without an outcome")


# -- nothing loops -------------------------------------------------------------------------------------------------


def _budgets_are_kept(evidence: Evidence, limits: CheckedLimits) -> Iterator[Violation]:
    forced = Counter(
        event["task_id"]
        for event in evidence.events
        if event["kind"] == "task.resumed"
        and event["data"].get("forced")
        and event["data"]["resume_attempts"] > event["data"]["max_resume_attempts"]
    )  # an operator forced each of these
    given_back = Counter(event["task_id"] for event in evidence.events if event["data"].get("gives_resumes_back"))
    # runs that met a limit before any answer: the resumes before them do not count
    returned = Counter(event["task_id"] for event in evidence.events if event["data"].get("returns_resume"))
    # A person may have changed the maximum since: each resume was decided with the one of its time.
    allowed: Counter[object] = Counter()
    for event in evidence.events:
        if event["kind"] == "task.resumed":
            allowed[event["task_id"]] = max(allowed[event["task_id"]], int(event["data"]["max_resume_attempts"]))
    for task_id, task in evidence.tasks.items():
        spent = Counter(
            row["budget"]
            for row in evidence.tables["spends"]
            if row["task_id"] == task_id and row["generation"] == task["generation"]
        )
        most_resumes = max(allowed[task_id], int(json.loads(task["settings"])["max_resumes"]))
        resumes = most_resumes * (1 + given_back[task_id]) + forced[task_id]
        resumes += returned[task_id]
        losses = max(limits.lost, limits.runs) + 1
        most = {RUNS: limits.runs, CRASH: limits.crash, RETRY: limits.retry + 1, LOST: losses, RESUME: resumes}
        for budget, limit in most.items():
            if spent[budget] > limit and budget != CRASH:  # crashes count in a sliding window only
                yield Violation("loops", "budget", f"task {task_id} spent {spent[budget]} of {limit} {budget}")
        if task["resume_attempts"] > resumes + 1:
            yield Violation("loops", "resumes", f"task {task_id} counts {task['resume_attempts']} of {resumes} resumes")


def _usage_is_counted_once(evidence: Evidence) -> Iterator[Violation]:
    """Check that the usage of a run is counted once, at its end, and never more than its agent reported."""
    counted = {row["run_id"]: row["input"] + row["output"] for row in evidence.tables["usage"]}
    for run_id, run in evidence.runs.items():
        is_over = run["state"] in ("ended", "settled")
        if is_over and run["tokens"] is not None and run_id not in counted:
            yield Violation("lost", "usage", f"the usage of run {run_id} is not recorded")
        if not is_over and run_id in counted:
            yield Violation("twice", "usage", f"run {run_id} was counted before its end")
        if counted.get(run_id, 0) > (run["tokens"] or 0):
            yield Violation(
                "twice", "usage", f"run {run_id} counts {counted[run_id]} tokens, but reported {run['tokens']}"
            )


# -- nothing silent ------------------------------------------------------------------------------------------------


def _everything_has_a_reason(evidence: Evidence) -> Iterator[Violation]:
    for task_id, task in evidence.tasks.items():
        if not task["reason"]:
            yield Violation("silent", "reason", f"task {task_id} is {task['state']} without a reason")
    told = {(event["task_id"], event["kind"]) for event in evidence.events}
    for task_id, task in evidence.tasks.items():
        if task["state"] not in TERMINAL and (task_id, "task.queued") not in told:  # old events may be deleted
            yield Violation("silent", "events", f"task {task_id} was queued without an event")
    sequence = [event["seq"] for event in evidence.events]
    if len(sequence) != len(set(sequence)):
        yield Violation("silent", "events", "two events share a number")


def _nothing_under_way(evidence: Evidence) -> Iterator[Violation]:
    """Check that nothing is under way, given that every task has ended and no supervisor runs."""
    for task_id, task in evidence.tasks.items():
        if task["state"] not in TERMINAL:
            yield Violation("lost", "rest", f"task {task_id} never ended: {task['state']}, {task['reason']}")
    for row in evidence.tables["workspaces"]:
        if row["state"] in ("intended", "ready", "trashed"):
            yield Violation("leaked", "rest", f"workspace {row['path']} is still {row['state']}")
    for pid, run_id in evidence.marked_processes().items():
        yield Violation("leaked", "rest", f"pid {pid} of run {run_id} lives")
    for path in evidence.half_written_files():
        yield Violation("leaked", "rest", f"{path} is half written, and no process works on it")
    for row in evidence.tables["requests"]:
        if row["answered_at"] is None:
            yield Violation("silent", "rest", f"request {row['id']} ({row['kind']}) was never answered")
    for host in evidence.tables["hosts"]:
        if host["state"] == "active":
            yield Violation(
                "silent", "rest", f"supervisor {host['id']} (pid {host['pid']}) is gone, but recorded as active"
            )


RULES: tuple[Callable[[Evidence], Iterator[Violation]], ...] = (
    _store_is_sound,
    _salvage_is_there,
    _checkpoint_is_there,
    _workspaces_exist,
    _no_stray_process,
    _no_stray_cgroup,
    _no_stray_directory,
    _no_stray_git,
    _ends_once,
    _fences_rise,
    _claims_are_leased,
    _one_agent_at_a_time,
    _usage_is_counted_once,
    _everything_has_a_reason,
)
