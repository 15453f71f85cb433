"""Named workers: their states, why a task waits for one, and starting and stopping them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from holdfast import config
from holdfast.api.outcome import ActionOutcome, NoSupervisor, no_supervisor
from holdfast.api.queries import Queries
from holdfast.base import clock
from holdfast.base.errors import NotFound
from holdfast.base.stored_json import recorded

if TYPE_CHECKING:  # `add` and `why` ask here, and mostly there are no workers
    from holdfast.base.instant import Instant
    from holdfast.core.dispatch.terms import Lane
    from holdfast.core.dispatch.workers import Worker, WorkerRecord
    from holdfast.core.runs.retry_budgets import Limits
    from holdfast.store.port.transaction import Transaction

Row = dict[str, Any]
NEW = "it starts with the next look of a supervisor"
_PARTICIPLES = {"start": "started", "stop": "stopped", "restart": "restarted"}


def workers(home: str) -> list[Row]:
    return workers_of(Queries(home))


def workers_of(queries: Queries) -> list[Row]:
    """Every worker of the settings, and those that are there without: at work still, or because a supervisor goes on
    with its settings of before (a mistake in the file, say)."""
    from holdfast.base.instant import Instant
    from holdfast.config.retry_budgets import limits_of, staff_of

    settings = config.best_effort()
    known = {str(row["name"]): row for row in queries.view("workers")}
    staff, limits = staff_of(settings), limits_of(settings)
    crashes: dict[str, list[Instant]] = {}
    for row in queries.view("crashes_of_staff"):
        crashes.setdefault(row.pop("worker"), []).append(Instant(**row))

    def made(name: str, worker: Worker | None) -> Row:
        return _row(name, worker, known.get(name), crashes.get(name, []), limits)

    found = [made(worker.name, worker) for worker in staff.workers]
    leaving = [
        name
        for name, row in known.items()
        if staff.get(name) is None and (row["task"] is not None or row["state"] != "retired")
    ]
    return found + [made(name, None) for name in leaving]


def crashes_of(queries: Queries, name: str, limit: int) -> list[Row]:
    """The newest crashes of one worker's agents, the newest first, those that count no more included."""
    return queries.view("crashes_of_worker", worker=name, limit=limit)


def steer_worker(home: str, action: str, name: str, *, at_once: bool = False) -> ActionOutcome:
    """Record that an operator wants the worker to `start`, `stop` or `restart`.

    The data of the outcome is the worker's row afterwards, and `supervisor`: true if one is running.
    """
    settings = config.best_effort()
    names = [worker.name for worker in settings.workers]
    if name not in names and not _is_known(home, name):
        raise NotFound(_unknown(name, names))

    from holdfast.api.commands import Commands, who  # imported here: readers have to start fast

    def record(tx: Transaction) -> WorkerRecord:
        if action == "stop":
            return tx.workers.stop(name, who(), clock.now(), at_once=at_once)
        return (
            tx.workers.start(name, who(), clock.now())
            if action == "start"
            else tx.workers.restart(name, who(), clock.now())
        )

    commands = Commands(home)
    had = _one(home, name)["task"]
    commands.write(record)
    # A supervisor may have given the worker another task since. The operator means the task that it had.
    row = _one(home, name) | {"task": had, "supervisor": Queries(home).supervisor() is not None}
    return ActionOutcome(
        message=_describe_change(row, action, at_once=at_once),
        note="" if row["supervisor"] else no_supervisor(NoSupervisor.TAKES_EFFECT_LATER),
        data=row,
    )


def _describe_change(row: Row, action: str, *, at_once: bool) -> str:
    """Return what the change means for the worker and for its present task."""
    name, task = row["name"], row["task"]
    changed = f"Worker {name} is {_PARTICIPLES[action]}."
    if task is None:
        return changed
    if action != "stop":
        return f"{changed} It goes on with its task {task}."
    if at_once:
        return (
            f"{changed} The agent of its task {task} is told to end; the task stays queued, and any other may take it."
        )
    return f"{changed} It finishes its task {task} first. To end that now: `holdfast worker stop {name} --now`."


def _is_known(home: str, name: str) -> bool:
    """To the store: while the file has a mistake, a supervisor goes on with those of before."""
    from holdfast.base.errors import Unavailable

    try:
        return any(row["name"] == name and row["state"] != "retired" for row in Queries(home).view("workers"))
    except Unavailable:
        return False


def _one(home: str, name: str) -> Row:
    row = next((row for row in workers(home) if row["name"] == name), None)
    if row is None:
        raise NotFound(f"Worker '{name}' is not in {config.user_file()} any more.")
    return row


