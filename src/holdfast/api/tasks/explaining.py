"""Everything there is to say about one task, in words: why it is where it is, what it is, what is left of its budgets.

`why` and `show` print it, the screen of a task shows it. Looking at a living agent takes a moment:
this is not for lists.
"""

from __future__ import annotations

from typing import Any

from holdfast.api.queries import Queries

Row = dict[str, Any]


def complete(queries: Queries, task: Row) -> None:
    """Into the task as `queries.task` gave it: its budgets, what its runs took, how to go on by hand."""
    from holdfast.api.tasks.spending import budgets, spent_in_all
    from holdfast.api.tasks.usage import complete

    task["budgets"], task["spent_in_all"] = budgets(queries, task), spent_in_all(queries, task)
    complete(queries, task)


def why(queries: Queries, task: Row) -> list[str]:
    """Of a task that is complete: what holds it, what follows, what was done about it, and what to type."""
    from holdfast.api.fleet.accounts import kept_back, waits_for_account
    from holdfast.api.fleet.crashes import crash_summary
    from holdfast.api.fleet.dispatch import explain as held_back
    from holdfast.api.fleet.workers import waits_for_worker
    from holdfast.api.format import explain
    from holdfast.api.tasks.spending import waits_for_budget, wants_more
    from holdfast.api.tasks.stages import lines as stage_lines
    from holdfast.api.tasks.subtasks import family_lines
    from holdfast.api.tasks.usage import usage_lines
    from holdfast.api.tasks.why import health_lines

    task["kept_back"] = kept_back(queries, task) or wants_more(task, task["budgets"])
    lines = explain(task, queries.ahead_of(task["id"]), queries.supervisor(), queries.pending_requests(task["id"]))
    lines += stage_lines(task, queries.home)
    waits = (waits_for_account(queries, task), waits_for_budget(queries, task), waits_for_worker(queries, task))
    lines += [why for why in waits if why]
    lines += held_back(queries, task)
    lines += health_lines(queries, task)
    lines += family_lines(queries, task)
    lines += usage_lines(task)
    lines += crash_summary(task["crashes"])
    return lines + [f"{alert['message']} {alert['remedy']}" for alert in queries.alerts_about(task)]


def facts(task: Row) -> dict[str, str]:
    """Of a task that is complete: name → words, without those that say nothing."""
    from holdfast.api.format import moment, took
    from holdfast.api.tasks.spending import in_short
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
        and f"{task['pause_reason']}, until {moment(task['resume_after']) or _until_you(task)}",
        "workspace": " ".join(str(task["workspace"][key] or "-") for key in ("strategy", "state", "path")),
        "budgets": in_short(task["budgets"]),
        "took": task["usage"] and took(task["usage"]),
    }
    return {name: str(value) for name, value in found.items() if value}


def _until_you(task: Row) -> str:
    return "you approve it" if task["stage"] is not None and task["stage"]["awaits_approval"] else "you resume it"
