"""What actions do to workers, alerts, schedules and to what is held back; as deeds.py has it for tasks."""

from __future__ import annotations

from typing import Any

from holdfast.tui.actions.handlers import WHY, commands

Row = dict[str, Any]
LATER = " No supervisor is running: the wish is recorded, and holds from the next `holdfast up` on."
UNHEARD = " No supervisor is running, so nothing fires until `holdfast up`."


# -- workers -----------------------------------------------------------------------------------------------------------


def start_worker(home: str, worker: Row) -> str:
    return _steered(home, worker, "start", "started")


def stop_worker(home: str, worker: Row) -> str:
    return _steered(home, worker, "stop", "stopped")


def stop_worker_now(home: str, worker: Row) -> str:
    return _steered(home, worker, "stop", "stopped", at_once=True)


def restart_worker(home: str, worker: Row) -> str:
    return _steered(home, worker, "restart", "restarted")


def _steered(home: str, worker: Row, action: str, done: str, *, at_once: bool = False) -> str:
    from holdfast.api.fleet.workers import steer

    after = steer(home, action, worker["name"], at_once=at_once)
    words, task = f"Worker {after['name']} is {done}.", after["task"]
    if task is not None and at_once:
        words += f" The agent of its task {task} is told to end; the task stays queued, and any other may take it."
    elif task is not None and action == "stop":
        words += f" It finishes its task {task} first."
    elif task is not None:
        words += f" It goes on with its task {task}."
    return words if after["supervisor"] else words + LATER


# -- alerts ------------------------------------------------------------------------------------------------------------


def ack(home: str, alert: Row) -> str:
    commands(home).ack_alert(alert["id"], WHY)
    return f"Acknowledged alert {alert['id']}."


def ack_all(home: str, _alert: Row) -> str:
    done = commands(home).ack_all_alerts(WHY)
    return f"{len(done)} alerts acknowledged." if done else "No alert is open any more."


def mend(home: str, alert: Row) -> str:
    from holdfast.api.fleet.mending import mend

    return mend(home, alert)


# -- schedules ---------------------------------------------------------------------------------------------------------


def fire(home: str, schedule: Row) -> str:
    from holdfast.api.fleet.schedules import fire

    fired, is_heard = fire(home, _whole(home, schedule))
    then = "" if is_heard else " No supervisor is running: it waits in the queue for the next `holdfast up`."
    return f"{fired['task']} is queued by the schedule {fired['schedule']}; its times stay as they are.{then}"


def enable(home: str, schedule: Row) -> str:
    return _switched(home, schedule, on=True)


def disable(home: str, schedule: Row) -> str:
    return _switched(home, schedule, on=False)


def _switched(home: str, schedule: Row, *, on: bool) -> str:
    from holdfast.api.fleet.schedules import switch

    changed, is_heard = switch(home, _whole(home, schedule), on=on)
    word = "enabled" if on else "disabled"
    if not changed:
        return f"Schedule {schedule['name']} was {word} already."
    if on:
        return f"Schedule {schedule['name']} is enabled. It goes on from now." + ("" if is_heard else UNHEARD)
    return f"Schedule {schedule['name']} is disabled. Nothing of it fires until it is enabled."


def _whole(home: str, schedule: Row) -> Row:
    """As its file has it now: what is on screen may be older."""
    from holdfast.api.fleet.schedules import schedules
    from holdfast.base.errors import NotFound

    for row in schedules(home)[0]:
        if (row["repo"], row["name"]) == (schedule["repo"], schedule["name"]):
            return row
    raise NotFound(f"The schedule {schedule['name']} is not in its file any more.")


# -- what is held back -------------------------------------------------------------------------------------------------


def release(home: str, _nothing: Row) -> str:
    from holdfast.api.fleet.dispatch import release

    released, resumed = release(home, None)
    if not released:
        return "Nothing is held back."
    return f"Released: {', '.join(released)}." + (f" Resumed: {', '.join(resumed[:5])}." if resumed else "")


# -- the supervisor ----------------------------------------------------------------------------------------------------


def start_supervisor(home: str, _nothing: Row) -> str:
    from holdfast.api.home.daemon import start_detached

    pid = start_detached(home, agents=None, idle_exit=None)
    return f"Started a supervisor (pid {pid}); it stays until `holdfast down`."
