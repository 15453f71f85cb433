"""Usage of a task's runs, as their agents reported it, and how a person continues a session by hand."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from holdfast.api.format import took
from holdfast.base.stored_json import stored_data_errors

if TYPE_CHECKING:  # `show` and `why` of other agents have to start fast
    from holdfast.agents.common.cli_agent import CliAgent
    from holdfast.agents.port import Account
    from holdfast.api.queries import Queries
    from holdfast.api.tasks.models import ByHand, RunRow, TaskDetails, UsageRow

PATIENCE = 0.5  # seconds of reading in a run's output, however much there is
_SILENT = ("command", "scripted")  # they report neither sessions nor tokens, so nothing is imported for them


def complete(queries: Queries, task: TaskDetails) -> None:
    """Add to a task: the usage of its open run so far, the sum of all runs, and how to continue by hand."""
    if task["agent"] not in _SILENT and task["runs"] and task["runs"][-1]["outcome"] is None:
        _read_live(queries, task, task["runs"][-1])
    task["usage"] = sum_usage(task["agent"], task["runs"])
    task["by_hand"] = find_manual_command(task)


def _read_live(queries: Queries, task: TaskDetails, run: RunRow) -> None:
    """Add the usage of an open run, read from its output. Reading stops after `PATIENCE` seconds, and the usage is then
    marked as incomplete."""
    from holdfast.api.tasks.transcript import Transcript, totals

    transcript = Transcript(queries.run_directory(run["id"]), task["agent"], run, task["time_zone"])
    until = time.monotonic() + PATIENCE
    is_whole = True
    for _line in transcript.measure():
        if time.monotonic() > until:
            is_whole = False
            break
    told = totals(transcript.digest)
    run["session_id"] = transcript.digest.session_id or run["session_id"]
    if told is None:
        return
    run["tokens"], run["cost_usd"] = told["input"] + told["output"], told["cost_usd"]
    kept = {name: value for name, value in told.items() if value and name not in ("cost_usd", "session_id")}
    run["usage"] = cast("UsageRow", kept | {"is_whole": is_whole})


def reports_session_totals(agent: str) -> bool:
    """True if an agent reports the tokens of the whole session, earlier runs included."""
    adapter = _cli(agent)
    return adapter is not None and adapter.capabilities.session_usage


def _cli(agent: str) -> CliAgent | None:
    """Return the adapter of a real CLI; None for agents that report neither sessions nor tokens."""
    if agent in _SILENT:
        return None
    from holdfast.agents.common.cli_agent import CliAgent
    from holdfast.api.tasks.transcript import adapter_of

    adapter = adapter_of(agent)
    return adapter if isinstance(adapter, CliAgent) else None


@stored_data_errors
def sum_usage(agent: str, runs: Sequence[RunRow]) -> UsageRow | None:
    """Return the usage of all runs. None: no run reported any. Of several totals of one session, only the newest
    counts."""
    by_session = any(run["usage"] is not None for run in runs) and reports_session_totals(agent)
    counted: dict[str, tuple[UsageRow, float | None]] = {}
    for run in runs:
        if run["usage"] is not None:
            counted[(run["session_id"] if by_session else None) or run["id"]] = run["usage"], run["cost_usd"]
    if not counted:
        return None
    usages = [usage for usage, _cost in counted.values()]
    costs = [cost for _usage, cost in counted.values() if cost is not None]
    turns = [number for usage in usages if (number := usage.get("turns"))]
    found: UsageRow = {
        "input": sum(usage.get("input", 0) for usage in usages),
        "output": sum(usage.get("output", 0) for usage in usages),
        "cached": sum(usage.get("cached", 0) for usage in usages),
        "reasoning": sum(usage.get("reasoning", 0) for usage in usages),
    }
    found["tokens"] = found["input"] + found["output"]
    found["cost_usd"] = sum(costs) if costs else None
    found["turns"] = sum(turns) if turns else None
    return found


def find_manual_command(task: TaskDetails) -> ByHand | None:
    """Return the command that continues the newest session, and any reason not to use it (yet). None: there is no such
    command.

    A session is found only from the directory where it began. Without its workspace, `holdfast send` continues it.
    """
    sessions = [run for run in task["runs"] if run["session_id"]]
    adapter = _cli(task["agent"]) if sessions else None
    if adapter is None or not adapter.by_hand:
        return None
    session, path = str(sessions[-1]["session_id"]), task["workspace"]["path"]
    if task["strategy"] == "container" or path is None or not os.path.isdir(path):
        return None  # its session is in the container, or cannot be found
    account, also = _account(task["agent"], sessions[-1]["account"])
    words = adapter.continue_by_hand(session, account)
    command = f"cd {shlex.quote(path)} && {shlex.join(words)}"
    return {"session_id": session, "command": command, "warning": _warning(task, session, also)}


def _warning(task: TaskDetails, session: str, also: str | None) -> str | None:
    state, stop = task["state"], f"irst `holdfast cancel {task['id']}`"
    # The session may have been left because it was lost, was full, or belonged to an account that is gone.
    # A task's session is recorded only when the run that began the session ends.
    known = (task["session_id"], *([task["runs"][-1]["session_id"]] if state == "running" else ()))
    is_left = session not in known
    if state == "running" and is_left:
        return (
            f"its agent is working in the same directory, in a new session. Two agents at once would conflict. F{stop}"
        )
    if state == "running":
        return f"its agent is working in this session. Two agents at once would conflict. F{stop}"
    if state in ("queued", "paused"):
        how = "by itself, in a new session" if is_left else "in this session by itself"
        return f"Holdfast will continue {how}. If you do, f{stop}"
    return also


def _account(agent: str, name: str | None) -> tuple[Account, str | None]:
    """Return an account without its secrets, and a clause about what else a person's shell has to set, or None."""
    from holdfast import config
    from holdfast.agents.port import DEFAULT_ACCOUNT, OWN_LOGIN, Account

    if name is None:
        return OWN_LOGIN, None
    table = config.load_valid_values().accounts.get(agent, {}).get(name)
    if table is None:
        return OWN_LOGIN, None if name == DEFAULT_ACCOUNT else f"its account '{name}' is not in your config any more"
    more = [*table.env, *(["base_url"] if table.base_url else [])]
    also = f"its account '{name}' also sets {', '.join(more)}, which your shell has to set too" if more else None
    return Account(name=name, config_dir=table.config_dir, base_url=table.base_url), also


