"""The health of a living agent: from observations of a run to a diagnosis with its evidence (R-TERM-04, R-TERM-07).

Four rules, each of which can be switched off:

- doomed: the agent's own error shows that the agent cannot succeed, or it only retries (core/health/stalled.py).
- looping: too many events in a row were not new.
- start-up: there was never any sign of life.
- stuck: silence.

For the rule `stuck`, the silence of output and heartbeat is enough while the agent's events are read and no tool is
open. CPU use proves nothing then: an idle Node process uses a little CPU for ever. While a tool is open, or for an
agent without events, the process tree must be quiet as well. A longer limit applies even to a busy tree.

All times are CLOCK_MONOTONIC: a laptop that slept must not time everything out.
"""

from __future__ import annotations

import math
from dataclasses import replace
from enum import StrEnum

from holdfast.base.dataclass import dataclass
from holdfast.core.health.signs import OpenTool
from holdfast.core.health.stalled import Stall, StallKind, describe_stall, time_to_give_up
from holdfast.core.model import StopWhy
from holdfast.core.task_settings import HealthRules

LOOK_TWICE = 10.0  # seconds (or the whole threshold, if shorter) for which an adopted run is watched first
SOONEST, SOON, LATE = 0.1, 1.0, 30.0  # seconds between two looks at a tree: at least, at work, quiet


class Condition(StrEnum):
    ALIVE = "alive"
    STUCK = "stuck"
    LOOPING = "looping"
    STARTUP_TIMEOUT = "startup_timeout"
    DOOMED = "doomed"


