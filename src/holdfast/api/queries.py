"""Looking: plain dicts, stable names (docs/reference/json.md). Imports little; `ps` is measured."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from holdfast.api.tasks.stages import standing
from holdfast.base.errors import Conflict, NotFound
from holdfast.base.stored_json import recorded, understood
from holdfast.store.open import open_reader

Row = dict[str, Any]
_SETTINGS = ("labels", "max_resumes", "timeout", "grace", "orphan_grace")


class Queries:
    """Everything there is to see of one home."""

    def __init__(self, home: str) -> None:
        self.home = home
        self._reader = open_reader(home)

    def resolve(self, prefix: str) -> str:
        """The full id of the one task whose id starts with `prefix`."""
        ids = [str(row["id"]) for row in self._reader.view("ids_like", prefix=prefix)] if prefix.isalnum() else []
        if prefix in ids:
            return prefix
        if not ids:
            raise NotFound(_no_task(prefix))
        if len(ids) > 1:
            raise Conflict(f"'{prefix}' may be any of {', '.join(ids)}: write more of the id.")
        return ids[0]

    def completions(self, prefix: str, states: list[str] | None) -> list[Row]:
        """id, state and prompt of tasks whose id begins so; the newest first, a hundred at most."""
        return self._reader.view("completions", prefix=prefix, states=json.dumps(states) if states else None)

    def tasks(self, *, everything: bool, recent: float = 0.0) -> list[Row]:
        rows = self._reader.view("tasks", all=int(everything), recent=recent)
        held = self._held() if any(row["state"] == "queued" for row in rows) else None
        shut = self.shut_words() if any(row["state"] == "queued" for row in rows) else None
        spent = self.spent_words() if any(row["state"] == "queued" for row in rows) else None
        kept_back = self.hold_words() if any(row["state"] == "queued" for row in rows) else None
        opened, worst = self.open_alerts()
        own = {row["task"]: int(row["n"]) for row in self._reader.view("alerts_by_task")} if opened else {}
        for row in rows:
            row["runs"], row["tokens"], row["cost_usd"] = recorded(row["runs"])
            if row["runs"] > 1 and row["tokens"] is not None:
                self._count_once(row)
            settings = recorded(row.pop("settings"), "labels")
            row["labels"] = settings["labels"]
            row["stage"] = standing(settings, row.pop("progress"))
            row["held"] = held if row["state"] == "queued" and (row["not_before"] or 0) <= time.time() else None
            row["alerts"] = {"own": own.get(row["id"], 0), "open": opened, "worst": worst}  # open: of the whole home
            bound = row.pop("bound")
            if shut is not None and row["state"] == "queued":
                row["held"] = row["held"] or shut(row["agent"], bound)
            if spent is not None and row["state"] == "queued":
                row["held"] = row["held"] or spent(row["labels"])
            if kept_back is not None and row["state"] == "queued":
                row["held"] = row["held"] or kept_back(row, bound, settings.get("provider"))
        return rows

    def spent_words(self) -> Callable[[Row], str | None] | None:
        """Which shared budget a task with these labels waits for. None: none is spent."""
        if not self._reader.view("spent_budgets"):
            return None
        from holdfast.api.tasks.spending import spent_words

        return spent_words(self)

    def hold_words(self) -> Callable[[Row, str | None, str | None], str | None] | None:
        """Why a task, bound to an account or free, of a provider, is held back. None: nothing is."""
        if not self._reader.view("holds"):
            return None
        from holdfast.api.fleet.dispatch import holds, of_task, words

        found = holds(self)

        def why(task: Row, bound: str | None, provider: str | None) -> str | None:
            row = of_task(found, task["agent"], bound, provider, task["id"])
            return None if row is None else words(row)

        return why

    def held_names(self) -> list[str]:
        """What is held back for a provider or an account, or after a mass death. Under an account that is only to be
        tried by the next task nothing waits."""
        return [
            f"{row['scope']}:{row['name']}"
            for row in self._reader.view("holds")
            if row["until"] is not None
            and (
                row["scope"] in ("provider", "fleet") or (row["scope"] == "account" and row["probe_state"] == "running")
            )
        ]

    def shut_words(self) -> Callable[[str, str | None], str | None] | None:
        """Why a task of an agent, bound to an account or free, waits for one. None: no account is shut."""
        if not self._reader.view("accounts"):
            return None
        from holdfast.api.fleet.accounts import held_words

        return held_words(self)

    def _count_once(self, task: Row) -> None:
        """Where an agent told the sum of its session in each run."""
        from holdfast.api.tasks.usage import sum_of

        total = sum_of(task["agent"], [_run(row) for row in self._reader.view("runs", id=task["id"])])
        if total is not None:
            task["tokens"], task["cost_usd"] = total["tokens"], total["cost_usd"]

    def _held(self) -> str | None:
        """Why the supervisor starts nothing new at the moment, if that is so."""
        running = self.supervisor()
        return None if running is None else running["held"]

    def task(self, task_id: str) -> Row:
        """One task with its runs, workspace, budgets and what it needs, all of one moment."""
        with self._reader.snapshot():
            return self._task(task_id)

    @understood
    def _task(self, task_id: str) -> Row:
        task = self.state(task_id)
        settings = recorded(task.pop("settings"), *_SETTINGS)
        del task["bound"]
        task["labels"] = settings["labels"]
        task["stage"] = standing(settings, task.pop("progress"))
        task["max_resumes"] = settings["max_resumes"]
        task["timeout"] = settings["timeout"]
        task["schedule"], task["fire_time"] = settings.get("schedule"), settings.get("fire_time")
        task["time_zone"] = settings.get("environment", {}).get("set", {}).get("TZ")  # of the agent, if it is not ours
        task.update(_rules(settings))
        task["budget"] = {"usd": None, "tokens": None, **settings.get("budget", {})}
        task["runs"] = [_run(row) for row in self._reader.view("runs", id=task_id)]
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
        return task

    def state(self, task_id: str) -> Row:
        """Only the task's own row: cheap enough to ask again and again."""
        found = self._reader.view("task", id=task_id)
        if not found:
            raise NotFound(f"Task not found: {task_id}")
        return found[0]

    def health_rules(self, task_id: str) -> Row:
        """What differs from the default, as it was resolved when the task was added."""
        settings = recorded(self.state(task_id)["settings"])
        return dict(settings.get("health", {}))

    def ahead_of(self, task_id: str) -> int:
        return int(self._reader.view("ahead", id=task_id)[0]["count(*)"])

    def counts(self) -> dict[str, int]:
        return {str(row["state"]): int(row["n"]) for row in self._reader.view("counts")}

    def events(self, *, after: int = 0, task_id: str | None = None, limit: int = 1000) -> list[Row]:
        if task_id is None:
            return [_event(row) for row in self._reader.view("events", after=after, task=None, limit=limit)]
        return [_event(row) for row in self._reader.view("events_of", after=after, task=task_id, limit=limit)]

    def last_events(self, *, task_id: str | None = None, limit: int = 50) -> list[Row]:
        if task_id is None:
            return [_event(row) for row in self._reader.view("last_events", task=None, limit=limit)]
        return [_event(row) for row in self._reader.view("last_events_of", task=task_id, limit=limit)]

    def last_seq(self) -> int:
        return int(self._reader.view("last_seq")[0]["seq"])

    def alerts(self, *, everything: bool = False) -> list[Row]:
        return [{**row, "details": recorded(row["details"], shape=dict)} for row in self._alerts(everything)]

    def _alerts(self, everything: bool) -> list[Row]:
        return self._reader.view("alerts", all=int(everything))

    def open_alerts(self) -> tuple[int, str | None]:
        """How many alerts are open, and how bad the worst of them is."""
        found = {str(row["level"]): int(row["n"]) for row in self._reader.view("open_alerts")}
        worst = next((level for level in ("critical", "warning", "info", "debug") if level in found), None)
        return sum(found.values()), worst

    def crashes(self, *, task_id: str | None = None, since: float = 0.0) -> list[Row]:
        rows = self._reader.view("crashes", task=task_id, since=since)
        for row in rows:
            row["claim_released"], row["restarted"] = bool(row["claim_released"]), bool(row["restarted"])
        return rows

    def alerts_about(self, task: Row) -> list[Row]:
        """Open alerts of one task. That its present run is frozen stays true when somebody has seen it."""
        frozen = f"frozen:{task['runs'][-1]['id']}" if task["state"] == "running" and task["runs"] else None
        return [
            alert
            for alert in self.alerts(everything=True)
            if alert["task"] == task["id"] and (alert["acked_at"] is None or alert["key"] == frozen)
        ]

    def workspaces(self, *, everything: bool = False) -> list[Row]:
        return self._reader.view("workspaces", all=int(everything))

    def salvages(self, task_id: str | None = None) -> list[Row]:
        rows = self._reader.view("salvages", task=task_id)
        for row in rows:
            row["details"] = recorded(row["details"], shape=dict)
            row["partial"] = bool(row["partial"])
        return rows

    def checkpoints(self, task_id: str) -> list[Row]:
        rows = self._reader.view("checkpoints", task=task_id)
        for row in rows:
            row["details"] = recorded(row["details"], shape=dict)
            row["partial"] = bool(row["partial"])
        return rows

    def repos(self) -> list[Row]:
        return self._reader.view("repos")

    def pending_requests(self, task_id: str | None = None) -> list[Row]:
        return self._reader.view("pending_requests", task=task_id)

    def request(self, request_id: int) -> Row:
        return self._reader.view("request", id=request_id)[0]

    def view(self, name: str, **parameters: Any) -> list[Row]:
        return self._reader.view(name, **parameters)

    def data_version(self) -> int:
        return self._reader.data_version()

    def is_current(self) -> bool:
        """For who keeps it open: False when the store was replaced, removed or upgraded meanwhile."""
        return self._reader.is_current()

    def close(self) -> None:
        self._reader.close()

    def run_directory(self, run_id: str) -> str:
        return os.path.join(self.home, "runs", run_id)

    def supervisor(self) -> Row | None:
        """The living supervisor's row, or None. Alive means: that very process, by boot, pid and start time."""
        hosts = self._reader.view("host")
        if not hosts or not _lives(hosts[0]):
            return None
        return hosts[0]

    def wait_gone(self, host: Row, deadline: float) -> None:
        """Until a supervisor that has signed off is gone as a process too."""
        while _lives(host) and time.monotonic() < deadline:
            time.sleep(0.01)


