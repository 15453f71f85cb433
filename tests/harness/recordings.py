"""What real CLIs wrote, as recorded under tests/golden/agents, and how the supervisor would read and judge it.

How a recording is made: tests/agents/recordings.py. They are part of the source tree, not of an installed package.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import holdfast
from holdfast.agents.port import AgentAdapter, EndedRun
from holdfast.core.runs.outcome import Cause, ProcessEnd, Verdict

GOLDEN = Path(holdfast.__file__).resolve().parents[2] / "tests" / "golden" / "agents"
RECORDED_AT = datetime(2026, 11, 15, 3, 0, tzinfo=UTC).timestamp()  # all within the same two hours, TZ=UTC
ERROR_TAIL = 2000


@dataclass(frozen=True, kw_only=True, slots=True)
class Recording:
    agent: str
    scenario: str
    out: bytes
    err: bytes
    code: int
    stopped: bool

    @property
    def id(self) -> str:
        return f"{self.agent}/{self.scenario}"

    def end(self) -> ProcessEnd:
        """As its keeper would have written it down, had nobody of ours ended it."""
        if self.code < 0:
            return ProcessEnd(cause=Cause.EXITED, signal=-self.code)
        return ProcessEnd(cause=Cause.EXITED, code=self.code)

    def events_file(self) -> Path:
        return GOLDEN / self.agent / self.scenario / "events.jsonl"


def recordings(root: Path = GOLDEN) -> Iterator[Recording]:
    for directory in sorted(found.parent for found in root.glob("*/*/exit.json")):
        exit_record = json.loads((directory / "exit.json").read_text())
        errors = directory / "stderr.txt"
        yield Recording(
            agent=directory.parent.name,
            scenario=directory.name,
            out=(directory / "stdout.jsonl").read_bytes(),
            err=errors.read_bytes() if errors.exists() else b"",
            code=exit_record["exit_code"],
            stopped=exit_record["stopped_by_us"] is not None,
        )


def lines_of(output: bytes) -> list[str]:
    """As the supervisor reads it: lines end with a newline only, and bytes that are no UTF-8 are replaced."""
    lines = output.split(b"\n")
    return [line.decode(errors="replace") for line in (lines if lines[-1] else lines[:-1])]


def judged(agent: AgentAdapter, out: bytes, err: bytes, end: ProcessEnd) -> Verdict:
    """As the supervisor does it at the end of a run."""
    tail = err[-ERROR_TAIL:].decode(errors="replace")
    ended = EndedRun(end=end, output=lines_of(out), errors=lines_of(err), error_tail=tail, at=RECORDED_AT, zone="UTC")
    return agent.judge(ended)
