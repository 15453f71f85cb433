"""Any command as an agent. The prompt comes on standard input; success is exit code 0, the only evidence there is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast.agents.port import Command, WorkOrder
from holdfast.core.outcome import Outcome, ProcessEnd, Verdict
from holdfast.core.signs import Sign


class CommandAgent:
    name = "command"
    reads_events = False

    def problem(self, options: Mapping[str, object]) -> str | None:
        if not _argv(options):
            return "the command agent needs a command: put it after `--`, or set command.argv in your config"
        return None

    def build(self, order: WorkOrder) -> Command:
        return Command(argv=_argv(order.options), stdin=order.prompt)

    def judge(self, end: ProcessEnd, output: Iterable[str], error_tail: str) -> Verdict:
        if end.code == 0:
            return Verdict(outcome=Outcome.COMPLETED, reason="the command exited with code 0", error_tail=error_tail)
        return Verdict(outcome=Outcome.FAILED, reason=f"the command exited with code {end.code}", error_tail=error_tail)

    def sign(self, line: str) -> Sign | None:
        return None  # any text may mean anything


def _argv(options: Mapping[str, object]) -> list[str]:
    words = options.get("argv")
    return [str(word) for word in words] if isinstance(words, list | tuple) else []
