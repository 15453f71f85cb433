"""What comes from outside in pieces: single lines of agents, reports, the records beside a run, trackers' answers.

Pure readers, so there is room for many.
"""

from __future__ import annotations

import json
import math
import random
import types
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from tests.harness.fuzz import malformed_json
from tests.harness.fuzz.recording_mutations import usable
from tests.harness.fuzz.streams import heard, shown, unfit
from tests.harness.fuzz.words import mutated, noise
from tests.harness.recordings import RECORDED_AT, lines_of

from holdfast.agents.port import EndedRun, Stream
from holdfast.agents.registry import AGENTS
from holdfast.base.text import is_text
from holdfast.core.health.signs import AgentActivity
from holdfast.core.model import StopWhy
from holdfast.core.runs.outcome import Cause, ProcessEnd, classify
from holdfast.core.tasks.trackers import Issue, issue_prompt, task_priority
from holdfast.processes.agent_channel import parse_report
from holdfast.processes.run_dir import RunDirectory
from holdfast.trackers.beads import parse_error_code, parse_issues, parse_old_values
from holdfast.trackers.port import UnknownAnswer


class AgentLines:
    """One line of a real CLI, bent: whatever it says can be remembered, shown and summed up."""

    def __init__(self, place: Path) -> None:
        pass

    def play(self, draw: random.Random) -> str:
        name, line = draw.choice(_lines())
        try:
            said = malformed_json.written(draw, malformed_json.bend(draw, json.loads(line)))
        except ValueError:
            said = mutated(draw, line).encode(errors="surrogateescape")
        stream = Stream.ERR if draw.random() < 0.1 else Stream.OUT
        lines = {stream: lines_of(said)}
        wrong = heard(AGENTS[name], lines) or shown(name, lines)
        return f"silent: {name}: {wrong}\n  the line: {said[:800]!r}" if wrong else ""

    def end(self) -> list[str]:
        return []


@cache
def _lines() -> list[tuple[str, str]]:
    found = {
        (recording.agent, line)
        for recording in usable()
        for line in lines_of(recording.out)
        if len(line) < 4000 and line.strip()
    }
    return sorted(found)


class Reports:
    """What an agent says of itself through its channel."""

    TOKEN = "t0ken"
    REPORT = types.MappingProxyType({"token": TOKEN, "report": "progress", "message": "half way", "percent": 50})

    def __init__(self, place: Path) -> None:
        pass

    def play(self, draw: random.Random) -> str:
        report = {**self.REPORT, "report": draw.choice(("progress", "complete", "alive", "failed", "blocked"))}
        line = malformed_json.written(draw, malformed_json.bend(draw, report) if draw.random() < 0.8 else report)
        found = parse_report(line, self.TOKEN)
        if isinstance(found, str):
            return "" if found else f"silent: refused without a word: {line!r:.300}"
        kept = json.dumps([found.kind, found.message, found.percent], allow_nan=False)
        is_fit = is_text(found.message) and "\n" not in found.message and "\x1b" not in found.message
        return "" if is_fit and kept else f"silent: {found} from {line!r:.300}"

    def end(self) -> list[str]:
        return []


class RunRecords:
    """The records beside a run, which its agent can reach too: they become a verdict that the store can hold."""

    EXIT = types.MappingProxyType(
        {"cause": "exited", "code": 0, "signal": None, "detail": "", "at": RECORDED_AT, "oom_kills": 0}
    )
    PID = types.MappingProxyType(
        {"boot_id": "b", "keeper": {"pid": 7, "start": 8}, "agent": {"pid": 9, "start": 10}, "note": "", "leaf": "x"}
    )

    def __init__(self, place: Path) -> None:
        self._path = place / "run"
        self._path.mkdir()
        self._directory = RunDirectory(str(self._path))

    def play(self, draw: random.Random) -> str:
        exit_record = {**self.EXIT, "cause": str(draw.choice(list(Cause))), "code": draw.choice((0, 1, None))}
        records = {"exit.json": exit_record, "pid.json": dict(self.PID), "empty.json": {"proof": "x"}}
        said = {
            name: malformed_json.written(draw, malformed_json.bend(draw, record)) for name, record in records.items()
        }
        for name, content in said.items():
            (self._path / name).write_bytes(content)
        self._directory.identities()
        self._directory.is_of_an_earlier_boot()
        self._directory.is_empty()
        self._directory.leaf()
        wrong = "" if is_text(self._directory.note()) else "its note cannot be stored"
        end = self._directory.ending()
        if end is not None and not wrong:
            wrong = _judged(end, draw)
        return f"silent: {wrong}\n  the records: {said}" if wrong else ""

    def end(self) -> list[str]:
        return []


