"""Queries of one home. Rows are plain dicts with stable names (docs/reference/json.md), typed in api/*/models.py.

The store's reader returns raw rows. This module is the one place that casts them. The module imports little, because
the start of `ps` is measured.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from holdfast.api.tasks.stages import read_running_gate, read_stage
from holdfast.api.tasks.why.outcome import decode_truth
from holdfast.base.errors import Conflict, NotFound
from holdfast.base.stored_json import load_stored_json, stored_data_errors
from holdfast.store.open import open_reader

if TYPE_CHECKING:
    from holdfast.api.fleet.models import AlertRow, CrashRow, SpentBudgetRow, SupervisorRow, WorkerStateRow
    from holdfast.api.home.models import EventRow, RepoRow, RequestRow
    from holdfast.api.tasks.models import Completion, JsonObject, RunRow, TaskDetails, TaskRow, TaskStateRow, UnmetNeed
    from holdfast.api.work.models import CheckpointRow, SalvageRow, WorkspaceRow

SHORTEST_ID = 4  # letters of an id that a list shows at least
_SETTINGS = ("labels", "max_resumes", "timeout", "grace", "orphan_grace")


class Queries:
    """A reader of one home. Every method reads the store again."""

    def __init__(self, home: str) -> None:
        self.home = home
        self._reader = open_reader(home)

    def resolve(self, prefix: str) -> str:
        """Return the full id of the one task whose id starts with `prefix`."""
        ids = [str(row["id"]) for row in self._reader.view("ids_like", prefix=prefix)] if prefix.isalnum() else []
        if prefix in ids:
            return prefix
        if not ids:
            raise NotFound(_no_task(prefix))
        if len(ids) > 1:
            raise Conflict(f"'{prefix}' matches {', '.join(ids)}: type more of the id.")
        return ids[0]

    def shorten_ids(self, ids: Sequence[str]) -> dict[str, str]:
        """Return the shortest unique prefix of each id, of at least four letters."""
        short = {}
        for row in self._reader.view("id_neighbours", ids=json.dumps(list(ids))):
            shared = max(_count_shared(row["id"], row[way] or "") for way in ("before", "behind"))
            short[str(row["id"])] = str(row["id"])[: max(SHORTEST_ID, shared + 1)]
        return short

    def completions(self, prefix: str, states: list[str] | None) -> list[Completion]:
        """Return the tasks whose id begins with `prefix`, the newest first, at most a hundred."""
        rows = self._reader.view("completions", prefix=prefix, states=json.dumps(states) if states else None)
        return cast("list[Completion]", rows)

    def tasks(self, *, everything: bool, recent: float = 0.0, ids: Sequence[str] | None = None) -> list[TaskRow]:
        """Return the tasks that `ps` lists: the active ones and what failed since `recent`, or everything, or `ids`."""
        if ids is None:
            rows = self._reader.view("tasks") if everything else self._reader.view("active_tasks", recent=recent)
        else:
            rows = self._reader.view("tasks_of", ids=json.dumps(list(ids)))
        held = self._held_clauses() if any(row["state"] == "queued" for row in rows) else None
        opened, worst = self.open_alerts()
        own = {row["task"]: int(row["n"]) for row in self._reader.view("alerts_by_task")} if opened else {}
        for row in rows:
            row["runs"], row["tokens"], row["cost_usd"] = load_stored_json(row["runs"])
            if row["runs"] > 1 and row["tokens"] is not None:
                self._count_once(row)
            settings = load_stored_json(row.pop("settings"), "labels")
            row["labels"] = settings["labels"]
            row["running_gate"] = read_running_gate(row["state"], settings.get("stages"), row["progress"])
            row["stage"] = read_stage(settings, row.pop("progress"))
            row["gate"] = load_stored_json(row["gate"]) if row["gate"] else None
            decode_truth(row)
            row["held"] = None
            row["alerts"] = {"own": own.get(row["id"], 0), "open": opened, "worst": worst}  # open: of the whole home
            bound = row.pop("bound")
            if held is not None and row["state"] == "queued":
                row["held"] = held(row, bound, settings.get("provider"))
        return cast("list[TaskRow]", rows)

    def _held_clauses(self) -> Callable[[JsonObject, str | None, str | None], str | None] | None:
        """Return a function: (queued task, its account, its provider) → why the task is not started. None: nothing is
        held."""
        running = self.supervisor()
        pressure = None if running is None else running["held"]
        if pressure is None and not any(map(self._reader.view, ("accounts", "spent_budgets", "holds", "full_repos"))):
            return None
        from holdfast.api.tasks.why.read import build_held_clause
        from holdfast.api.tasks.why.reason import Candidate

        held = build_held_clause(self, pressure)

        def clause(row: JsonObject, account: str | None, provider: str | None) -> str | None:
            task = Candidate(row["id"], row["agent"], account, provider, row["labels"], row["repo"])
            return held(task, row["not_before"])

        return clause

    def held_names(self) -> list[str]:
        """Return the holds that delay tasks. A hold of an account counts only while its probe runs."""
        return [
            f"{row['scope']}:{row['name']}"
            for row in self._reader.view("holds")
            if row["until"] is not None
            and (
                row["scope"] in ("provider", "fleet") or (row["scope"] == "account" and row["probe_state"] == "running")
            )
        ]

    def _count_once(self, task: JsonObject) -> None:
        """Correct the totals if the agent reports the total of its session in each run."""
        from holdfast.api.tasks.usage import sum_usage

        total = sum_usage(task["agent"], [_run(row) for row in self._reader.view("runs", id=task["id"])])
        if total is not None:
            task["tokens"], task["cost_usd"] = total["tokens"], total["cost_usd"]

    def task(self, task_id: str) -> TaskDetails:
        """Return one task with its runs, its workspace and the tasks it needs, all from one moment."""
        with self._reader.snapshot():
            return self._task(task_id)

    @stored_data_errors
    def _task(self, task_id: str) -> TaskDetails:
        task = self._raw_state(task_id)
        settings = load_stored_json(task.pop("settings"), *_SETTINGS)
        del task["bound"]
        task["labels"] = settings["labels"]
        task["running_gate"] = read_running_gate(task["state"], settings.get("stages"), task["progress"])
        task["stage"] = read_stage(settings, task.pop("progress"))
        task["gate"] = load_stored_json(task["gate"]) if task["gate"] else None
        decode_truth(task)
        task["max_resumes"] = settings["max_resumes"]
        task["timeout"] = settings["timeout"]
        task["schedule"], task["fire_time"] = settings.get("schedule"), settings.get("fire_time")
        task["time_zone"] = settings.get("environment", {}).get("set", {}).get("TZ")  # of the agent, if it was set
        task.update(_rules(settings))
        task["budget"] = {"usd": None, "tokens": None, **settings.get("budget", {})}
        task["runs"] = [_run(row) for row in self._reader.view("runs", id=task_id)]
        task["messages"] = self._reader.view("messages", id=task_id)
        task["account"] = task["account"] or (task["runs"][-1]["account"] if task["runs"] else None)
        workspace = self._reader.view("workspace", id=task_id)
        task["workspace"] = workspace[0] if workspace else {"strategy": task["strategy"], "path": None, "state": None}
        task["needs"] = self._reader.view("needs", id=task_id)
        task["children"] = self._reader.view("children", id=task_id)
        task["waits_for"] = [str(row["id"]) for row in self._reader.view("in_its_checkout", id=task_id)]
        task["salvages"] = self.salvages(task_id)
        task["crashes"] = self.crashes(task_id=task_id)
        task["checkpoints"] = self.checkpoints(task_id)
        task["spends"] = self._reader.view("spends", id=task_id, generation=task["generation"])
        return cast("TaskDetails", task)

    def state(self, task_id: str) -> TaskStateRow:
        """Return the task's own row alone. The read is cheap enough for polling."""
        return cast("TaskStateRow", self._raw_state(task_id))

    def _raw_state(self, task_id: str) -> JsonObject:
        found = self._reader.view("task", id=task_id)
        if not found:
            raise NotFound(f"Task not found: {task_id}")
        return found[0]

    def health_rules(self, task_id: str) -> JsonObject:
        """Return the health settings of a task that differ from the default."""
        settings = load_stored_json(self.state(task_id)["settings"])
        return dict(settings.get("health", {}))

    def ahead_of(self, task_id: str) -> int:
        """Return how many queued tasks have their turn before this one."""
        return int(self._reader.view("ahead", id=task_id)[0]["count(*)"])

    def counts(self) -> dict[str, int]:
        return {str(row["state"]): int(row["n"]) for row in self._reader.view("counts")}

    def events(self, *, after: int = 0, task_id: str | None = None, limit: int = 1000) -> list[EventRow]:
        if task_id is None:
            return [_event(row) for row in self._reader.view("events", after=after, task=None, limit=limit)]
        return [_event(row) for row in self._reader.view("events_of", after=after, task=task_id, limit=limit)]

    def last_events(self, *, task_id: str | None = None, limit: int = 50) -> list[EventRow]:
        if task_id is None:
            return [_event(row) for row in self._reader.view("last_events", task=None, limit=limit)]
        return [_event(row) for row in self._reader.view("last_events_of", task=task_id, limit=limit)]

    def last_seq(self) -> int:
        return int(self._reader.view("last_seq")[0]["seq"])

    def alerts(self, *, everything: bool = False) -> list[AlertRow]:
        return [alert_row(row) for row in self._reader.view("alerts", all=int(everything))]

    def open_alerts(self) -> tuple[int, str | None]:
        """Return how many alerts are open, and the worst level among them."""
        found = {str(row["level"]): int(row["n"]) for row in self._reader.view("open_alerts")}
        worst = next((level for level in ("critical", "warning", "info", "debug") if level in found), None)
        return sum(found.values()), worst

    def crashes(self, *, task_id: str | None = None, since: float = 0.0) -> list[CrashRow]:
        return [crash_row(row) for row in self._reader.view("crashes", task=task_id, since=since)]

    def alerts_about(self, task: TaskDetails) -> list[AlertRow]:
        """Return the open alerts of one task. An alert about its frozen run is returned even when acknowledged."""
        frozen = f"frozen:{task['runs'][-1]['id']}" if task["state"] == "running" and task["runs"] else None
        return [
            alert
            for alert in self.alerts(everything=True)
            if alert["task"] == task["id"] and (alert["acked_at"] is None or alert["key"] == frozen)
        ]

    def workspaces(self, *, everything: bool = False) -> list[WorkspaceRow]:
        return cast("list[WorkspaceRow]", self._reader.view("workspaces", all=int(everything)))

    def salvages(self, task_id: str | None = None) -> list[SalvageRow]:
        return cast("list[SalvageRow]", [_with_details(row) for row in self._reader.view("salvages", task=task_id)])

    def checkpoints(self, task_id: str) -> list[CheckpointRow]:
        rows = [_with_details(row) for row in self._reader.view("checkpoints", task=task_id)]
        return cast("list[CheckpointRow]", rows)

    def repos(self) -> list[RepoRow]:
        return cast("list[RepoRow]", self._reader.view("repos"))

    def pending_requests(self, task_id: str | None = None) -> list[RequestRow]:
        return cast("list[RequestRow]", self._reader.view("pending_requests", task=task_id))

    def request(self, request_id: int) -> RequestRow:
        return cast("RequestRow", self._reader.view("request", id=request_id)[0])

    def worker_states(self) -> list[WorkerStateRow]:
        return cast("list[WorkerStateRow]", self._reader.view("workers"))

    def spent_budgets(self) -> list[SpentBudgetRow]:
        return cast("list[SpentBudgetRow]", self._reader.view("spent_budgets"))

    def unmet_needs(self, task_id: str) -> list[UnmetNeed]:
        """Return the tasks that have to complete before this one, directly or through others."""
        return cast("list[UnmetNeed]", self._reader.view("unmet_needs", id=task_id))

    def view(self, name: str, **parameters: Any) -> list[JsonObject]:
        """Return raw rows of one view of the store (queries/views.sql)."""
        return self._reader.view(name, **parameters)

    def data_version(self) -> int:
        return self._reader.data_version()

    def is_current(self) -> bool:
        """False if the store was replaced, removed or upgraded since it was opened."""
        return self._reader.is_current()

    def close(self) -> None:
        self._reader.close()

    def run_directory(self, run_id: str) -> str:
        return os.path.join(self.home, "runs", run_id)

    def supervisor(self) -> SupervisorRow | None:
        """Return the living supervisor's row, or None. Boot id, pid and start time identify its process."""
        hosts = self._reader.view("host")
        if not hosts or not _is_alive(hosts[0]):
            return None
        return cast("SupervisorRow", hosts[0])

    def wait_gone(self, host: SupervisorRow, deadline: float) -> None:
        """Wait until the process of a supervisor that has stopped is gone too."""
        while _is_alive(host) and time.monotonic() < deadline:
            time.sleep(0.01)


