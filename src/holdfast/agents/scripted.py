"""The scripted agent: plays a scenario file. Users rehearse with it and tests are exact (docs/scripted-agent.md)."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping

from holdfast.agents.port import Command, WorkOrder
from holdfast.core.outcome import Outcome, ProcessEnd, Verdict
from holdfast.core.signs import Sign, SignKind
from holdfast.testing import player

PLAYER = os.path.abspath(player.__file__)
_LIMITS = {
    "rate": Outcome.RATE_LIMITED,
    "usage": Outcome.USAGE_LIMITED,
    "context": Outcome.CONTEXT_LIMIT,
    "auth": Outcome.AUTH,
    "billing": Outcome.BILLING,
    "overloaded": Outcome.OVERLOADED,
    "network": Outcome.NETWORK,
}


class ScriptedAgent:
    name = "scripted"
    reads_events = True

    def problem(self, options: Mapping[str, object]) -> str | None:
        return None if "steps" in options else "the scripted agent needs a scenario: give one with --scenario FILE"

    def build(self, order: WorkOrder) -> Command:
        script = {
            "prompt": order.prompt,
            "run": order.run_number,
            "session": order.session_id,
            "steps": order.options["steps"],
        }
        return Command(argv=[sys.executable, "-I", "-S", "-X", "utf8", PLAYER], stdin=json.dumps(script))

    def judge(self, end: ProcessEnd, output: Iterable[str], error_tail: str) -> Verdict:
        """Evidence of success: a `result` event that says so, and exit code 0 (neither alone is enough)."""
        session: str | None = None
        result: str | None = None
        limit: dict[str, object] | None = None
        for event in _events(output):
            if event["holdfast"] == "session":
                session = str(event["id"])
            elif event["holdfast"] == "result":
                result = str(event["status"])
            elif event["holdfast"] == "limit":
                limit = event
        if limit is not None:
            return _limited(limit, session, error_tail)
        if result == "success" and end.code == 0:
            return Verdict(
                outcome=Outcome.COMPLETED,
                reason="the scenario reported success",
                session_id=session,
                error_tail=error_tail,
            )
        reason = f"exit code {end.code}" if end.code else "it ended without reporting success"
        return Verdict(
            outcome=Outcome.FAILED,
            reason=f"the scenario failed: {reason}",
            session_id=session,
            error_tail=error_tail,
        )

    def sign(self, line: str) -> Sign | None:
        """Talk is progress when it is new; an `event` never is; tools open and close."""
        if line.startswith(('{"holdfast": "tool"', '{"holdfast": "event"')):
            for event in _events([line]):
                if event["holdfast"] == "tool":
                    return _tool_sign(event)
                return Sign(kind=SignKind.STEP, content=str(event.get("name")))
        return Sign(kind=SignKind.PROGRESS, content=line) if line.strip() else None


def _tool_sign(event: Mapping[str, object]) -> Sign:
    deadline = event.get("deadline")
    return Sign(
        kind=SignKind.TOOL_CLOSED if event.get("closed") else SignKind.TOOL_OPENED,
        tool=str(event.get("id")),
        name=str(event.get("name")),
        content=f"{event.get('name')} {event.get('input')}",
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
    )


def _events(output: Iterable[str]) -> Iterable[dict[str, object]]:
    """The JSON lines that the player writes for us; everything else is only the agent's talk."""
    for line in output:
        if line.startswith('{"holdfast":'):
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                continue  # cut off in the middle by a kill
            if isinstance(event, dict):
                yield event
