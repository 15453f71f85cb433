"""Any command as an agent. The prompt is its standard input. Exit code 0 is success, as there is no other evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from holdfast.agents.port import NO_EDITS, AgentCommand, Capabilities, EndedRun, HostFacts, Stream, WorkOrder
from holdfast.core.runs.outcome import Outcome, Verdict

if TYPE_CHECKING:
    from holdfast.core.agents.events import AgentEvent
    from holdfast.core.health.signs import Sign


class CommandAgent:
    """The adapter for any command. Its output has no known form, so no events are read from it."""

    name = "command"
    capabilities = Capabilities(resume=False, tokens=False)
    reads_events = False
    reads_errors = False
    result_files: Sequence[str] = ()
    login_variables: Sequence[str] = ()
    longest_quiet_answer = 0.0
    litter: Sequence[str] = ()
    own_edits: Mapping[str, str] = NO_EDITS

    def provider(self, _options: Mapping[str, object]) -> str:
        return ""  # the provider is not known

    def problem(self, options: Mapping[str, object], _surroundings: HostFacts) -> str | None:
        if not _argv(options):
            return "the command agent needs a command: put it after `--`, or set command.argv in your config"
        return None

    def build(self, order: WorkOrder) -> AgentCommand:
        return AgentCommand(argv=_argv(order.options), stdin=order.prompt)

    def judge(self, ended: EndedRun) -> Verdict:
        code, tail = ended.end.code, ended.error_tail
        if code == 0:
            return Verdict(outcome=Outcome.COMPLETED, reason="the command exited with code 0", error_tail=tail)
        return Verdict(outcome=Outcome.FAILED, reason=f"the command exited with code {code}", error_tail=tail)

    def parse(self, line: str, _stream: Stream) -> Sequence[AgentEvent]:
        from holdfast.core.agents.events import RawLine  # `add` has to start fast and never parses output

        return (RawLine(text=line),)  # output of an unknown command is never interpreted

    def signs(self, line: str, _stream: Stream) -> Sequence[Sign]:
        return ()


def _argv(options: Mapping[str, object]) -> list[str]:
    words = options.get("argv")
    return [str(word) for word in words] if isinstance(words, list | tuple) else []


COMMAND = CommandAgent()