def _count_shared(one: str, other: str) -> int:
    """Return the length of the common prefix."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (left, right) in enumerate(pairs) if left != right), min(len(one), len(other)))


def _no_task(word: str) -> str:
    if not word:
        return "Task not found: the id is empty; `holdfast ps --all` lists all tasks."
    return f"Task not found: {word if len(word) <= 80 else word[:79] + '…'}"


def _rules(settings: JsonObject) -> JsonObject:
    """Return a task's health rules and limits as they were resolved. None means: switched off, or no limit."""
    from dataclasses import asdict

    from holdfast.core.task_settings import HealthRules, RunLimits, rules_from

    health = asdict(rules_from(HealthRules, settings.get("health", {}))) | {
        "adaptive_floor": settings.get("adaptive_floor")
    }
    return {
        "grace": settings["grace"],
        "orphan_grace": settings["orphan_grace"],
        "health": {name: None if value == math.inf else value for name, value in health.items()},
        "limits": asdict(rules_from(RunLimits, settings.get("limits", {}))),
    }


@stored_data_errors
def _run(row: JsonObject) -> RunRow:
    """Decode a raw row, and add what the agent reported: the claimed result and the newest progress."""
    claim, reports = row.pop("claim"), row.pop("reports")
    row["usage"] = load_stored_json(row["usage"]) if row["usage"] else None
    kept = load_stored_json(claim) if claim else {}
    row["claim"] = {key: kept[key] for key in ("kind", "message", "at")} if claim else None
    row["progress"] = load_stored_json(reports)["progress"] if reports else None
    row["refused"] = load_stored_json(row["refused"]) if row["refused"] else None
    return cast("RunRow", row)


