"""The health of a running agent, and why a run was ended as hung. Facts and rules are the same as the supervisor's."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from holdfast import config
from holdfast.agents.port import sign_reader
from holdfast.api.queries import Queries
from holdfast.base import clock
from holdfast.core.health.diagnosis import Condition, RunFacts, TreeFacts, cpu_window, diagnose
from holdfast.core.health.stalled import CpuTrail
from holdfast.core.runs.liveness import ProcessIdentity
from holdfast.core.runs.outcome import Outcome
from holdfast.core.task_settings import HealthRules, rules_from
from holdfast.processes.observe.process_tree import read_trees
from holdfast.processes.observe.run_view import RunView, start_time_of
from holdfast.processes.run_dir import RunDirectory

if TYPE_CHECKING:
    from holdfast.api.tasks.models import RunRow, TaskDetails

SAMPLE_INTERVAL = 0.2  # seconds between two looks at an agent's processes
CATCH_UP = 5.0  # seconds of reading the output; an agent that floods its log is never caught up with
_HUNG = frozenset({Condition.STUCK, Condition.LOOPING, Condition.STARTUP_TIMEOUT})


def health_lines(queries: Queries, task: TaskDetails) -> list[str]:
    """Return sentences: current evidence for a running agent, evidence of the verdict for a hung run."""
    lines = _verdicts(queries, task, [run for run in task["runs"] if run["outcome"] not in (None, Outcome.COMPLETED)])
    if task["runs"] and task["state"] == "running" and task["runs"][-1]["state"] in ("started", "stopping"):
        lines += _current_health(queries, task, task["runs"][-1])
    return lines


def _verdicts(queries: Queries, task: TaskDetails, ended: list[RunRow]) -> list[str]:
    """Return a sentence for each run that was ended as hung. A run that was ended because it could not succeed is
    included, although its outcome names its trouble."""
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


def _current_health(queries: Queries, task: TaskDetails, run: RunRow) -> list[str]:
    """Return a sentence about the health of a running agent, from its output and its processes."""
    from holdfast.agents.registry import AGENTS

    path = queries.run_directory(run["id"])
    identities = RunDirectory(path).identities()
    if identities is None or identities[0].boot_id != clock.boot_id():
        return []
    keeper, agent = identities
    adapter, rules = AGENTS[task["agent"]], rules_from(HealthRules, queries.health_rules(task["id"]))
    now = clock.monotonic()
    view = RunView(path, sign_reader(adapter), start_time_of(agent, now))
    view.take_over(now)
    until = time.monotonic() + CATCH_UP
    while view.look(now).behind:
        if time.monotonic() >= until:
            return ["Health: not judged, because its agent writes output faster than it is read."]
    tree = _sample_processes(keeper, cpu_window(rules, seen=True))
    facts = RunFacts(
        now=clock.monotonic(),
        started_at=view.started_at,
        watched_since=view.started_at,
        reads_events=adapter.reads_events,
        output_at=view.output_at,
        heartbeat_at=view.channel_at,
        tools=tuple(view.talk.tools.values()),
        steps=view.talk.steps,
        last_step=view.talk.last_step,
        stall=view.talk.stall,
        tree=tree,
    )
    condition = view.told or diagnose(facts, rules).condition
    return [f"Health: {condition}; {'; '.join(diagnose(facts, rules).evidence)}."]


def _sample_processes(keeper: ProcessIdentity, window: float) -> TreeFacts | None:
    quiet_share = config.load_valid_values()["monitor.quiet_percent"] / 100
    trail, found = CpuTrail(window, quiet_share), {}
    for pause in (SAMPLE_INTERVAL, 0.0):
        found = read_trees({"": keeper})
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
