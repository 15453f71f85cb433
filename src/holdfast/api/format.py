"""Words and numbers that interfaces show: durations, money, explanations."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime, tzinfo
from typing import Any

from holdfast.api.outcome import no_supervisor
from holdfast.base import clock
from holdfast.base.errors import UsageError
from holdfast.base.text import one_line
from holdfast.base.units import parse_duration, parse_size, show_duration

Row = dict[str, Any]


def duration(seconds: float) -> str:
    return show_duration(seconds)


def moment(at: float | None) -> str | None:
    """A wall time for people, in their zone."""
    return None if at is None else time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(at))


def money(dollars: float) -> str:
    return f"${dollars:.4f}" if 0 < dollars < 1 else f"${dollars:.2f}"


def took(total: Row) -> str:
    """Tokens, money, turns and model in words; empty when nothing is known."""
    words = []
    if total.get("input") or total.get("output"):
        cached = f" ({_count(total['cached'])} cached)" if total.get("cached") else ""
        words.append(f"{_count(total.get('input', 0))} tokens in{cached}, {_count(total.get('output', 0))} out")
    if total.get("cost_usd") is not None:
        words.append(money(total["cost_usd"]))
    if total.get("turns"):
        words.append(f"{total['turns']} turn{'s' if total['turns'] > 1 else ''}")
    if total.get("model"):
        words.append(one_line(total["model"], 60))
    return ", ".join(words)


def _count(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def explain(task: Row, ahead: int, supervisor: Row | None, pending: list[Row]) -> list[str]:
    """Why the task is where it is, what happens next, and what to type."""
    lines = _EXPLAIN[task["state"]](task, ahead)
    if task.get("schedule"):
        name = task["schedule"]
        lines.append(f"The schedule {name} added it, for {task['fire_time']}: `holdfast schedule show {name}`.")
    if task["state"] == "queued" and supervisor and supervisor.get("held"):
        lines.append(f"Nothing new starts for now: {supervisor['held']} (`pressure.*` of the settings).")
    for request in pending:
        lines.append(f"{request['by']} asked to {request['kind']} it; that is being carried out.")
    if supervisor is None and task["state"] in ("queued", "running", "paused"):
        lines.append(no_supervisor())
    return lines


def _queued(task: Row, ahead: int) -> list[str]:
    waiting = [need["id"] for need in task["needs"] if need["state"] != "completed"]
    lines = [f"It waits: {task['reason']}."]
    if waiting:
        lines.append(f"It starts after {', '.join(waiting)} completed.")
    if task["waits_for"]:
        lines.append(
            f"It works in the checkout {task['repo']} itself, where {', '.join(task['waits_for'])} is at work: "
            "one at a time."
        )
    if task["not_before"] is not None and task["not_before"] > time.time():
        lines.append(f"It is not taken before {moment(task['not_before'])}.")
    if not waiting and ahead:
        lines.append(f"{ahead} queued task(s) are ahead of it (higher priority, or older).")
    return lines


def _running(task: Row, _ahead: int) -> list[str]:
    runs = task["runs"]
    if not runs:
        return ["It was claimed; its workspace is being made."]
    run = runs[-1]
    by = f" by worker {task['worker']}" if task["worker"] else ""
    if run["state"] == "stopping":
        lines = [f"Run {run['id']} was told to stop ({run['stop_why']}); its processes are being ended."]
        return [*lines, *_reported(run)]
    since = duration(time.time() - run["started_at"]) if run["started_at"] else "not yet"
    return [
        f"Run {run['id']} (number {run['number']}{by}) is {run['state']}, pid {run['pid']}, since {since}. "
        f"It is ended after {_timeout(task, run)}.",
        *_reported(run),
        f"See its output: `holdfast logs {task['id']} -f`.",
    ]


def _timeout(task: Row, run: Row) -> str:
    own = run["timeout"]
    return duration(task["timeout"]) if own is None else f"{duration(own)} ({run['timeout_why']})"


def _reported(run: Row) -> list[str]:
    """What its agent said of itself."""
    lines = []
    claim, progress = run["claim"], run["progress"]
    if progress is not None:
        words = [f"{progress['percent']:g} %"] if progress["percent"] is not None else []
        words += [progress["message"]] if progress["message"] else []
        lines.append(f"Its agent reported {duration(max(0.0, time.time() - progress['at']))} ago: {': '.join(words)}.")
    if claim is not None:
        message = f" ({claim['message']})" if claim["message"] else ""
        lines.append(
            f"Its agent reported `{claim['kind']}`{message} {duration(max(0.0, time.time() - claim['at']))} ago; "
            "if it does not exit by itself, it is ended."
        )
    return lines


def _paused(task: Row, _ahead: int) -> list[str]:
    lines = [f"It is paused ({task['pause_reason']}): {task['reason']}."]
    if task["stage"] is not None and task["stage"]["awaits_approval"]:
        from holdfast.api.tasks.stages import how_to_approve

        return [*lines, how_to_approve(task["id"])]
    if task["resume_after"] is not None:
        wait = max(0.0, task["resume_after"] - time.time())
        if goes_on_by_itself(task):
            lines.append(f"It resumes by itself at {moment(task['resume_after'])} (in {duration(wait)}).")
        else:
            lines.append(
                f"Its limit ends at {moment(task['resume_after'])} (in {duration(wait)}); it does not resume by "
                "itself, because `resume.auto` is false."
            )
    else:
        lines.append("It does not resume by itself.")
    if task.get("kept_back"):
        return [*lines, task["kept_back"], f"Cancel it with `holdfast cancel {task['id']}`."]
    lines.append(
        f"Resume it now with `holdfast resume {task['id']}`, or cancel it with `holdfast cancel {task['id']}`."
    )
    return lines


def goes_on_by_itself(task: Row) -> bool:
    """Whether a paused task that is due some time needs nobody then."""
    if task["resume_after"] is None:
        return False
    from holdfast import config

    return task["pause_reason"] == "operator" or bool(config.best_effort()["resume.auto"])


def _completed(task: Row, _ahead: int) -> list[str]:
    lines = [f"It completed: {task['reason']}."]
    if task["branch"]:
        lines.append(f"Its work is on branch {task['branch']}; see it with `holdfast diff {task['id']}`.")
    return [*lines, *_saved(task)]


def _saved(task: Row) -> list[str]:
    if not task["salvages"]:
        return []
    return [f"Uncommitted work was saved: `holdfast salvage restore {task['id']} --branch NAME` brings it back."]


def _failed(task: Row, _ahead: int) -> list[str]:
    word = str(task["failure_reason"] or task["outcome"])
    lines = [f"It failed ({word}): {str(task['reason']).removeprefix(f'{word}: ')}."]
    errors = task["runs"][-1]["error_tail"] if task["runs"] else None
    if errors:
        lines.append("The last words on its standard error:\n" + errors.rstrip())
    lines += _saved(task)
    lines.append(f"Try again with `holdfast retry {task['id']}` (or --fresh, from the base).")
    return lines


def _cancelled(task: Row, _ahead: int) -> list[str]:
    lines = [f"It was cancelled: {task['reason']}."]
    lines += _saved(task)
    lines.append(f"Queue it again with `holdfast retry {task['id']}`.")
    return lines


_EXPLAIN = {
    "queued": _queued,
    "running": _running,
    "paused": _paused,
    "completed": _completed,
    "failed": _failed,
    "cancelled": _cancelled,
}


def duration_of(option: str, text: str | None) -> float | None:
    """A duration given on the command line."""
    if text is None:
        return None
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}.") from error


def size_of(option: str, text: str | None) -> int | None:
    """A size given on the command line."""
    if text is None:
        return None
    try:
        size = parse_size(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}.") from error
    if size == 0:
        raise UsageError(f"{option}: 0 is no limit; leave the option out instead.")
    return size


def patience_of(option: str, text: str | None) -> float | None:
    """A duration given on the command line, or `off`: never."""
    return math.inf if text == "off" else duration_of(option, text)


_WEEK = 6 * 86400.0
_YEAR = 300 * 86400.0


def in_words(moment: float, zone: str) -> str:
    """`in 3h 12m, Tue 02:00 Europe/Berlin`; `5m 2s ago, Mon 23:55 Europe/Berlin`."""
    left = moment - clock.now().wall
    away = f"in {show_duration(left)}" if left > 0 else f"{show_duration(-left)} ago"
    try:
        local = datetime.fromtimestamp(moment, _zone(zone))
    except (ValueError, OverflowError, OSError):  # beyond the calendar
        return away
    day = "%a" if abs(left) < _WEEK else "%a %d %b" if abs(left) < _YEAR else "%a %d %b %Y"
    time = "%H:%M" if local.second == 0 else "%H:%M:%S"
    return f"{away}, {local.strftime(f'{day} {time}')} {zone}"


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):  # the machine's database has changed since
        return UTC
