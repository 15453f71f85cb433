"""The recordings of real CLIs under tests/golden/agents, and the normalized events that lie beside each of them.

`tests/golden/agents/AGENT/SCENARIO/`: `stdout.jsonl` and `stderr.txt` (what the CLI wrote; the latter only if it wrote
some), `exit.json` (`exit_code`, negative for a signal; `stopped_by_us`, if the recorder ended it), and `events.jsonl`:
what our adapter makes of each line. After a change of an adapter, write the latter again and read the difference:

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
from collections.abc import Sequence
from dataclasses import MISSING, fields
from pathlib import Path

from tests.harness.recordings import GOLDEN, RECORDED_AT, Recording, judged, lines_of, recordings

from holdfast.agents.port import AgentAdapter, Stream
from holdfast.agents.registry import AGENTS
from holdfast.core.agents.events import AgentEvent, AgentFailure, RawLine, Retry

__all__ = ["GOLDEN", "RECORDED_AT", "Recording", "events_of", "judged", "lines_of", "recordings"]

LONGEST = 160  # characters of a text in events.jsonl; the rest is in the recording


# The recordings name events as they were called first.
RECORDED_AS = {"AgentText": "Text", "AgentFailure": "Failure", "AgentResult": "Result", "RawLine": "Raw"}


def events_of(agent: AgentAdapter, recording: Recording) -> list[str]:
    """events.jsonl: a line per line that was understood. A raw one is only counted, for it is in the recording."""
    written = []
    for stream, output in ((Stream.OUT, recording.out), (Stream.ERR, recording.err)):
        for number, line in enumerate(lines_of(output), 1):
            events = agent.parse(line, stream)
            for event in events:
                assert not isinstance(event, RawLine) or event.text == line, "a raw line is kept as it is"
            told = [_told(event) for event in events if not isinstance(event, RawLine)]
            if told:
                written.append(json.dumps({"line": f"{stream}:{number}", "events": told}, ensure_ascii=False))
    return written


def _told(event: AgentEvent) -> dict[str, object]:
    """An event without what is as always."""
    told: dict[str, object] = {"event": RECORDED_AS.get(type(event).__name__, type(event).__name__)}
    for field in fields(event):
        value = getattr(event, field.name)
        if field.default is MISSING or value != field.default:
            told[field.name] = f"{value[:LONGEST]}…" if isinstance(value, str) and len(value) > LONGEST else value
    if isinstance(event, AgentFailure | Retry) and event.reset is not None and event.reset == event.message:
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
