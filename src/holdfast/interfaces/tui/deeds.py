"""What actions do: api commands, and the words to tell afterwards. No widgets here."""

from __future__ import annotations

from typing import Any

from holdfast.api.commands import Commands

Row = dict[str, Any]


def pause(home: str, task: Row) -> str:
    from holdfast.api.pausing import pause

    asked = pause(home, task["id"], "from holdfast top")
    return f"Paused {task['id']}." if asked is None else f"Asked the supervisor to pause {task['id']}."


def resume(home: str, task: Row) -> str:
    return Commands(home, create=False).resume(task["id"])


def cancel(home: str, task: Row) -> str:
    asked = Commands(home, create=False).cancel(task["id"], "from holdfast top")
    return f"Cancelled {task['id']}." if asked is None else f"Asked the supervisor to cancel {task['id']}."


def retry(home: str, task: Row) -> str:
    Commands(home, create=False).retry(task["id"], fresh=False)
    return f"Queued {task['id']} again, where it stopped."


def ack(home: str, alert: Row) -> str:
    Commands(home, create=False).ack_alert(alert["id"], "from holdfast top")
    return f"Acknowledged alert {alert['id']}."


def restart_worker(home: str, worker: Row) -> str:
    from holdfast.api.workers import steer

    steer(home, "restart", worker["name"])
    return f"Asked worker {worker['name']} to start again."


def start_supervisor(home: str, _subject: Row) -> str:
    from holdfast.api.daemon import start_detached

    pid = start_detached(home, agents=None, idle_exit=None)
    return f"Started a supervisor (pid {pid}); it stays until `holdfast down`."
