"""The scenarios by name, and the answer of each to a request.

This module imports nothing of the server, because help and errors list the scenarios and must start fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial

from holdfast.base.dataclass import dataclass
from holdfast.rehearsal.stub import tools
from holdfast.rehearsal.stub.messages import Conversation, Manner, ProviderFailure, StubAnswer, TextReply, ToolCallReply

OUT_FILE, OUT_TEXT = "out.txt", "hello from agent"

FAILURES = ("401", "429", "429-long", "usage-limit", "credit", "500", "503", "529", "context-too-long")
# Every scenario with the sentence that help and docs show. Words in capitals are arguments in the path.
SCENARIOS = {
    "ok": "answers with a text",
    "tool": f"has the agent write {OUT_FILE}, then answers",
    "shell": "has the agent run the shell command COMMAND (shell/COMMAND), then answers",
    "nohup": "has the agent leave a background process (its pid in pid.txt), then answers",
    "slowtool": f"has the agent run a command that never ends; asked again after a kill, has it write {OUT_FILE}",
    "limittext": "the model says that a usage limit was reached, as ordinary text: a success",
    "warning": "answers, and warns in its headers that the usage limit is near",
    "401": "the key is not valid",
    "429": "too many requests, try again in 2 s (429/SECONDS for another time)",
    "429-long": "too many requests, try again in an hour",
    "usage-limit": "the plan's usage limit is reached, for two hours (usage-limit/SECONDS for another time)",
    "credit": "the account has no credit",
    "500": "the provider has an internal error",
    "503": "the provider is overloaded, in the form of OpenAI and Google",
    "529": "the provider is overloaded, in the form of Anthropic",
    "context-too-long": "the conversation does not fit into the model's context",
    "refused": "nobody listens: the connection is refused",
    "reset": "the connection is reset",
    "hang": "no answer, not even headers",
    "hang-stream": "headers and the first words, then nothing",
    "slow": "answers normally, but takes SECONDS (slow/SECONDS, else 30) from the first word to the last",
    "cut-stream": "the stream is cut midway",
    "cut-early": "the connection is closed before the first word of the stream",
    "empty-stream": "the stream ends before its first word, as behind a gateway that lost its provider",
    "html": "status 200 with an HTML page, as from a proxy or a captive portal",
    "error-stream": "an error event in the middle of the stream",
    "flaky": "the first N requests fail as 529 does (flaky/N/KEY), then as `tool`",
    "first": "the first N requests fail as FAILURE does (first/FAILURE/N/KEY[/SECONDS]), then as `tool`",
    "script": "answers each prompt as the program that started the server defines (`ScriptedTurn`)",
}
_WITH_NUMBER = ("flaky", "429", "usage-limit", "slow")


def why_unknown(scenario: str, arguments: Sequence[str]) -> str:
    """Return why there is no such scenario, or "" if there is one."""
    if scenario not in SCENARIOS:
        return f"There is no scenario {scenario!r}. There are: {', '.join(SCENARIOS)}."
    if scenario == "shell" and not arguments:
        return "The scenario shell needs a command: shell/COMMAND, urlencoded."
    if scenario == "first" and (not arguments or arguments[0] not in FAILURES):
        return f"The scenario first needs a failure: first/FAILURE/N/KEY, one of {', '.join(FAILURES)}."
    numbers = (
        [*arguments[1:2], *arguments[3:4]] if scenario == "first" else arguments[:1] if scenario in _WITH_NUMBER else ()
    )
    if any(not number.isdecimal() for number in numbers):
        return f"The scenario {scenario} takes a whole number, not {'/'.join(arguments)!r}."
    return ""


DONE = "Hello, the task is done."
NOHUP = "nohup sleep 1002 >/dev/null 2>&1 & echo $! > pid.txt"
# The command ends at once the second time: not every CLI (gemini) remembers the call in which it was killed.
SLOW = "test -e slow.txt || { echo started > slow.txt; sleep 1003; }"
LIMIT_TEXT = "Claude AI usage limit reached|1794714959"
RETRY_SOON, RETRY_LATE, RESET_IN = 2, 3600, 2 * 3600

_MANNERS = {
    "reset": Manner.RESET,
    "hang": Manner.SILENT,
    "hang-stream": Manner.STALLED,
    "cut-stream": Manner.CUT,
    "cut-early": Manner.CUT_EARLY,
    "empty-stream": Manner.EMPTY,
    "html": Manner.HTML,
    "error-stream": Manner.ERROR_EVENT,
}


@dataclass(frozen=True, kw_only=True)
class ScriptedTurn:
    """The answer to a prompt that contains `prompt`: files to read, files to write, a command to run, then a text."""

    prompt: str
    reads: Sequence[str] = ()  # some CLIs only overwrite a file that the agent has read
    files: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    text: str = DONE


def scripted_answer(script: Sequence[ScriptedTurn], conversation: Conversation) -> StubAnswer:
    """Return the answer to the newest prompt that a turn of the script knows."""
    for prompt in reversed(conversation.prompts):
        for turn in script:
            if turn.prompt in prompt:
                return _next_answer(_scripted_steps(turn), conversation) or StubAnswer(reply=TextReply(turn.text))
    return StubAnswer(reply=TextReply(DONE))


@dataclass(frozen=True)
class _Step:
    """A tool call that a scenario makes. It is done as soon as the history has a call with `mark` in its arguments."""

    mark: str
    make: Callable[[Conversation], ToolCallReply | None]


def answer_to(scenario: str, arguments: Sequence[str], conversation: Conversation, tries: int) -> StubAnswer:
    """Return the answer of `scenario`. `tries`: how many requests came to the same address before this one."""
    if scenario in ("flaky", "first"):
        kind, count = ("529", arguments[:1]) if scenario == "flaky" else (arguments[0], arguments[1:2])
        if tries < int("".join(count) or 1):
            return StubAnswer(reply=_failure(kind, arguments[3:4] if scenario == "first" else ()))
        scenario, arguments = "tool", ()
    if scenario in FAILURES:
        return StubAnswer(reply=_failure(scenario, arguments))
    if scenario == "slow":
        return StubAnswer(reply=TextReply(DONE), manner=Manner.SLOW, seconds=float("".join(arguments[:1]) or 30))
    if scenario in _MANNERS:
        return StubAnswer(reply=TextReply(DONE), manner=_MANNERS[scenario])
    if answer := _next_answer(_steps(scenario, arguments), conversation):
        return answer
    if scenario == "tool" and _wants_listings(conversation):
        return StubAnswer(reply=TextReply(f"{OUT_FILE}\n```\n{OUT_TEXT}\n```\n"))
    return StubAnswer(reply=TextReply(LIMIT_TEXT if scenario == "limittext" else DONE), warning=scenario == "warning")


def _failure(kind: str, arguments: Sequence[str]) -> ProviderFailure:
    asked = int(arguments[0]) if arguments else None
    if kind == "429-long":
        return ProviderFailure("429", RETRY_LATE)
    default = {"429": RETRY_SOON, "usage-limit": RESET_IN}.get(kind, 0)
    return ProviderFailure(kind, default if asked is None else asked)


def _steps(scenario: str, arguments: Sequence[str]) -> list[_Step]:
    write = _Step(OUT_FILE, lambda conversation: tools.write_file(conversation, OUT_FILE, OUT_TEXT))
    match scenario:
        case "tool":
            return [write]
        case "shell":
            return [_shell("/".join(arguments))]  # a client may have decoded the slashes
        case "nohup":
            return [_shell(NOHUP)]
        case "slowtool":
            return [_shell(SLOW), write]
    return []


def _scripted_steps(turn: ScriptedTurn) -> Iterator[_Step]:
    for name in turn.reads:
        yield _Step(name, partial(tools.read_file, name=name))
    for name, text in turn.files.items():
        yield _Step(text.rstrip("\n"), partial(tools.write_file, name=name, content=text.rstrip("\n")))
    if turn.command:
        yield _shell(turn.command)


def _next_answer(steps: Iterable[_Step], conversation: Conversation) -> StubAnswer | None:
    """Return the first tool call that the history lacks."""
    for step in steps:
        if not any(step.mark in call for call in conversation.calls) and (call := step.make(conversation)):
            return StubAnswer(reply=call)
    return None


def _shell(command: str) -> _Step:
    return _Step(command, lambda conversation: tools.run_command(conversation, command))


def _wants_listings(conversation: Conversation) -> bool:
    """True if the agent has no tools and takes whole files from the model's text (aider)."""
    return not conversation.tools and "*file listing*" in conversation.system
