"""docs/agents.md: what is known of each agent's CLI, from its adapter, and what was measured (tests/live/measured)."""

from __future__ import annotations

import importlib
import json
import shlex
from collections.abc import Collection
from pathlib import Path
from typing import Any

from holdfast.agents.common.cli_agent import CliAgent
from holdfast.agents.port import HostFacts, Permission, WorkOrder
from holdfast.agents.registry import AGENTS

ROOT = Path(__file__).resolve().parent.parent
MEASURED = ROOT / "tests" / "live" / "measured"
SCENARIOS = {
    "ok": "an answer",
    "tool": "a tool call that writes a file",
    "401": "401: the key is not valid",
    "429": "429, Retry-After 2 s",
    "429-long": "429, Retry-After 1 h",
    "usage-limit": "the plan's usage limit",
    "credit": "no credit",
    "500": "500",
    "529": "529 (or 503): overloaded",
    "context-too-long": "the context is too long",
    "refused": "connection refused",
    "reset": "connection reset",
    "hang": "no answer, not even headers",
    "hang-stream": "the stream stalls",
    "cut-stream": "the stream is cut",
    "cut-early": "the stream is cut before its first word",
    "empty-stream": "the stream ends before its first word",
    "html": "a proxy's page: 200, text/html",
    "unknown-session": "the session to continue is gone",
}
INTRO = """# Agents

`holdfast run --agent NAME` drives these CLIs. Each must be in PATH (or `NAME.binary` names its path) and logged in:
`holdfast doctor` checks both. A success needs three things together: the CLI's own report of success, exit code 0,
and no error after that report. The model's text is never evidence, and neither is the exit code alone. A success
without an answer of a model (no words, tokens, turns or tool calls) is a failure: some CLIs read a prompt that begins
with `/` as a command of their own.

You choose the permissions (`permissions.mode`, `--permission`). In `read`, the agent changes nothing. In `edit`, it
changes files of the workspace, and everything for which its CLI would ask is refused, because nobody is there to
answer. In `full`, it may do whatever you may do. These modes limit the model. They do not limit programs that the
repository itself names to a CLI (hooks, MCP servers): some CLIs start such programs in every mode, as the sections
below show. So let agents work only in repositories that you trust.

How to add an agent: [howto/add-an-agent.md](howto/add-an-agent.md); several logins:
[howto/accounts.md](howto/accounts.md); rehearsals without a bill: [stub-llm.md](stub-llm.md)."""
MEASURING = """## The outcome of each failure

Measured by `make test-agents` with the real CLIs against the [stub](stub-llm.md): the outcome of the run, and the
seconds from its start to the verdict. Two CLIs ran at a time, and the machine did other work too.
`health.stuck_after` was {stuck} s (300 s unless you set it): a hang lasts that long after the CLI's first output. The
expected outcomes are written by hand in tests/live/table.py, and a test compares them with the measured ones. Gemini
was measured with `general.maxAttempts` 2 in its settings, as `holdfast rehearse` writes them. With your own settings
(10 attempts unless you set it) Gemini retries until `health.retry_patience` (90 s) is over, so its rows 429, 500,
529, refused and reset take that long."""


def page() -> str:
    agents = [agent for agent in AGENTS.values() if isinstance(agent, CliAgent)]
    parts = [INTRO, _capabilities(agents), _measured([agent.name for agent in agents])]
    return "\n\n".join([*parts, *(_section(agent) for agent in agents)])


def _capabilities(agents: list[CliAgent]) -> str:
    head = ("agent", "CLI", "tested", "session id", "tokens", "money", "reset time", "--budget-usd", "--max-turns")
    rows = [
        (
            f"`{agent.name}`",
            agent.title,
            " to ".join(dict.fromkeys(agent.tested)),
            "ours" if agent.capabilities.preassigned_session else "its own" if agent.capabilities.resume else "none",
            *(
                "yes" if has else "–"
                for has in (
                    agent.capabilities.tokens,
                    agent.capabilities.cost,
                    agent.capabilities.reset_time,
                    agent.capabilities.budget,
                    agent.capabilities.turns,
                )
            ),
        )
        for agent in agents
    ]
    return _table(head, rows)


def _measured(names: list[str]) -> str:
    found: dict[str, dict[str, Any]] = {
        name: json.loads((MEASURED / f"{name}.json").read_text())
        for name in names
        if (MEASURED / f"{name}.json").exists()
    }
    if not found:
        return ""
    rows = [
        (words, *(_cell(measured["rows"].get(scenario)) for measured in found.values()))
        for scenario, words in SCENARIOS.items()
    ]
    stuck = min(one["stuck_after"] for one in found.values())
    longer = [f"{name} {one['stuck_after']:g} s" for name, one in found.items() if one["stuck_after"] > stuck]
    note = (
        f" `health.stuck_after` was longer for CLIs whose own retries cannot be switched off: {', '.join(longer)}."
        if longer
        else ""
    )
    where = "; ".join(
        f"{name} {one['version']}, {one['date']}{_later(one['rows'].values())}, {one['machine']}"
        for name, one in found.items()
    )
    return "\n\n".join(
        [MEASURING.format(stuck=f"{stuck:g}") + note, _table(("scenario", *found), rows), f"Measured: {where}."]
    )


def _later(rows: Collection[dict[str, Any]]) -> str:
    """Return the day on which some rows were measured after the others."""
    days = sorted({row["date"] for row in rows if "date" in row})
    return "".join(f" ({sum(row.get('date') == day for row in rows)} rows {day})" for day in days)


def _cell(cell: dict[str, Any] | None) -> str:
    return "–" if cell is None else f"{cell['outcome']}, {cell['seconds']:g} s"


def _section(agent: CliAgent) -> str:
    notes = (importlib.import_module(f"holdfast.agents.{agent.name}").__doc__ or "").strip()
    lines = []
    for mode in Permission:
        order = WorkOrder(
            prompt="",
            run_number=1,
            session_id=None,
            options={"permission": mode},
            new_session="SESSION",
            surroundings=HostFacts(is_sandboxed=mode is Permission.FULL),
            files_directory="RUN/files",
        )
        command = agent.build(order)
        lines.append(f"# {mode}\n{shlex.join(command.argv)}")
    login = agent.login
    known = [f"`{name}`" for name in login.variables]
    places = [f"`{file.replace('{config}', login.config_directory)}`" for file in login.files]
    logged_in = f"Logged in: {' or '.join([*places, *known])}; else `{login.command}`." if login.command else ""
    started = "```sh\n" + "\n".join(lines) + "\n```"
    return "\n\n".join(part for part in (f"## {agent.title}", notes, started, logged_in) if part)


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
