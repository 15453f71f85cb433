"""The outcome of a run: one closed set, one classifier.

The keeper's record has the facts about the process. The agent's adapter returns the meaning of its output. The process
facts come first: a death that Holdfast asked for, a timeout or a lost host must never count as the agent's own fault.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from holdfast.base.dataclass import dataclass
from holdfast.core.model import StopWhy


class Outcome(StrEnum):
    COMPLETED = "completed"
    FAILED = "failed"
    EXTERNAL_KILL = "external_kill"
    OUT_OF_MEMORY = "out_of_memory"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    STUCK = "stuck"
    LOOPING = "looping"
    STARTUP_TIMEOUT = "startup_timeout"
    OVERLOADED = "overloaded"
    NETWORK = "network"
    RATE_LIMITED = "rate_limited"
    USAGE_LIMITED = "usage_limited"
    CONTEXT_LIMIT = "context_limit"
    SESSION_LOST = "session_lost"
    AUTH = "auth"
    BILLING = "billing"
    TURN_LIMIT = "turn_limit"
    OVER_BUDGET = "over_budget"
    OUTPUT_LIMIT = "output_limit"
    PROCESS_LIMIT = "process_limit"
    LAUNCH_ERROR = "launch_error"
    WORKSPACE_GONE = "workspace_gone"  # its agent succeeded, but its workspace did not exist any more
    LOST = "lost"
    CANCELLED = "cancelled"
    STOPPED = "stopped"  # we asked, without giving the task up: `down`
    PAUSED = "paused"  # an operator paused the task, and will resume it
    UNKNOWN = "unknown"


EXPECTED = frozenset({Outcome.COMPLETED, Outcome.CANCELLED, Outcome.STOPPED, Outcome.PAUSED})
"""Endings that were wanted: the agent's success, or our own stop. Every other one is unexpected (R-TERM-08)."""

_UNHEALTHY = frozenset({Outcome.STUCK, Outcome.LOOPING, Outcome.STARTUP_TIMEOUT})


def termination_reason(outcome: Outcome) -> str:
    """Return the name of an outcome in the event `agent.terminated` (R-TERM-08). Three health verdicts have the same
    name there."""
    if outcome in _UNHEALTHY:
        return "health_check_failed"
    return "error" if outcome is Outcome.FAILED else str(outcome)


class Cause(StrEnum):
    """The cause of the end of a run's first process, according to its keeper (`cause` in exit.json)."""

    EXITED = "exited"  # by itself, or by a signal that was not ours
    STOPPED = "stopped"  # our kill ladder, on request
    TIMEOUT = "timeout"  # our kill ladder, deadline passed
    ORPHANED = "orphaned"  # our kill ladder, no supervisor for too long
    OUT_OF_MEMORY = "out_of_memory"  # the kernel killed in the run's cgroup: the memory limit was reached
    OUTPUT_LIMIT = "output_limit"  # our kill ladder, it wrote more than its limit
    PROCESS_LIMIT = "process_limit"  # our kill ladder, it had more processes than its limit
    EXEC_FAILED = "exec_failed"  # the command could not be started
    NEVER_STARTED = "never_started"  # no keeper ever let the agent run
    KEEPER_DIED = "keeper_died"  # the keeper was killed; the tree is proven empty all the same
    ENGINE_LOST = "engine_lost"  # the container's engine went away while the run was started, or while it ended
    UNPROVEN = "unproven"  # nothing proves whether the tree is empty


REBOOTED = "the machine was restarted since"  # the detail of a KEEPER_DIED after a reboot


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessEnd:
    """The facts in the run directory about the end of the process."""

    cause: Cause
    code: int | None = None
    signal: int | None = None
    detail: str = ""
    at: float | None = None  # wall time of the leader's end, recorded by its keeper
    oom_kills: int = 0  # by the kernel while the run lasted, counted as near to the run as the machine does


