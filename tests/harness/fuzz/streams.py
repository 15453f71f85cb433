"""Recordings of real CLIs, spoilt: one input is a recording, a few things done to it, and what must still hold.

Whatever is read of it goes where the supervisor and the views would put it: into signs of life, rows of `logs`, the
answer of a stage, a verdict with its sums; all of that must be fit for the store and for a terminal.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from tests.harness.fuzz.recording_mutations import (
    SPOILS,
    Case,
    dirty,
    is_success,
    is_unanswered,
    lying,
    mistyped,
    speaking,
    usable,
    with_a_failure,
)
from tests.harness.recordings import RECORDED_AT, Recording, judged, lines_of

from holdfast.agents.port import AgentAdapter, Stream, sign_reader
from holdfast.agents.registry import AGENTS
from holdfast.api.tasks.transcript import Transcript, totals
from holdfast.cli.output.agent_events import Teller
from holdfast.core.agents.final_answer import read_final_answer
from holdfast.core.health.signs import AgentActivity
from holdfast.core.runs.outcome import Cause, Outcome, ProcessEnd, Verdict

NEVER_BY_WORDS = frozenset(Outcome) - {Outcome.COMPLETED, Outcome.FAILED, Outcome.CRASHED}
SLOW = 3.0  # seconds of CPU, for all the lines of a case
OF_FAILURES = (with_a_failure, lying)
STORABLE = 2**63  # what an integer of the store must stay below
ESCAPES = frozenset("\x1b\x07\x9b\x08\x00\x9d")


def drawn(draw: random.Random) -> Case:
    recording = draw.choice(usable())
    if is_success(recording):
        return _spoilt_success(recording, draw)
    return _spoilt_failure(recording, draw)


def broken(case: Case) -> str | None:
    """What is wrong with what our adapter makes of it, or None. Whatever it raises is let through."""
    started = time.thread_time()
    agent = AGENTS[case.agent]
    out = b"\n".join(case.lines)
    lines = {Stream.OUT: lines_of(out), Stream.ERR: lines_of(case.err)}
    wrong = heard(agent, lines) or shown(agent.name, lines)
    verdict = judged(agent, out, case.err, case.end)
    wrong = wrong or unfit(verdict)
    if not wrong and agent.reads_events:
        read_final_answer(lines[Stream.OUT], lambda line: agent.parse(line, Stream.OUT)).encode()
    if (took := time.thread_time() - started) > SLOW:
        wrong = f"took {took:.1f} s"
    elif verdict.outcome in case.never:
        wrong = f"taken for {verdict.outcome} ({verdict.reason})"
    elif case.only is not None and verdict.outcome is not case.only:
        wrong = f"not {case.only} but {verdict.outcome} ({verdict.reason})"
    return f"{case.agent}, {case.did}: {wrong}" if wrong else None


def heard(agent: AgentAdapter, lines: dict[Stream, list[str]]) -> str:
    """As the supervisor listens to a living agent: what it remembers of it is kept for the next supervisor."""
    reader = sign_reader(agent)
    if reader is None:
        return ""
    talk = AgentActivity()
    for stream, said in lines.items():
        if stream is Stream.OUT or reader.reads_errors:
            for line in said:
                for sign in reader.signs(line, stream):
                    talk.hear(sign, RECORDED_AT)
    kept = json.dumps(talk.dump(), allow_nan=False)
    kept.encode()
    again = AgentActivity.load(json.loads(kept)).dump()
    return "" if again == json.loads(kept) else f"the next supervisor would remember {again} instead of {kept}"


def shown(agent: str, lines: dict[Stream, list[str]]) -> str:
    """As `logs` and `show` read it: rows that are JSON, words without escapes."""
    transcript = Transcript("/nowhere", agent, {"id": "r", "number": 1, "ended_at": RECORDED_AT})
    written: list[str] = []
    teller = Teller(written.append)
    for stream, said in lines.items():
        if stream is Stream.OUT or getattr(AGENTS[agent], "reads_errors", False):
            for line in said:
                for row in transcript.rows_of(line, stream):
                    json.dumps(row, allow_nan=False).encode()
                    teller.tell(row)
    teller.catch_up()
    if bad := ESCAPES.intersection("".join(written)):
        return f"{sorted(bad)} reached the terminal"
    return unfit_sums(cast("Mapping[str, Any]", totals(transcript.digest) or {}))


def unfit(verdict: Verdict) -> str:
    """A verdict goes into the store as it is."""
    for words in (verdict.reason, verdict.session_id or "", verdict.error_tail):
        words.encode()
        if "\0" in words and words is not verdict.error_tail:
            return f"a NUL in {words!r}"
    if not verdict.reason.strip():
        return "a verdict without a reason"
    if verdict.resets_at is not None and not math.isfinite(verdict.resets_at):
        return f"it continues at {verdict.resets_at}"
    return "" if verdict.usage is None else unfit_sums({**_fields(verdict.usage), "tokens": verdict.usage.tokens})


def unfit_sums(sums: Mapping[str, Any]) -> str:
    for name, value in sums.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if not math.isfinite(value) or not 0 <= value < STORABLE:
            return f"{name} is {value!r:.80}, which no store holds"
    return ""


def _fields(usage: Any) -> dict[str, Any]:
    return {name: getattr(usage, name) for name in usage.__slots__}


def _spoilt_failure(recording: Recording, draw: random.Random) -> Case:
    """It stays what it is, or becomes unclear; it never becomes a success, not even with exit code 0."""
    case = Case(
        agent=recording.agent,
        did=recording.scenario,
        lines=recording.out.split(b"\n"),
        err=recording.err,
        end=draw.choice([recording.end(), ProcessEnd(cause=Cause.EXITED, code=0)]),
        never=frozenset({Outcome.COMPLETED}),
    )
    # Dirt and another type may hit the number that shows that no model answered.
    kept = [spoil for spoil in SPOILS if spoil not in (dirty, mistyped)]
    spoils = kept if is_unanswered(recording) else [*SPOILS, *OF_FAILURES]
    for spoil in draw.sample(spoils, draw.randrange(1, 4)):
        case = _done(case, spoil, draw)
    return case


def _spoilt_success(recording: Recording, draw: random.Random) -> Case:
    """With its lines spoilt it may become unclear, but no limit and no lost login: nothing in it speaks of one."""
    case = Case(
        agent=recording.agent,
        did=recording.scenario,
        lines=recording.out.split(b"\n"),
        err=recording.err,
        end=recording.end(),
        never=NEVER_BY_WORDS,
    )
    what = draw.randrange(4)
    if what == 0:
        code = draw.choice([1, 2, 17, 42, 53, 130, 137, 143, 144, 173, 244, 255])
        end = draw.choice([ProcessEnd(cause=Cause.EXITED, code=code), ProcessEnd(cause=Cause.EXITED, signal=9)])
        case = replace(case, did=f"{case.did}, ended with {end}", end=end, never=frozenset({Outcome.COMPLETED}))
        return _done(case, with_a_failure, draw) if draw.random() < 0.5 else case
    if what == 1:
        for spoil in draw.sample(SPOILS, draw.randrange(1, 4)):
            case = _done(case, spoil, draw)
        return case
    return replace(_done(case, speaking, draw), only=Outcome.COMPLETED)


def _done(case: Case, spoil: Callable[[Case, random.Random], Case], draw: random.Random) -> Case:
    return replace(spoil(case, draw), did=f"{case.did}, {spoil.__name__.strip('_')}")