def waits_for_worker(queries: Queries, task: Row) -> str | None:
    """Why no lane takes a queued task, if that is so, and what to type."""
    if task["state"] != "queued":
        return None
    if task["worker"] is not None:
        row = next((row for row in queries.view("workers") if row["name"] == task["worker"]), None)
        how = f"is {row['state']} ({row['reason']})" if row else "is not there"
        return (
            f"It waits for worker {task['worker']}, which {how}, because `crash.release_claims` is false. "
            f"`holdfast worker restart {task['worker']}` lets that go on; `holdfast worker stop {task['worker']}` "
            "leaves it to any other."
        )
    settings = config.best_effort()
    if settings["agents"] > 0 or not settings.workers:
        return None
    states = {str(row["name"]): row for row in queries.view("workers")}
    matching = [worker.name for worker in _staff(settings) if _takes(worker.lane, task)]
    if not matching:
        return (
            "No worker takes such a task (agent, account and labels have to match), and `agents` is 0, so that nobody "
            "else does: `holdfast worker list` shows what each takes."
        )
    idle = [name for name in matching if name in states and states[name]["state"] not in ("ready", "retired")]
    if len(idle) < len(matching):
        return f"It waits for a worker: {', '.join(matching)}."
    words = ", ".join(f"{name} is {states[name]['state']}" for name in idle)
    return f"It waits for a worker, and {words}: `holdfast worker start {idle[0]}`."


def nobody_comes(queries: Queries) -> Callable[[Row], bool]:
    """Whether nothing but a person can let a queued task start, because of the workers; the settings are read once."""
    settings = config.best_effort()
    staff = _staff(settings)

    def answer(task: Row) -> bool:
        if task["state"] != "queued" or not (staff or task["worker"]):
            return False
        stopped = {str(row["name"]) for row in queries.view("workers") if row["state"] == "stopped"}
        if task["worker"] is not None:
            return task["worker"] in stopped
        return settings["agents"] == 0 and not any(
            worker.name not in stopped and _takes(worker.lane, task) for worker in staff
        )

    return answer


def _staff(settings: config.Config) -> tuple[Worker, ...]:
    if not settings.workers:
        return ()
    from holdfast.config.retry_budgets import staff_of

    return staff_of(settings).workers


def _takes(lane: Lane, task: Row) -> bool:
    """As the claim has it (queries/tasks.sql, `on_terms`)."""
    labels: Mapping[str, str] = task["labels"] if "labels" in task else recorded(task["settings"])["labels"]
    return (
        (lane.agent is None or lane.agent == task["agent"])
        and (lane.account is None or task["account"] is None or task["account"] == lane.account)
        and all(labels.get(key) == value for key, value in lane.labels.items())
    )


def _row(name: str, worker: Worker | None, known: Row | None, crashes: list[Instant], limits: Limits) -> Row:
    from holdfast.core.dispatch.terms import Lane
    from holdfast.core.dispatch.workers import recent

    lane, now = worker.lane if worker else Lane(name=name), clock.now()
    return {
        "name": name,
        "state": _state(known),
        "task": known["task"] if known else None,
        "agent": lane.agent,
        "account": lane.account,
        "labels": dict(lane.labels),
        "restart": worker.restart if worker else None,
        "recent_crashes": recent(crashes, limits.crash_window, now),
        "crash_limit": limits.crash,
        "crash_window": limits.crash_window,
        "goes_on_at": _goes_on_at(known, crashes, limits.crash_window, now),
        "reason": known["reason"] if known else NEW,
        "since": known["since"] if known else None,
        "configured": worker is not None,
    }


def _goes_on_at(known: Row | None, crashes: list[Instant], window: float, now: Instant) -> float | None:
    """When a benched worker goes on by itself, in wall time; None: it is not benched."""
    from holdfast.core.dispatch.workers import bench_is_over

    if known is None or known["state"] != "benched":
        return None
    left = 0.0 if bench_is_over(crashes, window, now) else window - now.since(crashes[-1])
    return float(round(now.wall + max(0.0, left)))  # whole seconds: clocks drift


def _state(known: Row | None) -> str:
    """What it does, in one word: a worker that is told to stop finishes its task first."""
    if known is None:
        return "new"
    at_work = known["task"] is not None
    if known["state"] == "ready":
        return "working" if at_work else "waiting"
    return "stopping" if at_work else str(known["state"])


def _unknown(name: str, known: list[str]) -> str:
    import difflib

    if not known:
        return f"There is no worker '{name}': none is in {config.user_file()}. More: docs/howto/workers.md."
    close = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean '{close[0]}'?" if close else ""
    return f"There is no worker '{name}'.{hint} Known: {', '.join(known)}."
