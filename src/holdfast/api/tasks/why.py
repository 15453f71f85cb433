"""How a running task is, and why one was ended as hung: the same facts and rules that the supervisor goes by."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from holdfast import config
from holdfast.agents.port import sign_reader
from holdfast.api.fleet.accounts import waits_for_operator
from holdfast.api.fleet.dispatch import waits_for_release
from holdfast.api.fleet.workers import nobody_comes
from holdfast.api.queries import Queries
from holdfast.api.tasks.spending import waits_for_raise
from holdfast.base import clock
from holdfast.core.health.diagnosis import Condition, Facts, TreeFacts, judge, window_of
from holdfast.core.health.stalled import CpuTrail
from holdfast.core.runs.liveness import Identity
from holdfast.core.runs.outcome import Outcome
from holdfast.core.task_settings import HealthRules, rules_from
from holdfast.processes.observe.process_tree import trees
from holdfast.processes.observe.run_view import RunView, started_moment
from holdfast.processes.run_dir import RunDirectory

Row = dict[str, Any]
GLANCE = 0.2  # seconds between two looks at its processes
CATCH_UP = 5.0  # seconds of reading what it said since; who floods its log is never caught up with
_HUNG = frozenset({Condition.STUCK, Condition.LOOPING, Condition.STARTUP_TIMEOUT})


def health_lines(queries: Queries, task: Row) -> list[str]:
    """For `holdfast why`: the evidence of now for a running agent, that of the verdict for one that was hung."""
    lines = _verdicts(queries, task, [run for run in task["runs"] if run["outcome"] not in (None, Outcome.COMPLETED)])
    if task["runs"] and task["state"] == "running" and task["runs"][-1]["state"] in ("started", "stopping"):
        lines += _now(queries, task, task["runs"][-1])
    return lines


def _verdicts(queries: Queries, task: Row, ended: list[Row]) -> list[str]:
    """A doomed run has the outcome of what it met: a limit, the network …"""
    if not ended:
        return []
    told = {
        event["run"]: event
        for event in queries.last_events(task_id=task["id"], limit=1000)
        if event["kind"] == "agent.stuck"
    }
    return [
        f"Health of run {run['number']}: {event['reason']}; {'; '.join(event['data']['evidence'])}."
        for run in ended
        if (event := told.get(run["id"])) is not None
        and (run["outcome"] in _HUNG or event["reason"] == Condition.DOOMED)
    ]


def _now(queries: Queries, task: Row, run: Row) -> list[str]:
    from holdfast.agents.registry import AGENTS

    path = queries.run_directory(run["id"])
    identities = RunDirectory(path).identities()
    if identities is None or identities[0].boot_id != clock.boot_id():
        return []
    keeper, agent = identities
    adapter, rules = AGENTS[task["agent"]], rules_from(HealthRules, queries.health_rules(task["id"]))
    now = clock.monotonic()
    view = RunView(path, sign_reader(adapter), started_moment(agent, now))
    view.take_over(now)
    until = time.monotonic() + CATCH_UP
    while view.look(now).behind:
        if time.monotonic() >= until:
            return ["Health: not judged here, its agent writes faster than its words are read."]
    tree = _glance(keeper, window_of(rules, seen=True))
    facts = Facts(
        now=clock.monotonic(),
        started_at=view.started_at,
        watched_since=view.started_at,
        reads_events=adapter.reads_events,
        output_at=view.output_at,
        heartbeat_at=view.channel_at,
        tools=tuple(view.talk.tools.values()),
        steps=view.talk.steps,
        last_step=view.talk.last_step,
        plight=view.talk.plight,
        tree=tree,
    )
    condition = view.told or judge(facts, rules).condition
    return [f"Health: {condition}; {'; '.join(judge(facts, rules).evidence)}."]


def _glance(keeper: Identity, window: float) -> TreeFacts | None:
    trail, found = CpuTrail(window), {}
    for pause in (GLANCE, 0.0):
        found = trees({"": keeper})
        if "" not in found:
            return None
        trail.add(clock.monotonic(), found[""].cpu)
        time.sleep(pause)
    return TreeFacts(
        looked_at=trail.read_at or 0.0,
        members=len(found[""].pids),
        child_at=clock.monotonic() - max(0.0, clock.boottime() - found[""].newest_start),
        quiet_since=trail.quiet_since or 0.0,
        share=trail.share,
        span=trail.span,
    )


def complete(queries: Queries, task: Row) -> None:
    """Into the task as `queries.task` gave it: its budgets, what its runs took, how to go on by hand."""
    from holdfast.api.tasks.spending import budgets, spent_in_all
    from holdfast.api.tasks.usage import complete

    task["budgets"], task["spent_in_all"] = budgets(queries, task), spent_in_all(queries, task)
    complete(queries, task)


def why(queries: Queries, task: Row) -> list[str]:
    """Of a task that is complete: what holds it, what follows, what was done about it, and what to type."""
    from holdfast.api.fleet.accounts import kept_back, waits_for_account
    from holdfast.api.fleet.alerts import crash_summary
    from holdfast.api.fleet.dispatch import explain as held_back
    from holdfast.api.fleet.workers import waits_for_worker
    from holdfast.api.format import explain
    from holdfast.api.tasks.spending import waits_for_budget, wants_more
    from holdfast.api.tasks.stages import lines as stage_lines
    from holdfast.api.tasks.subtasks import family_lines
    from holdfast.api.tasks.usage import usage_lines

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


def for_people(queries: Queries) -> Callable[[Row], bool]:
    """As the supervisor has it, which does not stay for such a task (core/dispatch.ForOperators)."""
    without_worker, is_automatic = nobody_comes(queries), bool(config.best_effort()["resume.auto"])

    def is_stuck(task: Row) -> bool:
        return (
            waits_for_operator(queries, task)
            or waits_for_raise(queries, task)
            or waits_for_release(queries, task)
            or without_worker(task)
        )

    def answer(task: Row) -> bool:
        if task["state"] != "queued":
            return False
        return is_stuck(task) or any(map(needs_people, queries.view("unmet_needs", id=task["id"])))

    def needs_people(needed: Row) -> bool:
        if needed["state"] == "paused":
            goes_on = needed["resume_after"] is not None and (is_automatic or needed["pause_reason"] == "operator")
            return not goes_on
        return needed["state"] == "queued" and is_stuck(queries.state(needed["id"]))

    return answer


def paused_need(queries: Queries, task: Row) -> str | None:
    """Whom a queued task waits for, if that one is paused until somebody says otherwise."""
    for needed in queries.view("unmet_needs", id=task["id"]) if task["state"] == "queued" else ():
        if needed["state"] == "paused" and needed["resume_after"] is None:
            return f"It waits for task {needed['id']}, which is paused: `holdfast why {needed['id']}`."
    return None
