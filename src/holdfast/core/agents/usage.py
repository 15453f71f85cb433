"""The usage of a run, added up from the reports of its agent. Nothing counts twice."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from holdfast.core.runs.outcome import RunUsage

if TYPE_CHECKING:  # `why` reads health without loading the events of agents
    from holdfast.core.agents.events import Usage

MAX_MESSAGES = 64  # messages that may be reported again; fewer sub-agents than this report at the same time

MOST_ID = 128  # characters of a message's id


@dataclass(kw_only=True)
class UsageCounter:
    """The usage of one run. Every `Usage` event of the run is added to it, in order."""

    is_told: bool = False
    _settled: RunUsage = field(default_factory=RunUsage)
    _since: RunUsage = field(default_factory=RunUsage)  # reported since, not settled yet
    _messages: dict[str, RunUsage] = field(default_factory=dict)

    def add(self, usage: Usage) -> None:
        self.is_told = True
        said = _read(usage)
        if usage.is_total:
            cost = self.total.cost_usd if said.cost_usd is None else said.cost_usd
            self._settled, self._since = replace(said, cost_usd=cost), RunUsage()
        elif usage.settles:
            self._settled, self._since = _sum(self._settled, said), RunUsage()
        else:
            self._since = _sum(self._since, self._new_usage(usage.of, said))

    @property
    def total(self) -> RunUsage:
        return _sum(self._settled, self._since)

    def dump(self) -> dict[str, Any]:
        """Return the counter's state for the next supervisor, which continues reading at the same position."""
        return {
            "is_told": self.is_told,
            "settled": _to_list(self._settled),
            "since": _to_list(self._since),
            "messages": {message[:MOST_ID]: _to_list(said) for message, said in self._messages.items()},
        }

    @classmethod
    def load(cls, kept: Mapping[str, Any]) -> UsageCounter:
        """Rebuild the counter from what `dump` returned. Raise ValueError, KeyError or the like for data of another
        form."""
        found = cls(is_told=bool(kept["is_told"]))
        found._settled, found._since = _from_list(kept["settled"]), _from_list(kept["since"])
        messages = list(kept["messages"].items())[:MAX_MESSAGES]
        found._messages = {str(message): _from_list(said) for message, said in messages}
        return found

    def _new_usage(self, message: str, said: RunUsage) -> RunUsage:
        """Return the usage that is new for this message. A later report of the same message may be larger, never
        smaller."""
        if not message:
            return said
        message = message[:MOST_ID]
        before = self._messages.pop(message, RunUsage())
        self._messages[message] = said
        if len(self._messages) > MAX_MESSAGES:
            self._messages.pop(next(iter(self._messages)))
        return RunUsage(
            input=max(0, said.input - before.input),
            output=max(0, said.output - before.output),
            cached=max(0, said.cached - before.cached),
            reasoning=max(0, said.reasoning - before.reasoning),
            cost_usd=None if said.cost_usd is None else max(0.0, said.cost_usd - (before.cost_usd or 0.0)),
        )


def _to_list(usage: RunUsage) -> list[float | None]:
    return [usage.input, usage.output, usage.cached, usage.reasoning, usage.cost_usd]


def _from_list(kept: Sequence[Any]) -> RunUsage:
    from holdfast.core.agents.events import Usage

    told, past, cached, reasoning, cost = kept
    return _read(
        Usage(
            input=int(told),
            output=int(past),
            cached=int(cached),
            reasoning=int(reasoning),
            cost_usd=None if cost is None else float(cost),
        )
    )


def _read(usage: Usage) -> RunUsage:
    cost = usage.cost_usd
    return RunUsage(
        input=max(0, usage.input),
        output=max(0, usage.output),
        cached=max(0, usage.cached),
        reasoning=max(0, usage.reasoning),
        cost_usd=cost if cost is not None and math.isfinite(cost) and cost >= 0 else None,
    )


def _sum(one: RunUsage, other: RunUsage) -> RunUsage:
    costs = [cost for cost in (one.cost_usd, other.cost_usd) if cost is not None]
    return RunUsage(
        input=one.input + other.input,
        output=one.output + other.output,
        cached=one.cached + other.cached,
        reasoning=one.reasoning + other.reasoning,
        cost_usd=sum(costs) if costs else None,
    )