def _judged(end: ProcessEnd, draw: random.Random) -> str:
    numbers: tuple[tuple[str, object], ...] = (("code", end.code), ("signal", end.signal))
    for name, number in numbers:
        if number is not None and not (isinstance(number, int) and abs(number) < 2**31):
            return f"its {name} is {number!r:.60}"
    if end.at is not None and not math.isfinite(end.at):
        end = replace(end, at=None)  # a store does that too
    agent = AGENTS[draw.choice(list(AGENTS))]
    verdict = agent.judge(EndedRun(end=end, output=(), error_tail="", at=RECORDED_AT))
    return unfit(classify(end, draw.choice([None, *StopWhy]), verdict))


class TrackerAnswers:
    """What a tracker's tool prints: issues that can be stored, or that it is not understood."""

    ISSUE: Any = types.MappingProxyType(
        {"id": "bd-1", "title": "Fix it", "status": "open", "assignee": None, "description": "d", "priority": 1}
        | {"acceptance_criteria": "works", "issue_type": "bug", "labels": ["a", "b"]}
    )

    def __init__(self, place: Path) -> None:
        pass

    def play(self, draw: random.Random) -> str:
        issues: Any = [dict(self.ISSUE) for _ in range(draw.randrange(3))]
        whole = draw.choice((issues, {"schema_version": 1, "data": issues}, {"issue": dict(self.ISSUE)}))
        said = malformed_json.written(draw, malformed_json.bend(draw, whole))
        parse_error_code(said)
        parse_old_values(said)
        parse_old_values(
            f"assignee: {noise(draw)} → (none)\nstatus: {noise(draw)} -> x".encode(errors="surrogateescape")
        )
        found = parse_issues(said)
        if isinstance(found, UnknownAnswer):
            wrong = "" if is_text(found.why) and found.why else f"why it is unknown cannot be told: {found.why!r}"
        else:
            wrong = "".join(_unfit_issue(issue) for issue in found)
        return f"silent: {wrong}\n  the answer: {said[:800]!r}" if wrong else ""

    def end(self) -> list[str]:
        return []


def _unfit_issue(issue: Issue) -> str:
    priority = task_priority(issue)
    if not -2 <= priority <= 2 or not is_text(issue_prompt(issue)) or not issue.holder:
        return f"no task can be made of {issue!r:.300}"
    words = (issue.id, issue.status, issue.assignee or "", *issue.labels)
    return "" if all(is_text(word) for word in words) else f"{issue!r:.300} cannot be stored"


class Memories:
    """What one supervisor remembered of an agent, read by the next: from the store, by another version perhaps."""

    def __init__(self, place: Path) -> None:
        self._kept: list[Any] = []
        for recording in usable()[::9]:
            talk = AgentActivity()
            for line in lines_of(recording.out)[:40]:
                for sign in AGENTS[recording.agent].signs(line, Stream.OUT):
                    talk.hear(sign, RECORDED_AT)
            self._kept.append(talk.dump())

    def play(self, draw: random.Random) -> str:
        said = malformed_json.written(draw, malformed_json.bend(draw, draw.choice(self._kept)))
        try:
            talk = AgentActivity.load(json.loads(said))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            return ""  # as its docstring says
        again = json.dumps(talk.dump()).encode()
        return "" if again else "silent: nothing is remembered"

    def end(self) -> list[str]:
        return []