STOP_WHY = {
    Condition.STUCK: StopWhy.STUCK,
    Condition.LOOPING: StopWhy.LOOPING,
    Condition.STARTUP_TIMEOUT: StopWhy.STARTUP,
    Condition.DOOMED: StopWhy.DOOMED,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeFacts:
    """The observed activity of the process tree of a run."""

    looked_at: float
    members: int
    child_at: float | None  # when its newest process started, except for the first ones
    quiet_since: float  # since then it used less than 1 % of a core, as a share of the rule's window
    share: float  # of one core …
    span: float  # … over so many seconds
    at_work: bool = False  # it used the CPU between the last two looks, or there was only one look


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFacts:
    """The observations of one run."""

    now: float
    started_at: float
    watched_since: float  # later than started_at: by a supervisor that adopted the run
    reads_events: bool  # its adapter understands its output
    output_at: float | None = None  # the newest output; None: never any
    heartbeat_at: float | None = None  # the newest heartbeat or report
    tools: tuple[OpenTool, ...] = ()
    steps: int = 0  # events in a row without progress
    last_step: str = ""
    stall: Stall | None = None
    tree: TreeFacts | None = None  # None: not looked at yet

    @property
    def sign_at(self) -> float | None:
        """Return the time of the newest output or heartbeat."""
        return max((at for at in (self.output_at, self.heartbeat_at) if at is not None), default=None)

    @property
    def needs_tree(self) -> bool:
        """True if the activity of the process tree is needed, because silence alone proves nothing."""
        return bool(self.tools) or not self.reads_events


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    condition: Condition
    reason: str  # one sentence; empty while the agent is alive
    look_at: float  # when to look again, if nothing changes (not later than now: at once); inf: no rule can apply
    due: float = math.inf  # when silence becomes a verdict, if nothing changes
    needs_tree: bool = False  # the next look must include the process tree
    facts: RunFacts
    rules: HealthRules

    @property
    def evidence(self) -> tuple[str, ...]:
        """Return every signal and its value. The evidence is made on demand, because most looks end in "alive"."""
        return _evidence(self.facts, self.rules)


@dataclass(frozen=True, slots=True)
class _Silence:
    """The silence rule that applies now."""

    condition: Condition
    limit: float
    since: float


def diagnose(facts: RunFacts, rules: HealthRules) -> Diagnosis:
    doomed_at = _doomed_at(facts, rules)
    if facts.stall is not None and facts.now >= doomed_at:
        why = describe_stall(facts.stall, format_seconds(facts.now - facts.stall.since))
        return _unhealthy(Condition.DOOMED, why, facts, rules)
    found = _judge_signs(facts, rules)
    if found.condition is Condition.ALIVE and doomed_at < found.due:
        return replace(found, look_at=min(found.look_at, doomed_at), due=doomed_at)
    return found


def _doomed_at(facts: RunFacts, rules: HealthRules) -> float:
    """Return the time from which the agent counts as doomed. inf: there is no such time."""
    stall = facts.stall
    if stall is None:
        return math.inf
    at = time_to_give_up(stall, rules, has_open_tool=bool(facts.tools))
    if stall.kind is StallKind.HOPELESS or facts.watched_since <= facts.started_at:
        return at
    return max(at, facts.watched_since + min(max(0.0, at - stall.since), LOOK_TWICE))


def _judge_signs(facts: RunFacts, rules: HealthRules) -> Diagnosis:
    if 0 < rules.loop_steps <= facts.steps:
        said = f': "{facts.last_step}"' if facts.last_step else ""
        return _unhealthy(Condition.LOOPING, f"{facts.steps} events in a row without progress{said}", facts, rules)
    silence = _silence(facts, rules)
    if silence is None:
        return Diagnosis(condition=Condition.ALIVE, reason="", look_at=math.inf, facts=facts, rules=rules)
    if facts.needs_tree:
        return _judge_with_tree(facts, rules, silence)
    due = max(silence.since + silence.limit, _watched_long_enough(facts, silence))
    if facts.now >= due:
        return _unhealthy(silence.condition, _sentence(facts, silence), facts, rules)
    return Diagnosis(condition=Condition.ALIVE, reason="", look_at=due, due=due, facts=facts, rules=rules)


def cpu_window(rules: HealthRules, *, seen: bool) -> float:
    """Return the time over which the CPU use of a tree is measured."""
    return rules.startup_timeout if not seen and _is_on(rules.startup_timeout) else rules.stuck_after


def _is_on(limit: float) -> bool:
    return 0 < limit < math.inf


def _silence(facts: RunFacts, rules: HealthRules) -> _Silence | None:
    sign_at = facts.sign_at
    if sign_at is None and _is_on(rules.startup_timeout):
        return _Silence(Condition.STARTUP_TIMEOUT, rules.startup_timeout, facts.started_at)
    if not _is_on(rules.stuck_after):
        return None
    return _Silence(Condition.STUCK, rules.stuck_after, facts.started_at if sign_at is None else sign_at)


def _watched_long_enough(facts: RunFacts, silence: _Silence) -> float:
    """Return when an adopted run was watched for long enough. The absence of a supervisor is not evidence against an
    agent, so the run is looked at twice, with time in between."""
    if facts.watched_since <= facts.started_at:
        return -math.inf
    return facts.watched_since + min(silence.limit, LOOK_TWICE)


def _judge_with_tree(facts: RunFacts, rules: HealthRules, silence: _Silence) -> Diagnosis:
    last = silence.since + (max(rules.tool_silence, silence.limit) if rules.tool_silence > 0 else math.inf)
    last = max(last, _watched_long_enough(facts, silence))
    if facts.now >= last:
        reason = f"{_sentence(facts, silence)}; that is too long even for a busy tool"
        return _unhealthy(silence.condition, reason, facts, rules)
    quiet = _quiet_moment(facts, silence)
    due = max(quiet + silence.limit, _watched_long_enough(facts, silence))
    tree = facts.tree
    if tree is not None and facts.now >= due and tree.looked_at >= due:
        return _unhealthy(silence.condition, f"{_sentence(facts, silence)}, and its processes are quiet", facts, rules)
    return Diagnosis(
        condition=Condition.ALIVE,
        reason="",
        look_at=min(last, due, _next_look(facts, silence)),
        due=min(last, due),
        needs_tree=True,
        facts=facts,
        rules=rules,
    )


def _quiet_moment(facts: RunFacts, silence: _Silence) -> float:
    """Return the time since which the agent is quiet. A tool's own deadline counts as a sign of life: the tool may be
    silent until then."""
    moments = [silence.since]
    moments += [tool.deadline_at for tool in facts.tools if tool.deadline_at is not None]
    if facts.tree is not None:
        moments.append(facts.tree.quiet_since)
        if facts.tree.child_at is not None:
            moments.append(facts.tree.child_at)
    return max(moments)


def _next_look(facts: RunFacts, silence: _Silence) -> float:
    """Return the time of the next look at the tree.

    The look comes soon after a sign of life, to find out when the silence begins. It comes soon while the tree works,
    to find out when the tree stops. Otherwise it comes late.
    """
    soon = min(max(silence.limit / 10, SOONEST), SOON)
    tree = facts.tree
    if tree is None or tree.looked_at < silence.since:
        return silence.since + soon
    return tree.looked_at + (soon if tree.at_work else min(max(silence.limit / 8, SOONEST), LATE))


def _unhealthy(condition: Condition, reason: str, facts: RunFacts, rules: HealthRules) -> Diagnosis:
    return Diagnosis(
        condition=condition,
        reason=reason,
        look_at=facts.now,
        needs_tree=facts.needs_tree,
        facts=facts,
        rules=rules,
    )


# -- texts
# ---------------------------------------------------------------------------------------------------------------


def format_seconds(amount: float) -> str:
    """Format a duration: 0.3 s, 12 s, 5 m, 2.5 h."""
    amount = max(0.0, amount)
    if amount < 9.95:
        return f"{amount:.1f} s"
    if amount < 119.5:
        return f"{amount:.0f} s"
    if amount < 7170:
        return f"{amount / 60:.0f} m"
    return f"{amount / 3600:.1f} h"


def _sentence(facts: RunFacts, silence: _Silence) -> str:
    long = format_seconds(facts.now - silence.since)
    if silence.condition is Condition.STARTUP_TIMEOUT:
        return f"not one sign of life since its start {long} ago (limit {format_seconds(silence.limit)})"
    return f"no sign of life for {long} (limit {format_seconds(silence.limit)})"


def _evidence(facts: RunFacts, rules: HealthRules) -> tuple[str, ...]:
    now = facts.now
    said = [
        f"no output since its start {format_seconds(now - facts.started_at)} ago"
        if facts.output_at is None
        else f"last output {format_seconds(now - facts.output_at)} ago",
        "no heartbeat"
        if facts.heartbeat_at is None
        else f"last heartbeat {format_seconds(now - facts.heartbeat_at)} ago",
    ]
    if facts.reads_events:
        said += [_tool_words(tool, now) for tool in facts.tools] or ["no tool open"]
        said.append(f"{facts.steps} events without progress (limit {rules.loop_steps or 'none'})")
        if facts.stall is not None:
            said.append(f"{facts.stall.kind} for {format_seconds(now - facts.stall.since)}: {facts.stall.words}")
    else:
        said.append("its agent writes no events that we read")
    if facts.tree is not None:
        tree = facts.tree
        used = f"{tree.share * 100:.1f} % of a core over {format_seconds(tree.span)}" if tree.span else "seen once"
        child = "none new" if tree.child_at is None else f"the newest started {format_seconds(now - tree.child_at)} ago"
        said.append(f"{tree.members} processes, {child}: {used}")
    elif facts.needs_tree:
        said.append("its processes were not looked at yet")
    else:
        said.append("its processes do not count while no tool is open")
    return tuple(said)


def _tool_words(tool: OpenTool, now: float) -> str:
    words = f"tool {tool.name or '?'} open for {format_seconds(now - tool.opened_at)}"
    if tool.deadline_at is None:
        return f"{words}, without a deadline"
    if tool.deadline_at > now:
        return f"{words}, its own deadline in {format_seconds(tool.deadline_at - now)}"
    return f"{words}, its own deadline passed {format_seconds(now - tool.deadline_at)} ago"