def _no_task(word: str) -> str:
    if not word:
        return "Task not found: the id is empty; `holdfast ps --all` lists them."
    return f"Task not found: {word if len(word) <= 80 else word[:79] + '…'}"


def _rules(settings: Row) -> Row:
    """A task's health rules and limits as they were resolved. None: switched off, or no limit."""
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


@understood
def _run(row: Row) -> Row:
    """With what its agent said of itself: the result that it claimed, and its newest progress."""
    claim, reports = row.pop("claim"), row.pop("reports")
    row["usage"] = recorded(row["usage"]) if row["usage"] else None
    kept = recorded(claim) if claim else {}
    row["claim"] = {key: kept[key] for key in ("kind", "message", "at")} if claim else None
    row["progress"] = recorded(reports)["progress"] if reports else None
    return row


def _event(row: Row) -> Row:
    return {**row, "data": recorded(row["data"], shape=dict)}


def _lives(host: Row) -> bool:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            if file.read().strip() != host["boot_id"]:
                return False
        with open(f"/proc/{host['pid']}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
    except OSError:
        return False
    return fields[0] != b"Z" and int(fields[19]) == host["start_ticks"]


LOOK_EVERY = 0.05


def follow(queries: Queries, *, after: int, task_id: str | None = None) -> Iterator[list[dict[str, Any]]]:
    """Batches of new events, in order, for ever; an empty batch each time nothing happened for a moment."""
    version = -1
    while True:
        seen = queries.data_version()
        if seen != version:
            version = seen
            events = queries.events(after=after, task_id=task_id)
            if events:
                after = int(events[-1]["seq"])
                version = -1 if len(events) == 1000 else version
                yield events
                continue
        yield []
        time.sleep(LOOK_EVERY)
