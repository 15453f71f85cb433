"""The recordings of real CLIs under tests/golden/agents, and the normalized events that lie beside each of them.

`tests/golden/agents/AGENT/SCENARIO/`: `stdout.jsonl` and `stderr.txt` (what the CLI wrote; the latter only if it wrote
some), `exit.json` (`exit_code`, negative for a signal; `stopped_by_us`, if the recorder ended it), and `events.jsonl`:
what our adapter makes of each line. After a change of an adapter, write the latter anew and read the difference:

    .venv/bin/python -m tests.agents.recordings --write [AGENT …]
    git diff tests/golden

A new recording is made by running the CLI, with the prompt on standard input:

    echo PROMPT | .venv/bin/python -m tests.agents.recordings --record AGENT SCENARIO -- COMMAND …
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

from holdfast.agents.port import AgentAdapter, Ended, Stream
from holdfast.core.agentevents import AgentEvent, Failure, Raw, Retry
from holdfast.core.outcome import Cause, ProcessEnd, Verdict
from holdfast.roster import AGENTS

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "agents"
RECORDED_AT = datetime(2026, 11, 15, 3, 0, tzinfo=UTC).timestamp()  # all within the same two hours, TZ=UTC
ERROR_TAIL = 2000
LONGEST = 160  # characters of a text in events.jsonl; the rest is in the recording


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
    ended = Ended(end=end, output=lines_of(out), errors=lines_of(err), error_tail=tail, at=RECORDED_AT, zone="UTC")
    return agent.judge(ended)


def events_of(agent: AgentAdapter, recording: Recording) -> list[str]:
    """events.jsonl: a line per line that was understood. A raw one is only counted, for it is in the recording."""
    written = []
    for stream, output in ((Stream.OUT, recording.out), (Stream.ERR, recording.err)):
        for number, line in enumerate(lines_of(output), 1):
            events = agent.parse(line, stream)
            for event in events:
                assert not isinstance(event, Raw) or event.text == line, "a raw line is kept as it is"
            told = [_told(event) for event in events if not isinstance(event, Raw)]
            if told:
                written.append(json.dumps({"line": f"{stream}:{number}", "events": told}, ensure_ascii=False))
    return written


def _told(event: AgentEvent) -> dict[str, object]:
    """An event without what is as always."""
    told: dict[str, object] = {"event": type(event).__name__}
    for field in fields(event):
        value = getattr(event, field.name)
        if field.default is MISSING or value != field.default:
            told[field.name] = f"{value[:LONGEST]}…" if isinstance(value, str) and len(value) > LONGEST else value
    if isinstance(event, Failure | Retry) and event.reset is not None and event.reset == event.message:
        told["reset"] = "as in its message"
    return told


def write(agents: Sequence[str]) -> int:
    written = 0
    for recording in recordings():
        if not agents or recording.agent in agents:
            lines = events_of(AGENTS[recording.agent], recording)
            recording.events_file().write_text("".join(f"{line}\n" for line in lines))
            written += 1
    return written


def record(agent: str, scenario: str, command: Sequence[str], patience: float = 600.0) -> Path:
    """Runs the CLI as it is and keeps what it wrote. One that does not end is ended, and that is noted."""
    directory = GOLDEN / agent / scenario
    directory.mkdir(parents=True, exist_ok=True)
    started, stopped = time.monotonic(), None
    with (directory / "stdout.jsonl").open("wb") as out, (directory / "stderr.txt").open("wb") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err)
        try:
            code = process.wait(patience)
        except subprocess.TimeoutExpired:
            process.kill()
            code, stopped = process.wait(), "TIMEOUT"
    if not (directory / "stderr.txt").stat().st_size:
        (directory / "stderr.txt").unlink()
    seconds = round(time.monotonic() - started, 1)
    exit_record = {"exit_code": code, "stopped_by_us": stopped, "seconds": seconds}
    (directory / "exit.json").write_text(json.dumps(exit_record) + "\n")
    return directory


def main(words: Sequence[str]) -> str:
    match words:
        case ["--write", *agents]:
            return f"wrote the events of {write(agents)} recordings; now read `git diff tests/golden`"
        case ["--record", agent, scenario, "--", *command] if command:
            return f"recorded into {record(agent, scenario, command)}"
    sys.exit(__doc__)


if __name__ == "__main__":
    print(main(sys.argv[1:]))
