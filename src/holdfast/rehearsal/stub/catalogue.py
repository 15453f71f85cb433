"""The scenarios by name. Imports nothing of the server: help and errors show it."""

from __future__ import annotations

from collections.abc import Sequence

OUT_FILE, OUT_TEXT = "out.txt", "hello from agent"

FAILURES = ("401", "429", "429-long", "usage-limit", "credit", "500", "503", "529", "context-too-long")
# Every scenario with the sentence that help and docs show. What stands in capitals is an argument in the path.
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
    "503": "the provider is overloaded, as OpenAI and Google say it",
    "529": "the provider is overloaded, as Anthropic says it",
    "context-too-long": "the conversation does not fit into the model's context",
    "refused": "nobody listens: the connection is refused",
    "reset": "the connection is reset",
    "hang": "no answer, not even headers",
    "hang-stream": "headers and the first words, then nothing",
    "slow": "answers honestly, but takes SECONDS (slow/SECONDS, else 30) from the first word to the last",
    "cut-stream": "the stream is cut midway",
    "error-stream": "an error event in the middle of the stream",
    "flaky": "the first N requests fail as 529 does (flaky/N/KEY), then as `tool`",
    "first": "the first N requests fail as FAILURE does (first/FAILURE/N/KEY[/SECONDS]), then as `tool`",
}
_WITH_NUMBER = ("flaky", "429", "usage-limit", "slow")


def unknown(scenario: str, arguments: Sequence[str]) -> str:
    """Why there is no such scenario; nothing if there is."""
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
