"""How a run ended: one closed set, one classifier.

The keeper's record says what happened to the process; the agent's adapter says what its output meant. The process
facts come first, because a death that we asked for, a timeout or a lost host must never be read as the agent's own
doing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

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
    LOST = "lost"
    CANCELLED = "cancelled"
    STOPPED = "stopped"  # we asked, without giving the task up: `down`
    PAUSED = "paused"  # an operator asked, and will say when it goes on
    UNKNOWN = "unknown"


EXPECTED = frozenset({Outcome.COMPLETED, Outcome.CANCELLED, Outcome.STOPPED, Outcome.PAUSED})
"""Ends that somebody wanted: the agent's success, or our own stop. Every other one is unexpected (R-TERM-08)."""

_UNHEALTHY = frozenset({Outcome.STUCK, Outcome.LOOPING, Outcome.STARTUP_TIMEOUT})


def reason_word(outcome: Outcome) -> str:
    """How `agent.terminated` names an ending (R-TERM-08): three verdicts of ours are one word there."""
    if outcome in _UNHEALTHY:
        return "health_check_failed"
    return "error" if outcome is Outcome.FAILED else str(outcome)


class Cause(StrEnum):
    """Why the keeper says its agent's leader ended (`cause` in exit.json)."""

    EXITED = "exited"  # by itself, or by a signal that was not ours
    STOPPED = "stopped"  # our kill ladder, on request
    TIMEOUT = "timeout"  # our kill ladder, deadline passed
    ORPHANED = "orphaned"  # our kill ladder, no supervisor for too long
    OUT_OF_MEMORY = "out_of_memory"  # the kernel killed in its cgroup: the memory limit was hit
    OUTPUT_LIMIT = "output_limit"  # our kill ladder, it wrote more than it may
    PROCESS_LIMIT = "process_limit"  # our kill ladder, it had more processes than it may
    EXEC_FAILED = "exec_failed"  # the command could not be started
    NEVER_STARTED = "never_started"  # no keeper ever let the agent run
    KEEPER_DIED = "keeper_died"  # the keeper was killed; the tree is proven empty all the same
    ENGINE_LOST = "engine_lost"  # its container's engine went away while it was started, or while it ended
    UNPROVEN = "unproven"  # nobody can say whether the tree is empty


REBOOTED = "the machine was restarted since"  # the detail of such a KEEPER_DIED


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessEnd:
    """What the run directory says of the process."""

    cause: Cause
    code: int | None = None
    signal: int | None = None
    detail: str = ""
    at: float | None = None  # wall time of the leader's end, by its keeper
    oom_kills: int = 0  # by the kernel, on the whole machine, while it ran


@dataclass(frozen=True, kw_only=True, slots=True)
class RunUsage:
    """What a run took, as far as its agent said. Tokens of the cache are part of the input, those of reasoning of the
    output."""

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
class Verdict:
    """A run's ending as the policy sees it."""

    outcome: Outcome
    reason: str
    resets_at: float | None = None
    session_id: str | None = None
    error_tail: str = ""
    usage: RunUsage | None = None  # None: the agent said nothing of it


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
        "the container engine went away under it, so that how its agent ended is nobody's word",
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


_OVER_SILENCE = frozenset({StopWhy.STUCK, StopWhy.LOOPING, StopWhy.DOOMED})
_TROUBLES = frozenset(
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
"""What an agent's structured words may explain its silence with: it sleeps out a limit, or tries again for ever."""


_NOT_BY_A_PAUSE = frozenset({Cause.EXITED, Cause.EXEC_FAILED, Cause.UNPROVEN})
"""Ends that a pause does not explain. Any other one came while it was ended anyway: it costs the task nothing."""


def classify(end: ProcessEnd, stop_why: StopWhy | None, from_agent: Verdict, stop_reason: str | None = None) -> Verdict:
    """Combine what happened to the process with what the agent's own output says."""
    if stop_why is StopWhy.CANCEL and end.cause is not Cause.UNPROVEN:
        return _with(from_agent, Outcome.CANCELLED, "cancelled by an operator")
    if stop_why is StopWhy.PAUSE and end.cause not in _NOT_BY_A_PAUSE:
        return _stopped(stop_why, from_agent, stop_reason)
    if end.cause is Cause.NEVER_STARTED and stop_why is not None:
        return _stopped(stop_why, from_agent, stop_reason)
    if end.cause in _BY_CAUSE:
        outcome, reason = _BY_CAUSE[end.cause]
        return _with(from_agent, outcome, f"{reason}: {end.detail}" if end.detail else reason)
    if end.cause is Cause.STOPPED:
        return _stopped(stop_why, from_agent, stop_reason)
    if end.signal is not None and stop_why is not None:
        return _stopped(stop_why, from_agent, stop_reason)  # it died just before our signal: asked for all the same
    if end.signal is not None:
        return _signalled(end, end.signal, from_agent)
    return from_agent


def _stopped(stop_why: StopWhy | None, from_agent: Verdict, stop_reason: str | None) -> Verdict:
    if stop_why is None:
        return _with(from_agent, Outcome.EXTERNAL_KILL, "its keeper was told to stop by someone outside Holdfast")
    if stop_why in (StopWhy.STUCK, StopWhy.DEADLINE) and from_agent.outcome is Outcome.COMPLETED:
        return replace(from_agent, reason=f"{from_agent.reason}; its processes were ended because it did not exit")
    if stop_why is StopWhy.BUDGET and from_agent.outcome is Outcome.COMPLETED:
        return from_agent  # it was done before the word to stop reached it
    if stop_why in _OVER_SILENCE and from_agent.outcome in _TROUBLES:
        how = "" if stop_why is StopWhy.DOOMED else f" ({stop_reason or stop_why})"  # that would say the same again
        return replace(from_agent, reason=f"{from_agent.reason}; it did not end by itself{how}")
    if stop_why is StopWhy.DOOMED and from_agent.outcome is not Outcome.COMPLETED:
        outcome = Outcome.FAILED if from_agent.outcome is Outcome.CRASHED else from_agent.outcome
        return replace(from_agent, outcome=outcome, reason=f"{from_agent.reason} ({stop_reason or stop_why})")
    if stop_why in _BY_STOP:
        return _with(from_agent, _BY_STOP[stop_why], stop_reason or f"ended by us ({stop_why})")
    if stop_why is StopWhy.CLAIMED:
        return from_agent  # the claim was judged with its output; that it did not exit changes nothing
    if stop_why is StopWhy.PAUSE:
        return _with(from_agent, Outcome.PAUSED, stop_reason or "paused by an operator")
    return _with(from_agent, Outcome.STOPPED, f"stopped by us ({stop_why}); it will continue")


def _signalled(end: ProcessEnd, number: int, from_agent: Verdict) -> Verdict:
    if number == SIGKILL and end.oom_kills > 0:
        why = f"killed, very likely by the kernel for lack of memory ({end.oom_kills} OOM kill(s) while it ran)"
        return _with(from_agent, Outcome.OUT_OF_MEMORY, why)
    if number in _OUTSIDE_SIGNALS:
        return _with(from_agent, Outcome.EXTERNAL_KILL, f"killed by signal {number} from outside Holdfast")
    return _with(from_agent, Outcome.CRASHED, f"crashed with signal {number}")


def _with(verdict: Verdict, outcome: Outcome, reason: str) -> Verdict:
    return replace(verdict, outcome=outcome, reason=reason, resets_at=None)
