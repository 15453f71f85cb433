"""What each scenario answers to a request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from holdfast.rehearsal.stub import tools
from holdfast.rehearsal.stub.catalogue import FAILURES
from holdfast.rehearsal.stub.catalogue import OUT_FILE as OUT_FILE
from holdfast.rehearsal.stub.catalogue import OUT_TEXT as OUT_TEXT
from holdfast.rehearsal.stub.messages import Answer, Call, Conversation, Failure, Manner, Text

DONE = "Hello, the task is done."
NOHUP = "nohup sleep 1002 >/dev/null 2>&1 & echo $! > pid.txt"
# Ends at once the second time: not every CLI (gemini) remembers the call in which it was killed.
SLOW = "test -e slow.txt || { echo started > slow.txt; sleep 1003; }"
LIMIT_TEXT = "Claude AI usage limit reached|1794714959"
RETRY_SOON, RETRY_LATE, RESET_IN = 2, 3600, 2 * 3600

_MANNERS = {
    "reset": Manner.RESET,
    "hang": Manner.SILENT,
    "hang-stream": Manner.STALLED,
    "cut-stream": Manner.CUT,
    "error-stream": Manner.ERROR_EVENT,
}


@dataclass(frozen=True)
class _Step:
    """A tool call that a scenario wants; done as soon as the history holds a call with `mark` in its arguments."""

    mark: str
    make: Callable[[Conversation], Call | None]


def answer_to(scenario: str, arguments: Sequence[str], conversation: Conversation, tries: int) -> Answer:
    """What `scenario` answers; `tries` is how many requests came to the same address before this one."""
    if scenario in ("flaky", "first"):
        kind, count = ("529", arguments[:1]) if scenario == "flaky" else (arguments[0], arguments[1:2])
        if tries < int("".join(count) or 1):
            return Answer(reply=_failure(kind, arguments[3:4] if scenario == "first" else ()))
        scenario, arguments = "tool", ()
    if scenario in FAILURES:
        return Answer(reply=_failure(scenario, arguments))
    if scenario == "slow":
        return Answer(reply=Text(DONE), manner=Manner.SLOW, seconds=float("".join(arguments[:1]) or 30))
    if scenario in _MANNERS:
        return Answer(reply=Text(DONE), manner=_MANNERS[scenario])
    for step in _steps(scenario, arguments):
        if not any(step.mark in call for call in conversation.calls) and (call := step.make(conversation)):
            return Answer(reply=call)
    if scenario == "tool" and _wants_listings(conversation):
        return Answer(reply=Text(f"{OUT_FILE}\n```\n{OUT_TEXT}\n```\n"))
    return Answer(reply=Text(LIMIT_TEXT if scenario == "limittext" else DONE), warning=scenario == "warning")


def _failure(kind: str, arguments: Sequence[str]) -> Failure:
    asked = int(arguments[0]) if arguments else None
    if kind == "429-long":
        return Failure("429", RETRY_LATE)
    default = {"429": RETRY_SOON, "usage-limit": RESET_IN}.get(kind, 0)
    return Failure(kind, default if asked is None else asked)


def _steps(scenario: str, arguments: Sequence[str]) -> list[_Step]:
    write = _Step(OUT_FILE, lambda conversation: tools.write_file(conversation, OUT_FILE, OUT_TEXT))
    match scenario:
        case "tool":
            return [write]
        case "shell":
            return [_shell("/".join(arguments))]  # a client may have put the slashes back
        case "nohup":
            return [_shell(NOHUP)]
        case "slowtool":
            return [_shell(SLOW), write]
    return []


def _shell(command: str) -> _Step:
    return _Step(command, lambda conversation: tools.run_command(conversation, command))


def _wants_listings(conversation: Conversation) -> bool:
    """An agent without tools that takes whole files out of the model's text (aider)."""
    return not conversation.tools and "*file listing*" in conversation.system
