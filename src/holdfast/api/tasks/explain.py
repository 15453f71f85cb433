"""Explanations of one task: why it is in its state, what happens next, and the command to type.

`why`, `show` and `run` print them, and the screen of a task shows them. Looking at a running agent takes a moment, so
`explain` is not for lists.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from holdfast.api.format import duration, moment, took
from holdfast.api.tasks.why.outcome import truth_lines
from holdfast.base.text import as_sentence
from holdfast.core.states import TASK_TERMINAL

if TYPE_CHECKING:
    from holdfast.api.queries import Queries
    from holdfast.api.tasks.models import LaunchRow, RunRow, TaskDetails
    from holdfast.api.tasks.why.reason import WaitReason


def complete(queries: Queries, task: TaskDetails) -> None:
    """Add to a task of `queries.task`: its budgets, how its runs were launched, their usage, and how to continue by
    hand."""
    from holdfast.api.tasks.spending import read_budgets, read_total_usage
    from holdfast.api.tasks.usage import complete

    task["budgets"], task["spent_in_all"] = read_budgets(queries, task), read_total_usage(queries, task)
    for run in task["runs"]:
        run["launch"] = _read_launch(queries.run_directory(run["id"]))
    complete(queries, task)


def _read_launch(path: str) -> LaunchRow | None:
    """Return the registration of a run. An agent may have changed the file, so only text values are used."""
    from holdfast.processes.run_dir import PROMPT, STDIN, RunDirectory
    from holdfast.secrets.redact import redact_text

    found = RunDirectory(path).registration()
    if not found:
        return None
    about = found.get("metadata")
    known = {**about, "cwd": found.get("cwd")} if isinstance(about, dict) else {"cwd": found.get("cwd")}
    texts = {name: redact_text(value) for name, value in known.items() if isinstance(value, str)}
    words, prompt = found.get("argv"), texts.get("prompt_file")
    file = os.path.join(path, prompt or "")
    return {
        "command": [redact_text(str(word)) for word in words] if isinstance(words, list) else [],
        "cwd": texts.get("cwd"),
        "host": texts.get("host"),
        "role": texts.get("role"),
        "stage": texts.get("stage"),
        "model": texts.get("model"),
        "prompt_file": file if prompt in (PROMPT, STDIN) and os.path.exists(file) else None,
    }


def list_wait_reasons(queries: Queries, task: TaskDetails) -> list[WaitReason]:
    """Return why the task waits. The command that raises a spent budget is included only if the task is complete."""
    from holdfast.api.tasks.why.read import add_raise_command, read_waits

    return [
        add_raise_command(reason, task["id"], task.get("budgets", {})) for reason in read_waits(queries, task["id"])
    ]


def explain(queries: Queries, task: TaskDetails, waits: list[WaitReason]) -> list[str]:
    """Return everything that `why` prints about a complete task."""
    from holdfast.api.fleet.alerts import crash_summary
    from holdfast.api.fleet.dispatch import probe_lines
    from holdfast.api.tasks.health import health_lines
    from holdfast.api.tasks.messages import message_lines
    from holdfast.api.tasks.stages import stage_lines as stage_lines
    from holdfast.api.tasks.subtasks import family_lines
    from holdfast.api.tasks.usage import usage_lines
    from holdfast.api.tasks.why.activity import activity_lines

    lines = explain_state(task, waits)
    lines += activity_lines(queries.home, task)
    lines += _resume_lines(task)
    for request in queries.pending_requests(task["id"]):
        lines.append(f"{request['by']} asked to {request['kind']} it. That is in progress.")
    lines += message_lines(task)
    lines += stage_lines(task, queries.home)
    lines += probe_lines(queries, task["id"])
    lines += health_lines(queries, task)
    lines += family_lines(queries, task)
    lines += usage_lines(task)
    lines += crash_summary(task["crashes"])
    told = f"Task {task['id']} {task['state']}: {task['reason']}"
    alerts = [alert for alert in queries.alerts_about(task) if alert["message"].rstrip(".") != told.rstrip(".")]
    return lines + [f"{alert['message']} {_without_why(alert['remedy'], task['id'])}" for alert in alerts]


def _resume_lines(task: TaskDetails) -> list[str]:
    """Return a sentence on what the next limit does to an unfinished task without a resume left. Return nothing for a
    task that is paused for a limit: the text about its pause says it."""
    from holdfast import config
    from holdfast.api.tasks.why.circumstances import FREE_RESUMES
    from holdfast.api.tasks.why.text import after_last_resume

    most, is_paused = task["max_resumes"], task["state"] == "paused"
    if task["resume_attempts"] < most or task["state"] in TASK_TERMINAL:
        return []
    if is_paused and task["pause_reason"] not in FREE_RESUMES:
        return []
    then = after_last_resume(task["id"], fails=bool(config.load_valid_values()["resume.auto"]))
    return [f"No resume is left ({task['resume_attempts']} of {most}): {then}"]


def _without_why(remedy: str, task_id: str) -> str:
    """Return an alert's remedy. A first clause that says to look with `holdfast why` is left out, because `why` prints
    the result."""
    rest = remedy.removeprefix(f"Look with `holdfast why {task_id}`; ")
    return rest[:1].upper() + rest[1:]


def explain_state(task: TaskDetails, waits: list[WaitReason]) -> list[str]:
    """Return why the task is in its state, why it waits, and which schedule added it."""
    from holdfast.api.tasks.why.reason import WaitKind
    from holdfast.api.tasks.why.text import sentences

    lines = state_lines(task)
    for reason in sorted(waits, key=lambda reason: reason.kind is WaitKind.NO_SUPERVISOR):  # no supervisor: last
        lines += sentences(reason, task["id"])
    if task.get("schedule"):
        name = task["schedule"]
        lines.append(f"The schedule {name} added it, for {task['fire_time']}: `holdfast schedule show {name}`.")
    return lines


# -- one state each ----------------------------------------------------------------------------------------------------


def state_lines(task: TaskDetails) -> list[str]:
    """Return sentences about the task's state, from its own row alone."""
    return _STATES[task["state"]](task)