def _event(row: JsonObject) -> EventRow:
    return cast("EventRow", {**row, "data": load_stored_json(row["data"], shape=dict)})


def alert_row(row: JsonObject) -> AlertRow:
    return cast("AlertRow", {**row, "details": load_stored_json(row["details"], shape=dict)})


def crash_row(row: JsonObject) -> CrashRow:
    row["claim_released"], row["restarted"] = bool(row["claim_released"]), bool(row["restarted"])
    return cast("CrashRow", row)


def _with_details(row: JsonObject) -> JsonObject:
    row["details"] = load_stored_json(row["details"], shape=dict)
    row["partial"] = bool(row["partial"])
    if "taken_up" in row:
        row["taken_up"] = bool(row["taken_up"])
    return row


def _is_alive(host: Mapping[str, Any]) -> bool:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            if file.read().strip() != host["boot_id"]:
                return False
        with open(f"/proc/{host['pid']}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
    except OSError:
        return False
    return fields[0] != b"Z" and int(fields[19]) == host["start_ticks"]


POLL_INTERVAL = 0.05


def poll_events(
    queries: Queries, *, after: int, task_id: str | None = None, follow: bool = True
) -> Iterator[list[EventRow] | None]:
    """Yield batches of new events in order. None: nothing happened, so the caller sleeps for `POLL_INTERVAL`.

    Events are found by polling the version counter of the database, never by watching its files. Without `follow`, the
    iterator ends after the last event.
    """
    version = -1
    while True:
        seen = queries.data_version()
        if seen != version:
            version = seen
            events = queries.events(after=after, task_id=task_id)
            if events:
                after = int(events[-1]["seq"])
                version = -1 if len(events) == 1000 or not follow else version
                yield events
                continue
        if not follow:
            return
        yield None


def follow_events(queries: Queries, *, after: int, task_id: str | None = None) -> Iterator[list[EventRow]]:
    """Yield batches of new events in order, without end. An empty batch means that nothing happened for a moment."""
    for events in poll_events(queries, after=after, task_id=task_id):
        yield events or []
        if not events:
            time.sleep(POLL_INTERVAL)