@dataclass(frozen=True, kw_only=True, slots=True)
class RunUsage:
    """The tokens and the money that a run used, as far as its agent reported them. Cached tokens are part of the input,
    reasoning tokens part of the output."""

    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0
    cost_usd: float | None = None
    turns: int | None = None
    model: str = ""

    @property
    def tokens(self) -> int:
        return self.input + self.output


@dataclass(frozen=True, kw_only=True, slots=True)
class RefusedCalls:
    """The tool calls of a run that its CLI did not permit."""

    count: int = 0
    first: tuple[str, ...] = ()  # the first different ones, for people: "Bash: make test"


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """A run's ending in the form that the policy decides on."""

    outcome: Outcome
    reason: str
    resets_at: float | None = None
    session_id: str | None = None
    error_tail: str = ""
    usage: RunUsage | None = None  # None: the agent did not report it
    has_answer: bool = True  # False: its model neither wrote nor did anything in this run
    refused: RefusedCalls | None = None  # None: the agent did not report it


SIGKILL, SIGTERM, SIGINT, SIGHUP = 9, 15, 2, 1
_OUTSIDE_SIGNALS = frozenset({SIGKILL, SIGTERM, SIGINT, SIGHUP})

_BY_CAUSE = {
    Cause.TIMEOUT: (Outcome.TIMEOUT, "ran longer than its timeout"),
    Cause.ORPHANED: (Outcome.LOST, "no supervisor reached its keeper for too long, so the keeper ended it"),
    Cause.OUT_OF_MEMORY: (Outcome.OUT_OF_MEMORY, "it hit its memory limit"),
    Cause.OUTPUT_LIMIT: (Outcome.OUTPUT_LIMIT, "it wrote more output than its limit allows"),
    Cause.PROCESS_LIMIT: (Outcome.PROCESS_LIMIT, "it started more processes and threads than its limit allows"),
    Cause.EXEC_FAILED: (
        Outcome.LAUNCH_ERROR,
        "the agent could not be started (is it installed, executable and in the supervisor's PATH?)",
    ),
    Cause.NEVER_STARTED: (Outcome.LOST, "its keeper or supervisor died before the agent was started"),
    Cause.KEEPER_DIED: (Outcome.LOST, "its keeper was killed"),
    Cause.ENGINE_LOST: (
        Outcome.LOST,
        "the container engine went away while it ran, so nothing proves how its agent ended",
    ),
    Cause.UNPROVEN: (Outcome.UNKNOWN, "its keeper is gone and nothing proves that its processes are"),
}


_BY_STOP = {
    StopWhy.STUCK: Outcome.STUCK,
    StopWhy.DOOMED: Outcome.STUCK,
    StopWhy.LOOPING: Outcome.LOOPING,
    StopWhy.STARTUP: Outcome.STARTUP_TIMEOUT,
    StopWhy.MEMORY: Outcome.OUT_OF_MEMORY,
    StopWhy.BUDGET: Outcome.OVER_BUDGET,
    StopWhy.DEADLINE: Outcome.TIMEOUT,
}


_STOPS_FOR_SILENCE = frozenset({StopWhy.STUCK, StopWhy.LOOPING, StopWhy.DOOMED})
_SILENCE_CAUSES = frozenset(
    {
        Outcome.RATE_LIMITED,
        Outcome.USAGE_LIMITED,
        Outcome.AUTH,
        Outcome.BILLING,
        Outcome.CONTEXT_LIMIT,
        Outcome.OVERLOADED,
        Outcome.NETWORK,
        Outcome.SESSION_LOST,
    }
)
"""Outcomes that explain an agent's silence: it sleeps until a limit resets, or retries for ever. They come from its
structured output."""


_UNEXPLAINED_BY_PAUSE = frozenset({Cause.EXITED, Cause.EXEC_FAILED, Cause.UNPROVEN})
"""Causes that a pause does not explain. Every other cause arose while the run was being ended anyway, so it costs the
task nothing."""


