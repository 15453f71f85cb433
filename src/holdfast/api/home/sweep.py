"""Leftovers of a home: list them (`doctor`, `sweep --dry-run`), and sweep on demand."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import time
from typing import TYPE_CHECKING

from holdfast.api.commands import change_store, operator_name
from holdfast.api.queries import Queries
from holdfast.api.requests import wait_for_result
from holdfast.base import clock
from holdfast.base.platform import missing
from holdfast.containers.engine import Engines
from holdfast.containers.workspaces import EngineContainerSweeper as ContainerSweeper
from holdfast.core.cleanup.compare import Finding, SweepAction, compare_with_ledger
from holdfast.core.cleanup.observed import ObservedState
from holdfast.core.model import Repo, RequestKind
from holdfast.processes.strays import find_strays
from holdfast.store.port.workspaces import read_ledger
from holdfast.workspaces.removal.sweeper import observe_now

if TYPE_CHECKING:
    from holdfast.api.home.models import SweepFinding
    from holdfast.api.tasks.models import JsonObject

PATIENCE = 3600.0  # for a supervisor that has thousands of trees to save and delete


def find_leftovers(queries: Queries) -> tuple[ObservedState, list[Finding]]:
    """Find leftovers as the sweep does. Nothing is changed."""
    repos = [Repo(id=row["id"], path=row["path"], common_dir=row["common_dir"]) for row in queries.repos()]
    scene = observe_now(queries.home, repos)
    if missing() is None:
        running = queries.supervisor()
        helpers_of = frozenset({os.getpid(), *([int(running["pid"])] if running else [])})
        scene = dataclasses.replace(scene, strays=find_strays(queries.home, helpers_of))
    containers = asyncio.run(ContainerSweeper(queries.home, Engines(queries.home)).find())
    scene = dataclasses.replace(scene, containers=containers)
    return scene, compare_with_ledger(scene, read_ledger(queries.view, scene))


def plan(home: str) -> list[SweepFinding]:
    """List what a sweep would do, and what it would leave alone."""
    scene, findings = find_leftovers(Queries(home))
    rows: list[SweepFinding] = [
        {
            "action": str(finding.action),
            "what": finding.what,
            "where": finding.where,
            "why": finding.why,
            "foreign": finding.foreign,
            "text": str(finding),
        }
        for finding in findings
    ]
    why = "is not a name that Holdfast uses; it is left alone"
    action = str(SweepAction.REPORT)
    for path in scene.odd:
        text = f"{path} {why}"
        rows.append({"action": action, "what": "odd", "where": path, "why": why, "foreign": True, "text": text})
    return rows


def sweep(home: str) -> JsonObject:
    """Sweep through the supervisor, or in this process under its lock if none is running.

    Return the data of the event `sweep.completed`.
    """
    queries = Queries(home)
    if queries.supervisor() is None:
        from holdfast import config
        from holdfast.wiring import supervisor

        return supervisor.run_sweep(home, config.load()).data()
    request = change_store(
        home, lambda tx: tx.requests.ask(RequestKind.SWEEP, None, operator_name(), "", {}, clock.now())
    )
    answer = wait_for_result(
        queries,
        request,
        time.monotonic() + PATIENCE,
        if_gone="The supervisor ended. The next `holdfast up` sweeps by itself.",
        if_late="The supervisor is still sweeping. `holdfast events` shows the end (sweep.completed).",
    )
    report: JsonObject = json.loads(answer.text)
    return report