def _queued(task: TaskDetails) -> list[str]:
    return [as_sentence(f"It waits: {task['reason']}")]


def _paused(task: TaskDetails) -> list[str]:
    return [as_sentence(f"It is paused ({task['pause_reason']}): {task['reason']}")]


def _running(task: TaskDetails) -> list[str]:
    runs, gate = task["runs"], task["running_gate"]
    if gate is not None:
        since = duration(max(0.0, time.time() - gate["since"]))
        return [f"Its gate `{gate['command']}` has been running for {since}."]
    if not runs:
        return ["It was claimed, and its workspace is being prepared."]
    run = runs[-1]
    by = f" by worker {task['worker']}" if task["worker"] else ""
    if run["state"] == "stopping":
        lines = [f"Run {run['id']} is being stopped ({run['stop_why']}). Its processes are being ended."]
        return [*lines, *_report_lines(run)]
    if run["state"] == "ended" and run["ended_at"] is not None:
        ago = duration(int(time.time() - run["ended_at"]))
        return [f"Run {run['id']} ended {ago} ago ({run['outcome']}). Its work is being checked and saved."]
    since = duration(int(time.time() - run["started_at"])) if run["started_at"] else "not yet"
    return [
        f"Run {run['id']} (number {run['number']}{by}) is {run['state']}, pid {run['pid']}, since {since}. "
        f"It will be ended after {_timeout(task, run)}.",
        *_report_lines(run),
        f"See its output: `holdfast logs {task['id']} -f`.",
    ]


def _timeout(task: TaskDetails, run: RunRow) -> str:
    own = run["timeout"]
    return duration(task["timeout"]) if own is None else f"{duration(own)} ({run['timeout_why']})"


def _report_lines(run: RunRow) -> list[str]:
    """Return sentences about the reports of the run's agent: its newest progress, and the claimed result."""
    lines = []
    claim, progress = run["claim"], run["progress"]
    if progress is not None:
        words = [f"{progress['percent']:g} %"] if progress["percent"] is not None else []
        words += [progress["message"]] if progress["message"] else []
        lines.append(f"Its agent reported {duration(int(time.time() - progress['at']))} ago: {': '.join(words)}.")
    if claim is not None:
        message = f" ({claim['message']})" if claim["message"] else ""
        lines.append(
            f"Its agent reported `{claim['kind']}`{message} {duration(int(time.time() - claim['at']))} ago; "
            "if it does not exit by itself, it is ended."
        )
    return lines


def _completed(task: TaskDetails) -> list[str]:
    lines = [as_sentence(f"It completed: {task['reason']}"), *truth_lines(task)]
    lines += [*work_lines(task), *_salvage_lines(task)]
    return [*lines, f'Continue it: `holdfast send {task["id"]} "TEXT"`.']