def classify(end: ProcessEnd, stop_why: StopWhy | None, from_agent: Verdict, stop_reason: str | None = None) -> Verdict:
    """Combine the facts about the process with the verdict from the agent's own output."""
    if stop_why is StopWhy.CANCEL and end.cause is not Cause.UNPROVEN:
        return _with_outcome(from_agent, Outcome.CANCELLED, "cancelled by an operator")
    if stop_why is StopWhy.PAUSE and end.cause not in _UNEXPLAINED_BY_PAUSE:
        return _judge_stopped(stop_why, from_agent, stop_reason)
    if end.cause is Cause.NEVER_STARTED and stop_why is not None:
        return _judge_stopped(stop_why, from_agent, stop_reason)
    if end.cause in _BY_CAUSE:
        outcome, reason = _BY_CAUSE[end.cause]
        return _with_outcome(from_agent, outcome, f"{reason}: {end.detail}" if end.detail else reason)
    if end.cause is Cause.STOPPED:
        return _judge_stopped(stop_why, from_agent, stop_reason)
    if end.signal is not None and stop_why is not None:
        return _judge_stopped(
            stop_why, from_agent, stop_reason
        )  # it died just before our signal: asked for all the same
    if end.signal is not None:
        return _judge_signalled(end, end.signal, from_agent)
    return from_agent


def _judge_stopped(stop_why: StopWhy | None, from_agent: Verdict, stop_reason: str | None) -> Verdict:
    if stop_why is None:
        return _with_outcome(from_agent, Outcome.EXTERNAL_KILL, "its keeper was asked to stop from outside Holdfast")
    if stop_why in (StopWhy.STUCK, StopWhy.DEADLINE) and from_agent.outcome is Outcome.COMPLETED:
        return replace(from_agent, reason=f"{from_agent.reason}; its processes were ended because it did not exit")
    if stop_why is StopWhy.BUDGET and from_agent.outcome is Outcome.COMPLETED:
        return from_agent  # the agent had completed before the stop reached it
    if stop_why in _STOPS_FOR_SILENCE and from_agent.outcome in _SILENCE_CAUSES:
        how = "" if stop_why is StopWhy.DOOMED else f" ({stop_reason or stop_why})"  # the reason would be repeated
        return replace(from_agent, reason=f"{from_agent.reason}; it did not end by itself{how}")
    if stop_why is StopWhy.DOOMED and from_agent.outcome is not Outcome.COMPLETED:
        outcome = Outcome.FAILED if from_agent.outcome is Outcome.CRASHED else from_agent.outcome
        return replace(from_agent, outcome=outcome, reason=f"{from_agent.reason} ({stop_reason or stop_why})")
    if stop_why in _BY_STOP:
        return _with_outcome(from_agent, _BY_STOP[stop_why], stop_reason or f"ended by us ({stop_why})")
    if stop_why is StopWhy.CLAIMED:
        return from_agent  # the claim was judged with the output. That the agent did not exit changes nothing
    if stop_why is StopWhy.PAUSE:
        return _with_outcome(from_agent, Outcome.PAUSED, stop_reason or "paused by an operator")
    return _with_outcome(from_agent, Outcome.STOPPED, f"stopped by us ({stop_why}); it will continue")


def _judge_signalled(end: ProcessEnd, number: int, from_agent: Verdict) -> Verdict:
    if number == SIGKILL and end.oom_kills > 0:
        why = f"killed, very likely by the kernel for lack of memory ({end.oom_kills} OOM kill(s) while it ran)"
        return _with_outcome(from_agent, Outcome.OUT_OF_MEMORY, why)
    if number in _OUTSIDE_SIGNALS:
        return _with_outcome(from_agent, Outcome.EXTERNAL_KILL, f"killed by signal {number} from outside Holdfast")
    return _with_outcome(from_agent, Outcome.CRASHED, f"crashed with signal {number}")


def _with_outcome(verdict: Verdict, outcome: Outcome, reason: str) -> Verdict:
    return replace(verdict, outcome=outcome, reason=reason, resets_at=None)
