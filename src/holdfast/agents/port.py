"""What an agent adapter is: it builds a command, reads events and judges an ending. It does no I/O of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.core.outcome import ProcessEnd, Verdict
from holdfast.core.signs import Sign


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkOrder:
    """What one run is to do."""

    prompt: str
    run_number: int
    session_id: str | None
    options: Mapping[str, object]


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """How to start the agent. The prompt goes by standard input: arguments are limited and visible to everybody."""

    argv: Sequence[str]
    stdin: str = ""
    env: Mapping[str, str] = field(default_factory=dict)


class AgentAdapter(Protocol):
    name: str
    reads_events: bool  # False: its output is only bytes to us, and `sign` is never asked

    def problem(self, options: Mapping[str, object]) -> str | None:
        """Why a task with these options cannot be accepted, or None."""
        ...

    def build(self, order: WorkOrder) -> Command: ...

    def judge(self, end: ProcessEnd, output: Iterable[str], error_tail: str) -> Verdict:
        """What the agent's own words say about an ending. Names its positive evidence of success."""
        ...

    def sign(self, line: str) -> Sign | None:
        """What one line of its output says about its health; None: nothing. Pure, and cheap: every line comes here."""
        ...
