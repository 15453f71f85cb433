"""What a task's runs took, as their agents told it, and how a person goes on in the session of one."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.api.format import took
from holdfast.base.stored_json import understood

if TYPE_CHECKING:  # `show` and `why` of other agents have to start fast
    from holdfast.agents.common.cli_agent import CliAgent
    from holdfast.agents.port import Account
    from holdfast.api.queries import Queries

Row = dict[str, Any]
PATIENCE = 0.5  # seconds of reading in a run's output, however much there is
_SILENT = ("command", "scripted")  # they tell nothing of sessions and tokens: nothing is imported for their sake
_COUNTS = ("input", "output", "cached", "reasoning")


def complete(queries: Queries, task: Row) -> None:
    """Into the task as `show` prints it: what an open run took so far, the sum of all, and how to go on by hand."""
    if task["agent"] not in _SILENT and task["runs"] and task["runs"][-1]["outcome"] is None:
        _read_live(queries, task, task["runs"][-1])
    task["usage"] = sum_of(task["agent"], task["runs"])
    task["by_hand"] = by_hand(task)


def _read_live(queries: Queries, task: Row, run: Row) -> None:
    """What its row will say when it has ended, read from its output. Bounded: a part of it is better than none."""
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
    cost = told.pop("cost_usd")
    del told["session_id"]
    run["usage"] = {name: value for name, value in told.items() if value} | {"is_whole": is_whole}
    run["tokens"], run["cost_usd"] = told["input"] + told["output"], cost


def tells_of_sessions(agent: str) -> bool:
    """Whether its tokens are those of the whole session, earlier runs of it included."""
    adapter = _cli(agent)
    return adapter is not None and adapter.capabilities.session_usage


def _cli(agent: str) -> CliAgent | None:
    """The adapter of a real CLI; None for agents that tell nothing of sessions and tokens."""
    if agent in _SILENT:
        return None
    from holdfast.agents.common.cli_agent import CliAgent
    from holdfast.api.tasks.transcript import adapter_of

    adapter = adapter_of(agent)
    return adapter if isinstance(adapter, CliAgent) else None


@understood
def sum_of(agent: str, runs: Sequence[Row]) -> Row | None:
    """Of all runs; None: nothing was told. Where a CLI tells the sum of its session, its newest word counts."""
    told = [run for run in runs if run["usage"] is not None]
    by_session = bool(told) and tells_of_sessions(agent)
    counted: dict[str, Row] = {}
    for run in told:
        counted[(run["session_id"] if by_session else None) or run["id"]] = run
    if not counted:
        return None
    costs = [run["cost_usd"] for run in counted.values() if run["cost_usd"] is not None]
    turns = [run["usage"]["turns"] for run in counted.values() if run["usage"].get("turns")]
    found: Row = {name: sum(run["usage"].get(name, 0) for run in counted.values()) for name in _COUNTS}
    found["tokens"] = found["input"] + found["output"]
    found["cost_usd"] = sum(costs) if costs else None
    found["turns"] = sum(turns) if turns else None
    return found


def by_hand(task: Row) -> Row | None:
    """The command with which a person goes on in the newest session, and why not to (yet). None: there is no way."""
    sessions = [run for run in task["runs"] if run["session_id"]]
    adapter = _cli(task["agent"]) if sessions else None
    if adapter is None or not adapter.by_hand:
        return None
    session, path = str(sessions[-1]["session_id"]), task["workspace"]["path"]
    if task["strategy"] == "container":
        return None  # its session lies in the container
    account, also = _account(task["agent"], sessions[-1]["account"])
    words = adapter.continue_by_hand(session, account)
    is_there = path is not None and os.path.isdir(path)
    command = f"cd {shlex.quote(path if is_there else task['repo'])} && {shlex.join(words)}"
    return {"session_id": session, "command": command, "warning": _warning(task, session, is_there, also)}


def _warning(task: Row, session: str, is_there: bool, also: str | None) -> str | None:
    state, stop = task["state"], f"irst `holdfast cancel {task['id']}`"
    # Lost, full, or of an account that is gone. A task learns its session when the run ends that began it.
    known = (task["session_id"], *([task["runs"][-1]["session_id"]] if state == "running" else ()))
    is_left = session not in known
    if state == "running" and is_left:
        return f"its agent is at work in the same directory, in a new session: two at once would spoil it. F{stop}"
    if state == "running":
        return f"its agent is at work in this session: two at once would spoil it. F{stop}"
    if state in ("queued", "paused"):
        how = "by itself, in a new session" if is_left else "in this session by itself"
        return f"Holdfast will go on {how}. If you do, f{stop}"
    if not is_there:
        return "its workspace is gone, and not every CLI finds a session from another directory"
    return also


def _account(agent: str, name: str | None) -> tuple[Account, str | None]:
    """Without its secrets, which are not for the screen; and what a person's shell needs besides."""
    from holdfast import config
    from holdfast.agents.port import DEFAULT_ACCOUNT, USERS_OWN, Account

    if name is None:
        return USERS_OWN, None
    table = config.best_effort().accounts.get(agent, {}).get(name)
    if table is None:
        return USERS_OWN, None if name == DEFAULT_ACCOUNT else f"its account '{name}' is not in your config any more"
    more = [*table.env, *(["base_url"] if table.base_url else [])]
    also = f"its account '{name}' also sets {', '.join(more)}, which your shell has to do too" if more else None
    return Account(name=name, config_dir=table.config_dir, base_url=table.base_url), also


# -- in words ----------------------------------------------------------------------------------------------------------


def details(run: Row) -> list[str]:
    """Of one run, below its line in `show`."""
    words = [f"session {run['session_id']}"] if run["session_id"] else []
    words += [f"account {run['account']}"] if run["account"] else []
    if run["usage"] is not None:
        told = took({**run["usage"], "cost_usd": run["cost_usd"]})
        words += [f"{told}{_so_far(run)}"] if told else []
    return ["; ".join(words)] if words else []


def usage_lines(task: Row) -> list[str]:
    """For `why`."""
    told = took(task["usage"]) if task["usage"] is not None else ""
    runs = f" in {len(task['runs'])} runs" if len(task["runs"]) > 1 else ""
    return [*([f"It took {told}{runs}{_so_far(task['runs'][-1])}."] if told else []), *by_hand_lines(task)]


def by_hand_lines(task: Row) -> list[str]:
    found = task["by_hand"]
    if found is None:
        return []
    if found["warning"] is None:
        return [f"Continue it by hand: {found['command']}"]
    return [f"To continue it by hand: {found['command']}", f"  But {found['warning']}."]


def _so_far(run: Row) -> str:
    if run["outcome"] is not None or run["usage"] is None:
        return ""
    return " so far" if run["usage"]["is_whole"] else " in what was read of its output"
