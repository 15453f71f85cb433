"""Named workers: their states, why a task waits for one, and starting and stopping them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast import config
from holdfast.api.outcome import ActionOutcome, NoSupervisor, no_supervisor
from holdfast.api.queries import Queries, crash_row
from holdfast.base import clock
from holdfast.base.errors import NotFound

if TYPE_CHECKING:  # `add` and `why` import this module, and mostly there are no workers
    from holdfast.api.fleet.models import CrashRow, WorkerRow, WorkerStateRow
    from holdfast.base.instant import Instant
    from holdfast.core.dispatch.workers import Worker, WorkerRecord
    from holdfast.core.runs.retry_budgets import RetryLimits
    from holdfast.store.port.transaction import Transaction

NEW = "it starts when a supervisor next reads the settings"
_PARTICIPLES = {"start": "started", "stop": "stopped", "restart": "restarted"}


def list_workers(home: str) -> list[WorkerRow]:
    return workers_of(Queries(home))


def workers_of(queries: Queries) -> list[WorkerRow]:
    """Return every worker of the settings, and those outside the settings that have a task or are not retired.

    Also return workers that a supervisor still has from earlier settings.
    """
    from holdfast.base.instant import Instant
    from holdfast.config.retry_budgets import retry_limits_from_settings, workers_from_settings

    settings = config.load_valid_values()
    known = {str(row["name"]): row for row in queries.worker_states()}
    staff, limits = workers_from_settings(settings), retry_limits_from_settings(settings)
    crashes: dict[str, list[Instant]] = {}
    for row in queries.view("crashes_of_staff"):
        crashes.setdefault(row.pop("worker"), []).append(Instant(**row))

    def made(name: str, worker: Worker | None) -> WorkerRow:
        return _row(name, worker, known.get(name), crashes.get(name, []), limits)

    found = [made(worker.name, worker) for worker in staff.workers]
    leaving = [
        name
        for name, row in known.items()
        if staff.get(name) is None and (row["task"] is not None or row["state"] != "retired")
    ]
    return found + [made(name, None) for name in leaving]


def crashes_of(queries: Queries, name: str, limit: int) -> list[CrashRow]:
    """Return the newest crashes of one worker's agents, the newest first. Crashes that no longer count are included."""
    return [crash_row(row) for row in queries.view("crashes_of_worker", worker=name, limit=limit)]


def steer_worker(home: str, action: str, name: str, *, at_once: bool = False) -> ActionOutcome:
    """Record that an operator wants the worker to `start`, `stop` or `restart`.

    The data of the outcome is the worker's row afterwards, and `supervisor`, which is true if one is running.
    """
    settings = config.load_valid_values()
    names = [worker.name for worker in settings.workers]
    if name not in names and not _is_known(home, name):
        raise NotFound(_unknown(name, names))

    from holdfast.api.commands import Commands, operator_name  # imported here: readers have to start fast

    def record(tx: Transaction) -> WorkerRecord:
        if action == "stop":
            return tx.workers.stop(name, operator_name(), clock.now(), at_once=at_once)
        return (
            tx.workers.start(name, operator_name(), clock.now())
            if action == "start"
            else tx.workers.restart(name, operator_name(), clock.now())
        )

    commands = Commands(home)
    had = _one(home, name)["task"]
    commands.write(record)
    # A supervisor may have given the worker another task since. The operator means the task that it had.
    row = _one(home, name)
    row["task"], row["supervisor"] = had, Queries(home).supervisor() is not None
    return ActionOutcome(
        message=_describe_change(row, action, at_once=at_once),
        note="" if row["supervisor"] else no_supervisor(NoSupervisor.TAKES_EFFECT_LATER),
        data=row,
    )


def _describe_change(row: WorkerRow, action: str, *, at_once: bool) -> str:
    """Return what the change means for the worker and for its current task."""
    name, task = row["name"], row["task"]
    changed = f"Worker {name} is {_PARTICIPLES[action]}."
    if task is None:
        return changed
    if action != "stop":
        return f"{changed} It continues with its task {task}."
    if at_once:
        return f"{changed} The agent of its task {task} is being ended. The task stays queued, and others may take it."
    return f"{changed} It finishes its task {task} first. To end that task now: `holdfast worker stop {name} --now`."


def _is_known(home: str, name: str) -> bool:
    """True if the store has the worker. While the file has a mistake, a supervisor keeps the earlier workers."""
    from holdfast.base.errors import Unavailable

    try:
        return any(row["name"] == name and row["state"] != "retired" for row in Queries(home).worker_states())
    except Unavailable:
        return False


def _one(home: str, name: str) -> WorkerRow:
    row = next((row for row in list_workers(home) if row["name"] == name), None)
    if row is None:
        raise NotFound(f"Worker '{name}' is not in {config.user_file_path()} any more.")
    return row


def _row(
    name: str, worker: Worker | None, known: WorkerStateRow | None, crashes: list[Instant], limits: RetryLimits
) -> WorkerRow:
    from holdfast.core.dispatch.terms import Lane
    from holdfast.core.dispatch.workers import count_crashes_in_window

    lane, now = worker.lane if worker else Lane(name=name), clock.now()
    return {
        "name": name,
        "state": _state(known),
        "task": known["task"] if known else None,
        "agent": lane.agent,
        "account": lane.account,
        "labels": dict(lane.labels),
        "restart": worker.restart if worker else None,
        "recent_crashes": count_crashes_in_window(crashes, limits.crash_window, now),
        "crash_limit": limits.crash,
        "crash_window": limits.crash_window,
        "goes_on_at": _goes_on_at(known, crashes, limits.crash_window, now),
        "reason": known["reason"] if known else NEW,
        "since": known["since"] if known else None,
        "configured": worker is not None,
    }


def _goes_on_at(known: WorkerStateRow | None, crashes: list[Instant], window: float, now: Instant) -> float | None:
    """Return the wall time at which a benched worker continues by itself. None: the worker is not benched."""
    from holdfast.core.dispatch.workers import is_bench_over

    if known is None or known["state"] != "benched":
        return None
    left = 0.0 if is_bench_over(crashes, window, now) else window - now.since(crashes[-1])
    return float(round(now.wall + max(0.0, left)))  # whole seconds: clocks drift


def _state(known: WorkerStateRow | None) -> str:
    """Return one word for what a worker does. A worker that was asked to stop finishes its task first."""
    if known is None:
        return "new"
    at_work = known["task"] is not None
    if known["state"] == "ready":
        return "working" if at_work else "waiting"
    return "stopping" if at_work else str(known["state"])


def _unknown(name: str, known: list[str]) -> str:
    import difflib

    if not known:
        return f"There is no worker '{name}': none is in {config.user_file_path()}. More: `holdfast help workers`."
    close = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean '{close[0]}'?" if close else ""
    return f"There is no worker '{name}'.{hint} Known: {', '.join(known)}."
