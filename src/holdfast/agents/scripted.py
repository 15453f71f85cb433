"""The scripted agent, which plays a scenario file: for rehearsals and for exact tests (docs/scripted-agent.md)."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from holdfast.agents.port import NO_EDITS, AgentCommand, Capabilities, EndedRun, HostFacts, Stream, WorkOrder
from holdfast.core.agents.events import (
    AgentEvent,
    AgentFailure,
    AgentResult,
    AgentText,
    AgentTrouble,
    LimitNotice,
    RawLine,
    SessionStarted,
    ToolFinished,
    ToolStarted,
    Usage,
)
from holdfast.core.agents.usage import UsageCounter
from holdfast.core.health.signs import Sign, SignKind, signs_from_events
from holdfast.core.runs.outcome import Outcome, Verdict
from holdfast.rehearsal import scripted_player

PLAYER = os.path.abspath(scripted_player.__file__)
_LIMITS = {
    "rate": Outcome.RATE_LIMITED,
    "usage": Outcome.USAGE_LIMITED,
    "context": Outcome.CONTEXT_LIMIT,
    "auth": Outcome.AUTH,
    "billing": Outcome.BILLING,
    "overloaded": Outcome.OVERLOADED,
    "network": Outcome.NETWORK,
}
_TROUBLES = {
    "rate": AgentTrouble.RATE_LIMIT,
    "usage": AgentTrouble.USAGE_LIMIT,
    "context": AgentTrouble.CONTEXT,
    "auth": AgentTrouble.AUTH,
    "billing": AgentTrouble.BILLING,
    "overloaded": AgentTrouble.OVERLOADED,
    "network": AgentTrouble.NETWORK,
}
_MARKED = tuple(f'{{"holdfast": "{event}"' for event in ("tool", "event", "usage", "near_limit"))


class ScriptedAgent:
    """The adapter for the player of scenario files."""

    name = "scripted"
    capabilities = Capabilities(cost=True, reset_time=True)
    reads_events = True
    reads_errors = False
    result_files: Sequence[str] = ()
    login_variables: Sequence[str] = ()
    longest_quiet_answer = 0.0
    litter: Sequence[str] = ()
    own_edits: Mapping[str, str] = NO_EDITS

    def provider(self, options: Mapping[str, object]) -> str:
        """Return the provider that the scenario names, or an empty text."""
        steps = options.get("steps")
        named = [step["with"] for step in steps if step["do"] == "provider"] if isinstance(steps, list | tuple) else []
        return str(named[0]) if named else ""

    def problem(self, options: Mapping[str, object], _surroundings: HostFacts) -> str | None:
        return None if "steps" in options else "the scripted agent needs a scenario: give one with --scenario FILE"

    def build(self, order: WorkOrder) -> AgentCommand:
        told = order.hand_over or (order.reply if order.session_id is not None else "")
        script = {
            "prompt": told or order.prompt,
            "run": order.run_number,
            "session": order.session_id,
            "steps": order.options["steps"],
        }
        return AgentCommand(
            argv=[sys.executable, "-I", "-S", "-X", "utf8", PLAYER],
            stdin=json.dumps(script),
            told=told,
        )

    def judge(self, ended: EndedRun) -> Verdict:
        """Return the verdict. Success needs both a `result` event with success and exit code 0."""
        session: str | None = None
        result: str | None = None
        limit: dict[str, object] | None = None
        spending = UsageCounter()
        for event in _events(ended.output):
            if event["holdfast"] == "session":
                session = str(event["id"])
            elif event["holdfast"] == "result":
                result = str(event["status"])
            elif event["holdfast"] == "limit":
                limit = event
            elif event["holdfast"] == "usage":
                spending.add(_usage(event))
        usage = spending.total if spending.is_told else None
        if limit is not None:
            return replace(_limited(limit, session, ended.error_tail), usage=usage)
        if result == "success" and ended.end.code == 0:
            return Verdict(
                outcome=Outcome.COMPLETED,
                reason="the scenario reported success",
                session_id=session,
                error_tail=ended.error_tail,
                usage=usage,
            )
        code = ended.end.code
        reason = f"exit code {code}" if code else "it ended without reporting success"
        return Verdict(
            outcome=Outcome.FAILED,
            reason=f"the scenario failed: {reason}",
            session_id=session,
            error_tail=ended.error_tail,
            usage=usage,
        )

    def parse(self, line: str, _stream: Stream) -> Sequence[AgentEvent]:
        for event in _events([line]):
            return (_parse_event(event, line),)
        return (AgentText(text=line),)

    def signs(self, line: str, _stream: Stream) -> Sequence[Sign]:
        """Return the signs of a line. New text is progress, an `event` is not, and tools open and close."""
        if line.startswith(_MARKED):
            for event in _events([line]):
                if event["holdfast"] == "near_limit":
                    return signs_from_events([_parse_event(event, line)])
                if event["holdfast"] == "tool":
                    return (_tool_sign(event),)
                if event["holdfast"] == "usage":
                    return (Sign(kind=SignKind.USAGE, usage=_usage(event)),)
                return (Sign(kind=SignKind.STEP, content=str(event.get("name"))),)
        return (Sign(kind=SignKind.PROGRESS, content=line, told=line),) if line.strip() else ()


def _parse_event(event: Mapping[str, object], line: str) -> AgentEvent:
    match event["holdfast"]:
        case "tool":
            return _tool_event(event)
        case "text":
            return AgentText(text=str(event.get("text")))
        case "session":
            return SessionStarted(id=str(event.get("id")))
        case "result":
            return AgentResult(ok=event.get("status") == "success")
        case "usage":
            return _usage(event)
        case "near_limit":
            used, until = event.get("used"), event.get("until")
            return LimitNotice(
                rejected=False,
                scope="scenario",
                utilization=float(used) if isinstance(used, int | float) else None,
                reset=float(until) if isinstance(until, int | float) else None,
            )
        case "limit":
            until = event.get("until")
            return AgentFailure(
                trouble=_TROUBLES.get(str(event.get("kind")), AgentTrouble.RATE_LIMIT),
                message=f"a {event.get('kind')} limit, as the scenario wants it",
                reset=float(until) if isinstance(until, int | float) else None,
            )
    return RawLine(text=line)


def _usage(event: Mapping[str, object]) -> Usage:
    cost = event.get("cost_usd")
    return Usage(
        input=_count(event.get("input")),
        output=_count(event.get("output")),
        cost_usd=float(cost) if isinstance(cost, int | float) and not isinstance(cost, bool) else None,
        is_total=event.get("total") is True,
    )


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _tool_event(event: Mapping[str, object]) -> AgentEvent:
    name, key = str(event.get("name")), str(event.get("id"))
    if event.get("closed"):
        return ToolFinished(id=key, name=name)
    return ToolStarted(id=key, name=name, input=str(event.get("input")))


def _tool_sign(event: Mapping[str, object]) -> Sign:
    deadline = event.get("deadline")
    return Sign(
        kind=SignKind.TOOL_CLOSED if event.get("closed") else SignKind.TOOL_OPENED,
        tool=str(event.get("id")),
        name=str(event.get("name")),
        content=f"{event.get('name')} {event.get('input')}",
        told="" if event.get("closed") else f"{event.get('name')} {event.get('input') or ''}",
        deadline=float(deadline) if isinstance(deadline, int | float) else None,
    )


def _limited(limit: Mapping[str, object], session: str | None, error_tail: str) -> Verdict:
    until = limit.get("until")
    return Verdict(
        outcome=_LIMITS.get(str(limit.get("kind")), Outcome.RATE_LIMITED),
        reason=f"the agent reported a {limit.get('kind')} limit",
        resets_at=float(until) if isinstance(until, int | float) else None,
        session_id=session,
        error_tail=error_tail,
        has_answer=limit.get("answered") is not False,
    )


def _events(output: Iterable[str]) -> Iterable[dict[str, object]]:
    """Yield the JSON lines that the player writes for Holdfast. All other lines are text of the agent."""
    for line in output:
        if line.startswith('{"holdfast":'):
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                continue  # a kill cut the line off
            if isinstance(event, dict):
                yield event


SCRIPTED = ScriptedAgent()