def work_lines(task: TaskDetails) -> list[str]:
    """Return where the committed work of a completed task is: on a branch that exists, or in its workspace."""
    from holdfast.workspaces.git.refs import has_branch

    branch, workspace = task["branch"], task["workspace"]
    if not branch:
        return []
    if has_branch(task["repo"], branch):
        look, bring = f"`holdfast diff {task['id']}` shows it", f"`holdfast merge {task['id']}` merges it"
        if _is_merged(task, branch):
            where = f"Its work is on branch {branch}, and {task['base_ref']} has all of it"
            return [f"{where}: {look}, `holdfast branches prune --merged` deletes the branch."]
        return [f"Its work is on branch {branch}: {look}, {bring}."]
    if workspace["state"] == "preserved":
        return [f"Its work is in its preserved workspace {workspace['path']}: `holdfast shell {task['id']}`."]
    return [f"Its branch {branch} is not in {task['repo']}: it was merged and deleted, or it had no commit."]


def _is_merged(task: TaskDetails, branch: str) -> bool:
    """True if the branch from which the task started has all its commits, by `holdfast merge` or by hand.

    The branch of another task does not count: it waits for a merge itself.
    """
    from holdfast.workspaces.git.merge import has_commit, tip_of
    from holdfast.workspaces.names import BRANCH_PREFIX

    if str(task["base_ref"]).startswith(BRANCH_PREFIX):
        return False
    tip, target = tip_of(task["repo"], branch), tip_of(task["repo"], task["base_ref"])
    if tip is None or target is None or tip == task["base_commit"]:
        return False
    return has_commit(task["repo"], target, tip)


def _salvage_lines(task: TaskDetails) -> list[str]:
    if all(row["taken_up"] for row in task["salvages"]):
        return []
    return [f"Uncommitted work was saved: `holdfast salvage restore {task['id']} --branch NAME` restores it."]


def _failed(task: TaskDetails) -> list[str]:
    word = str(task["failure_reason"] or task["outcome"])
    kind = "" if word == "failed" else f" ({word})"
    lines = [as_sentence(f"It failed{kind}: {str(task['reason']).removeprefix(f'{word}: ')}")]
    errors = task["runs"][-1]["error_tail"] if task["runs"] else None
    if errors:
        lines.append("The last lines of its standard error:\n" + errors.rstrip())
    lines += truth_lines(task)
    lines += _salvage_lines(task)
    lines.append(
        f"Try again with `holdfast retry {task['id']}` (or --fresh, from the base), or tell its agent what to do: "
        f'`holdfast send {task["id"]} "TEXT"`.'
    )
    return lines


def _cancelled(task: TaskDetails) -> list[str]:
    lines = [as_sentence(f"It was cancelled: {task['reason']}"), *truth_lines(task)]
    lines += _salvage_lines(task)
    lines.append(f"Queue it again with `holdfast retry {task['id']}`.")
    return lines


_STATES: Mapping[str, Callable[[TaskDetails], list[str]]] = {
    "queued": _queued,
    "running": _running,
    "paused": _paused,
    "completed": _completed,
    "failed": _failed,
    "cancelled": _cancelled,
}


# -- facts -------------------------------------------------------------------------------------------------------------


def facts(task: TaskDetails) -> dict[str, str]:
    """Return name → text about a complete task. Empty values are left out."""
    from holdfast.api.tasks.spending import budgets_on_one_line
    from holdfast.api.tasks.stages import words

    found = {
        "prompt": task["prompt"],
        "agent": task["agent"] + (f" (account {task['account']})" if task["account"] else ""),
        "schedule": task["schedule"] and f"{task['schedule']}, for {task['fire_time']}",
        "worker": task["worker"],
        "stage": task["stage"] and f"{words(task['stage'])} of workflow {task['stage']['workflow']}",
        "repo": task["repo"],
        "base": f"{task['base_ref']} {task['base_commit'] or ''}",
        "branch": task["branch"],
        "labels": " ".join(f"{key}={value}" for key, value in task["labels"].items()),
        "needs": " ".join(f"{need['id']} ({need['state']})" for need in task["needs"]),
        "parent": task["parent_id"],
        "paused": task["pause_reason"]
        and f"{task['pause_reason']}, until {moment(task['resume_after']) or _pause_end(task)}",
        "workspace": " ".join(
            str(part or "-") for part in (task["workspace"][key] for key in ("strategy", "state", "path"))
        ),
        "budgets": budgets_on_one_line(task["budgets"]),
        "took": task["usage"] and took(task["usage"]),
    }
    return {name: str(value) for name, value in found.items() if value}


def _pause_end(task: TaskDetails) -> str:
    return "you approve it" if task["stage"] is not None and task["stage"]["awaits_approval"] else "you resume it"
