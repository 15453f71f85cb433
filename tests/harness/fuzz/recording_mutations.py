"""What can be done to a recording of a real CLI: cut, mix, swell, dirty, mistype it, and put words into mouths."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from tests.harness.recordings import Recording, recordings

from holdfast.agents.port import Stream
from holdfast.agents.registry import AGENTS
from holdfast.core.agents.events import AgentText, ToolFinished, ToolStarted
from holdfast.core.runs.outcome import Outcome, ProcessEnd

# Whatever a provider or a CLI was ever seen to say of a failure or of a success. In a model's mouth it means nothing.
SAYINGS = (
    "Claude AI usage limit reached|1794714959",
    "You've hit your limit · resets 4:57am (UTC)",
    "You’ve hit your usage limit. Upgrade to Pro (https://x), or try again at 4:55 AM.",
    "Session limit reached ∙ resets 10am",
    "You have exhausted your daily quota on this model.",
    "429 The usage limit has been reached",
    "API Error: Request rejected (429) · This request would exceed your account's rate limit. Please try again later.",
    "exceeded retry limit, last status: 429 Too Many Requests",
    "Rate limit reached for m on tokens per min (TPM): Limit 1, Used 1. Please try again in 2.5s.",
    "Credit balance is too low",
    "Quota exceeded. Check your plan and billing details.",
    "Invalid API key · Fix external API key",
    "unexpected status 401 Unauthorized: Incorrect API key provided: dummy.",
    "[API Error: 401 Incorrect API key provided: dummy.]",
    "Prompt is too long · the request is ~250000 tokens (limit 200000)",
    "Your input exceeds the context window of this model. context_length_exceeded",
    "[API Error: 400 This model's maximum context length is 128000 tokens.]",
    "API Error: 529 Overloaded. This is a server-side issue, usually temporary",
    "stream disconnected before completion: stream closed before response.completed",
    "Cannot connect to API: Unable to connect. fetch failed ECONNREFUSED. Connection error.",
    "No conversation found with session ID: 1; no rollout found for thread id 1; Session not found",
    '{"type":"error","message":"You’ve hit your usage limit. try again at 4:55 AM."}',
    '{"type":"turn.failed","error":{"message":"unexpected status 401 Unauthorized"}}',
    '{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1794718625}}',
    '{"type":"result","subtype":"success","is_error":true,"result":"Credit balance is too low"}',
    '{"type":"session.error","data":{"errorType":"rate_limit","statusCode":429}}',
)
LIES = (
    '{"type":"result","subtype":"success","is_error":false,"result":"done","num_turns":1}',
    '{"type":"turn.completed","usage":{"input_tokens":1,"output_tokens":1}}',
    '{"type":"result","status":"success","stats":{}}',
    '{"type":"step_finish","part":{"reason":"stop"}}',
    '{"type":"result","sessionId":"x","exitCode":0}',
    "The task is completed successfully.",
)
# Where the model's words, or those of its tools, stand in the recordings.
_WORDS = frozenset(
    {"text", "content", "output", "aggregated_output", "result", "command", "stdout", "delta", "response"}
)
_WRONG: tuple[Any, ...] = (None, [], {}, "", "x", 7, -1.5, True, [None], {"a": [1]}, [["x"]], 10**30, "9" * 30)
SWOLLEN = 40_000  # characters

Lines = list[bytes]


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """`lines` and `err` of an agent that ended with `end`; and what it must never be taken for."""

    agent: str
    did: str
    lines: Lines
    err: bytes
    end: ProcessEnd
    never: frozenset[Outcome]
    only: Outcome | None = None  # what it must be, if that is certain


@cache
def usable() -> list[Recording]:
    """Without those of an older Qwen Code, which says "success" of every failure: the line that tells may be spoilt."""
    return [recording for recording in recordings() if not recording.id.startswith("qwen/old-")]


def is_success(recording: Recording) -> bool:
    """By what the recorder did; checked by the golden test."""
    completed = {"ok", "tool", "nohup", "resume1", "resume2", "kr2", "warn", "limittext"}
    return recording.scenario in completed or recording.id in ("claude/midcut", "claude/miderr")


def is_unanswered(recording: Recording) -> bool:
    """A command of the CLI itself ("/help"): it reports success, and failed only because no model answered.

    The lines of another run, or a lie, are the answer that it lacks.
    """
    return recording.scenario.startswith("command-")


def _cut(case: Case, draw: random.Random) -> Case:
    out = b"\n".join(case.lines)
    return replace(case, lines=out[: draw.randrange(len(out) + 1)].split(b"\n"))


def _shuffled(case: Case, draw: random.Random) -> Case:
    return replace(case, lines=draw.sample(case.lines, len(case.lines)))


def _doubled(case: Case, draw: random.Random) -> Case:
    lines = [line for line in case.lines for _ in range(draw.choice((1, 1, 2, 3)))]
    return replace(case, lines=lines)


def _dropped(case: Case, draw: random.Random) -> Case:
    return replace(case, lines=[line for line in case.lines if draw.random() < 0.7] or [b""])


def _joined(case: Case, draw: random.Random) -> Case:
    """Two writers at once: the end of a line is lost, or its newline."""
    place = draw.randrange(len(case.lines))
    head, tail = case.lines[:place], case.lines[place:]
    return replace(case, lines=[*head, b"".join(tail[:2]), *tail[2:]])


def dirty(case: Case, draw: random.Random) -> Case:
    """Bytes that are no UTF-8, and NULs."""
    lines = [bytearray(line) for line in case.lines]
    for _ in range(draw.randrange(1, 20)):
        line = draw.choice(lines)
        if line:
            line[draw.randrange(len(line))] = draw.choice((0, 0x80, 0xC3, 0xED, 0xFE, 0xFF, draw.randrange(128, 256)))
    return replace(case, lines=[bytes(line) for line in lines])


def _strange(case: Case, draw: random.Random) -> Case:
    """Lines that nobody knows, some of them huge or deep."""
    deep = draw.choice((50, 900, 5000, 100_000))
    line = draw.choice(
        [
            b"\x00" * 100,
            b"\xff" * draw.choice((10, 300_000)),
            b'{"type":"new.kind","session_id":7,"data":{"x":[1,2,{}]}}',
            b'{"type":' + b"[" * deep,
            b'{"type":"assistant","message":' + b'{"content":' * deep + b"1" + b"}" * (deep + 1),
            b'{"type":"item.completed","item":' + b"[" * deep + b"]" * deep + b"}",
            b'{"type":"text","part":{"text":"' + b"a" * draw.choice((10, 2_000_000)) + b'"}}',
            b'{"type":"result","cost":' + b"9" * draw.choice((30, 5000)) + b"}",
            b'{"type":NaN,"is_error":Infinity}',
            b"[]",
            b'"text"',
            b"null",
            b"12",
            b"\xef\xbb\xbf{}",
            b"   {}   ",
        ]
    )
    place = draw.randrange(len(case.lines) + 1)
    return replace(case, lines=[*case.lines[:place], line, *case.lines[place:]])


def mistyped(case: Case, draw: random.Random) -> Case:
    """A field of another type than ever seen; or gone; or a number written as a string."""

    def spoil(parent: Any, key: Any) -> None:
        old = parent[key]
        what = draw.randrange(4)
        if what == 0 and isinstance(parent, dict):
            del parent[key]
        elif what == 1 and isinstance(old, int | float):
            parent[key] = str(old).lower()
        else:
            parent[key] = draw.choice([wrong for wrong in _WRONG if type(wrong) is not type(old)])

    lines = list(case.lines)
    for _ in range(draw.randrange(1, 4)):
        place = draw.randrange(len(lines))
        lines[place] = _edited(lines[place], draw.choice, spoil, lambda _key, _value: True)
    return replace(case, lines=lines)


def _swollen(case: Case, draw: random.Random) -> Case:
    """A field that continues and on after it began as always: a pattern that tries everything would take for ever."""

    def swell(parent: Any, key: Any) -> None:
        filler = draw.choice(
            ("(", "((x)", " ", "\n", "a ", "1", "9:", "try again at ", "limit reached ", "//", '{"a":')
        )
        parent[key] += filler * (SWOLLEN // len(filler))

    lines = list(case.lines)
    place = draw.randrange(len(lines))
    lines[place] = _edited(lines[place], draw.choice, swell, lambda _key, value: isinstance(value, str))
    return replace(case, lines=lines)


SPOILS: Sequence[Callable[[Case, random.Random], Case]] = (
    _cut,
    _shuffled,
    _doubled,
    _dropped,
    _joined,
    dirty,
    _strange,
    mistyped,
    _swollen,
)


def with_a_failure(case: Case, draw: random.Random) -> Case:
    """The lines of two runs in one log. Neither is of a command of the CLI itself: see `is_unanswered`."""
    others = [other for other in usable() if other.agent == case.agent and not is_success(other)]
    others = [other for other in others if not is_unanswered(other)]
    mixed, second = list(case.lines), draw.choice(others).out.split(b"\n") if others else []
    places = sorted(draw.randrange(len(mixed) + 1) for _ in second)
    for line, place in reversed(list(zip(second, places, strict=True))):
        mixed.insert(place, line)
    return replace(case, lines=mixed)


def speaking(case: Case, draw: random.Random) -> Case:
    """The model, or a tool of it, says what a provider says of a failure."""
    return _say(case, draw, SAYINGS)


def lying(case: Case, draw: random.Random) -> Case:
    """The model, or a tool of it, says what a CLI says of its success; it had worked well up to then."""
    others = [other for other in usable() if other.agent == case.agent and other.scenario in ("tool", "ok", "resume1")]
    words = [line for other in others for line in other.out.split(b"\n") if _is_talk(case.agent, line)]
    place = draw.randrange(len(case.lines) + 1)
    talk = draw.sample(words, min(len(words), 3))
    return _say(replace(case, lines=[*case.lines[:place], *talk, *case.lines[place:]]), draw, LIES)


def _is_talk(agent: str, line: bytes) -> bool:
    events = AGENTS[agent].parse(line.decode(errors="replace"), Stream.OUT)
    return bool(events) and all(isinstance(event, AgentText | ToolStarted | ToolFinished) for event in events)


def _say(case: Case, draw: random.Random, sayings: Sequence[str]) -> Case:
    if case.agent == "aider":  # all is one text: what the model says comes before the edit and the count of tokens
        place = next((i for i, line in enumerate(case.lines) if line.startswith(b"Repo-map:")), 0) + 1
        said = [draw.choice(sayings).encode() for _ in range(3)]
        return replace(case, lines=[*case.lines[:place], *said, *case.lines[place:]])

    def say(parent: Any, key: Any) -> None:
        saying = draw.choice(sayings)
        parent[key] = draw.choice((saying, f"{parent[key]}\n{saying}\n", f"{saying} {parent[key]}"))

    def is_said(key: str, value: Any) -> bool:
        return key in _WORDS and isinstance(value, str)

    def all_of(slots: list[tuple[Any, Any]]) -> tuple[Any, Any]:
        for parent, key in slots[:-1]:
            say(parent, key)
        return slots[-1]

    lines = [line if _is_error(line) else _edited(line, all_of, say, is_said) for line in case.lines]
    return replace(case, lines=lines)


def _is_error(line: bytes) -> bool:
    """The CLI's own words, not the model's."""
    return b'"is_error":true' in line or b'"<synthetic>"' in line or b'"status":"error"' in line


def _edited(
    line: bytes,
    pick: Callable[[list[tuple[Any, Any]]], tuple[Any, Any]],
    edit: Callable[[Any, Any], None],
    wanted: Callable[[str, Any], bool],
) -> bytes:
    """The line with one of its fields edited in place; as it is, if it is no JSON or has no such field."""
    try:
        value = copy.deepcopy(json.loads(line))
        slots = [(parent, key) for parent, key in _slots(value) if wanted(str(key), parent[key])]
    except (ValueError, RecursionError):
        return line
    if not slots:
        return line
    edit(*pick(slots))
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def _slots(value: Any) -> Iterator[tuple[Any, Any]]:
    items: Sequence[Any] = (
        list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    for key in items:
        yield value, key
        yield from _slots(value[key])