# -- in words ----------------------------------------------------------------------------------------------------------


def run_details(run: RunRow) -> list[str]:
    """Return session, account and usage of one run, for `show`."""
    words = [f"session {run['session_id']}"] if run["session_id"] else []
    words += [f"account {run['account']}"] if run["account"] else []
    if run["usage"] is not None:
        told = took(cast("UsageRow", {**run["usage"], "cost_usd": run["cost_usd"]}))
        words += [f"{told}{_so_far(run)}"] if told else []
    return ["; ".join(words)] if words else []


def usage_lines(task: TaskDetails) -> list[str]:
    """Return sentences about usage, and how to continue by hand, for `why`."""
    told = took(task["usage"]) if task["usage"] is not None else ""
    runs = f" in {len(task['runs'])} runs" if len(task["runs"]) > 1 else ""
    return [*([f"It took {told}{runs}{_so_far(task['runs'][-1])}."] if told else []), *manual_command_lines(task)]


def manual_command_lines(task: TaskDetails) -> list[str]:
    found = task["by_hand"]
    if found is None:
        return []
    if found["warning"] is None:
        return [f"Continue it by hand: {found['command']}"]
    return [f"To continue it by hand: {found['command']}", f"  But {found['warning']}."]


def _so_far(run: RunRow) -> str:
    if run["outcome"] is not None or run["usage"] is None:
        return ""
    return " so far" if run["usage"]["is_whole"] else " in the part of its output that was read"
