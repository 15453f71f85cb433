"""Agent × scenario → outcome and time to verdict, measured with the real CLI against the stub."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.agents_cache import pinned_version
from tests.fleet import wait_until
from tests.live.stage import PATIENCE, Stage, seconds

from holdfast.agents.common.cli_agent import CliAgent
from holdfast.agents.registry import AGENTS
from holdfast.api.commands import Commands
from holdfast.base.errors import HoldfastError
from holdfast.core.runs.outcome import Outcome

MEASURED = Path(__file__).with_name("measured")  # one file per agent; docs/agents.md is made of them
STUCK_AFTER, STARTUP = 25.0, 60.0  # health.stuck_after, health.startup_timeout
SLACK = 30.0  # the grace of a kill (5 s), the watchdog's own pace, and the start of a CLI on a busy machine
LOST = "unknown-session"
ROWS = (
    "ok",
    "tool",
    "401",
    "429",
    "429-long",
    "usage-limit",
    "credit",
    "500",
    "529",
    "context-too-long",
    "refused",
    "reset",
    "hang",
    "hang-stream",
    "cut-stream",
    "cut-early",
    "empty-stream",
    "html",
    LOST,
)

O = Outcome  # noqa: E741  # the table is read by columns
Cell = Outcome | tuple[Outcome, ...]
AS_IT_IS: dict[str, Cell] = {
    "ok": O.COMPLETED,
    "tool": O.COMPLETED,
    "401": O.AUTH,
    "429": O.RATE_LIMITED,
    "429-long": O.RATE_LIMITED,
    "usage-limit": O.USAGE_LIMITED,
    "credit": O.BILLING,
    "500": O.OVERLOADED,
    "529": O.OVERLOADED,
    "context-too-long": O.CONTEXT_LIMIT,
    "refused": O.NETWORK,
    "reset": O.NETWORK,
    "hang": O.STUCK,
    "hang-stream": O.STUCK,
    "cut-stream": O.NETWORK,
    "cut-early": O.NETWORK,
    "empty-stream": O.NETWORK,
    "html": O.NETWORK,
    LOST: O.SESSION_LOST,
}
BROKEN_STREAMS: dict[str, Cell] = dict.fromkeys(("cut-stream", "cut-early", "empty-stream"), O.COMPLETED)
# Written by hand, from what each scenario is; never from what was measured. What differs is a CLI's own way:
EXPECTED: dict[str, dict[str, Cell]] = {
    "claude": {**AS_IT_IS, **BROKEN_STREAMS},  # it asks again, without a stream, and is answered
    "codex": AS_IT_IS,
    "gemini": AS_IT_IS,
    "opencode": AS_IT_IS,
    "qwen": {**AS_IT_IS, "429-long": O.STUCK},  # it sleeps the hour out without a word
    "copilot": AS_IT_IS,
    # it has no sessions, and asks without a stream
    "aider": {**{row: cell for row, cell in AS_IT_IS.items() if row != LOST}, **BROKEN_STREAMS},
}


def patience(name: str) -> float:
    """`health.stuck_after` for this agent: some try again for a while without a word."""
    adapter = AGENTS[name]
    return STUCK_AFTER + (adapter.longest_quiet_retry if isinstance(adapter, CliAgent) else 0.0)


def measure(on: Stage) -> dict[str, dict[str, Any]]:
    """Every row, two at a time: outcome, seconds from the start of the run to its verdict, and the reason."""
    on.settle(
        *(row for row in ROWS if row != LOST),
        "once",
        health__stuck_after=f"{patience(on.name):g}s",
        health__retry_patience=f"{STUCK_AFTER:g}s",
        health__startup_timeout=f"{STARTUP:g}s",
    )
    on.fleet.up("--agents", 2)
    pending: dict[str, tuple[str, int]] = {}  # row → its task, and which of the task's runs
    if LOST in EXPECTED[on.name]:
        pending[LOST] = (lost := on.add("once"), 1)
        on.wait_for_file(lost, "once.txt")
        assert on.forget_sessions(lost) > 0
        on.kill_all_of(lost)
        # Alone: it makes its files again, and others that start meanwhile would be disturbed.
        wait_until(lambda: _verdict(on, lost, 1), "the run of the lost session has its verdict")
    pending |= {row: (on.add(row), 0) for row in EXPECTED[on.name] if row != LOST}
    found: dict[str, dict[str, Any]] = {}

    def all_ended() -> bool:
        for row, (task, index) in list(pending.items()):
            if (cell := _verdict(on, task, index)) is not None:
                found[row] = cell
                print(f"{on.name} {row}: {cell['outcome']} after {cell['seconds']} s ({cell['reason']})", flush=True)
                del pending[row]
        time.sleep(0.2)  # every look reads all the tasks
        return not pending

    wait_until(all_ended, "every row has its verdict", PATIENCE + len(ROWS) * (patience(on.name) + SLACK))
    return {row: found[row] for row in EXPECTED[on.name]}


def _verdict(on: Stage, task: str, index: int) -> dict[str, Any] | None:
    """What became of that run of the task. What the policy makes of it afterwards is no part of the table."""
    runs = on.fleet.show(task)["runs"]
    if len(runs) <= index or runs[index]["state"] not in ("ended", "settled"):
        return None
    run = runs[index]
    with on.fleet.as_its_user(), contextlib.suppress(HoldfastError):  # it may be over by itself
        Commands(str(on.fleet.home)).cancel(task, "its row is measured")
    return {"outcome": run["outcome"], "seconds": round(seconds(run), 1), "reason": run["reason"]}


def problems(name: str, found: dict[str, dict[str, Any]]) -> list[str]:
    """Where the measured table is not as it should be."""
    wrong = []
    for row, cell in found.items():
        expected = EXPECTED[name][row]
        if cell["outcome"] not in (expected if isinstance(expected, tuple) else (expected,)):
            wrong.append(f"{row}: {cell['outcome']}, not {expected} ({cell['reason']})")
        if cell["seconds"] > patience(name) + SLACK:
            wrong.append(f"{row}: took {cell['seconds']} s, its stuck threshold is {patience(name)} s")
    return wrong


def keep(name: str, found: dict[str, dict[str, Any]]) -> None:
    MEASURED.mkdir(exist_ok=True)
    kept = {
        "version": pinned_version(name),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.system()}, {platform.machine()}",
        "stuck_after": patience(name),
        "rows": {row: {"outcome": cell["outcome"], "seconds": cell["seconds"]} for row, cell in found.items()},
    }
    (MEASURED / f"{name}.json").write_text(json.dumps(kept, indent=1) + "\n")
