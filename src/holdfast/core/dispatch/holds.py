"""Holds on dispatch, and the one task that starts first as a probe. Pure.

Three kinds of tasks are held:

- tasks of a provider that does not answer
- tasks of an account whose limit should be over
- all tasks after a mass death (core/dispatch/mass_death.py)

Each hold is one durable row with a time. When that time has come, exactly one task may start: the probe. The result of
the probe releases the other tasks or extends the hold. A fourth kind of hold only slows dispatch: an account that is
near its limit.

A hold ends by its probe, by an operator, or otherwise by time. It never waits for a process that is gone. See ADR 0023.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from enum import StrEnum

from holdfast.base.dataclass import dataclass
from holdfast.base.instant import Instant
from holdfast.core.dispatch.accounts import PARKING, STOPPING, ClosedAccount
from holdfast.core.runs.outcome import Outcome, Verdict
from holdfast.core.runs.retry_budgets import backoff
from holdfast.core.states import TaskState

_CLOCK_WAS_SET_BACK = 60.0  # a time that was decided further in the future counts as over
CANDIDATE_PATIENCE = 60.0  # seconds that a resumed task may wait in the queue before another one may become the probe
MAX_MASS_DEATHS = 3  # mass deaths within a day: after the last one only an operator releases the hold
LONGEST_PROBE = 1800.0  # seconds that one probe may keep all others waiting, whatever it reports


class Scope(StrEnum):
    PROVIDER = "provider"  # does not answer; the name is the provider's
    ACCOUNT = "account"  # its limit should be over, which no run has proven yet; agent/name
    FLEET = "fleet"  # many agents died at once; the name is `all`
    NEAR = "near"  # an account near its limit; agent/name


OUTAGE = frozenset({Outcome.OVERLOADED, Outcome.NETWORK})
_ANSWERED_OUTCOMES = frozenset(
    {Outcome.COMPLETED, Outcome.CONTEXT_LIMIT, Outcome.TURN_LIMIT, Outcome.OVER_BUDGET, Outcome.LOOPING}
) | (PARKING | STOPPING)


@dataclass(frozen=True, kw_only=True, slots=True)
class HoldRules:
    """The settings of holds."""

    failures: int = 2  # in a row, of one provider; 0: its tasks are never held
    hold: float = 16.0  # seconds of the first hold; each later one is twice as long
    longest: float = 300.0
    alone: float = 60.0  # seconds for which a probe without trouble keeps the others waiting
    near_starts: int = 1  # agents that may run at once, of those that started after the warning; 0: no slowing
    deaths: int = 5  # 0: mass deaths are not detected
    death_share: float = 0.5
    death_window: float = 30.0
    death_hold: float = 300.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """The task that starts first. `state` is the current state of the task. None: the task no longer exists."""

    task_id: str
    since: Instant
    state: TaskState | None

    def is_under_way(self) -> bool:
        return self.state is TaskState.RUNNING

    def is_waiting_to_start(self, now: Instant) -> bool:
        """True if the task was resumed to become the probe and is not claimed yet. Always false after a reboot, because
        a clock that was set back during the reboot would turn a minute into years."""
        if self.state is not TaskState.QUEUED or self.since.boot_id != now.boot_id:
            return False
        return now.since(self.since) < CANDIDATE_PATIENCE


@dataclass(frozen=True, kw_only=True, slots=True)
class Hold:
    """One row of the store. `until` is None while failures are only counted and nothing is held."""

    scope: Scope
    name: str
    since: Instant  # when the hold began, in this episode
    until: float | None
    decided: float  # wall time at which `until` was decided
    reason: str
    failures: int = 0  # in a row; of the fleet: mass deaths within a day
    rounds: int = 0  # how often the hold was extended
    probe: Probe | None = None

    @property
    def full_name(self) -> str:
        return f"{self.scope}:{self.name}"

    @property
    def is_held(self) -> bool:
        return self.until is not None

    @property
    def needs_operator(self) -> bool:
        """True if mass deaths keep coming back, so only an operator can release the hold. In that case a probe that
        lives proves nothing any more."""
        return self.scope is Scope.FLEET and self.is_held and self.failures >= MAX_MASS_DEATHS

    def is_waiting(self, now: Instant) -> bool:
        """True if the time of the hold has not come. If the clock was set back since the hold was decided, its time
        counts as come."""
        if self.needs_operator:
            return True
        return self.until is not None and now.wall < self.until and self.decided <= now.wall + _CLOCK_WAS_SET_BACK

    def has_running_probe(self) -> bool:
        return self.probe is not None and self.probe.is_under_way()

    def blocks_task(self, now: Instant, task_id: str | None = None) -> bool:
        """True if the task has to wait because of the hold. The probe itself never waits."""
        if self.scope is Scope.NEAR or not self.is_held:
            return False
        if self.probe is not None and self.probe.task_id == task_id and self.has_running_probe():
            return False
        return self.is_waiting(now) or self.has_running_probe()

    def may_start_probe(self, now: Instant) -> bool:
        return (
            self.scope is not Scope.NEAR and self.is_held and not self.is_waiting(now) and not self.has_running_probe()
        )

    def with_probe(self, task_id: str, now: Instant, state: TaskState = TaskState.RUNNING) -> Hold:
        return replace(self, probe=Probe(task_id=task_id, since=now, state=state))

    def is_probe(self, task_id: str) -> bool:
        return self.probe is not None and self.probe.task_id == task_id

    def may_resume_probe(self, now: Instant) -> bool:
        """True if a paused task may be resumed to become the probe (R-RES-08). The other tasks stay paused and spend no
        resume."""
        return self.may_start_probe(now) and not (self.probe is not None and self.probe.is_waiting_to_start(now))


# -- a provider --------------------------------------------------------------------------------------------------------


def has_provider_answered(verdict: Verdict) -> bool:
    """True if the ending proves that the provider answered."""
    tokens = verdict.usage is not None and verdict.usage.tokens > 0
    return verdict.outcome in _ANSWERED_OUTCOMES or (tokens and verdict.outcome not in OUTAGE)


def update_provider_hold(
    hold: Hold | None, provider: str, task_id: str, verdict: Verdict, rules: HoldRules, now: Instant, jitter: float
) -> Hold | None:
    """Return the hold after a run of this provider ended. None: nothing is held, and no failure is counted."""
    if verdict.outcome in OUTAGE:
        return _count_provider_failure(hold, provider, task_id, verdict.reason, rules, now, jitter)
    if hold is None:
        return None
    if hold.is_held and not hold.is_probe(task_id):
        return hold  # this run began before the hold, so it proves nothing
    if has_provider_answered(verdict):
        return None
    return replace(hold, probe=None) if hold.is_probe(task_id) else hold


def _count_provider_failure(
    hold: Hold | None, provider: str, task_id: str, reason: str, rules: HoldRules, now: Instant, jitter: float
) -> Hold | None:
    if rules.failures == 0:
        return hold
    if hold is None:
        hold = Hold(scope=Scope.PROVIDER, name=provider, since=now, until=None, decided=now.wall, reason=reason)
    hold = replace(hold, failures=hold.failures + 1, reason=reason)
    if hold.is_held and not hold.is_probe(task_id):
        return hold  # this run began before the hold
    if not hold.is_held and hold.failures < rules.failures:
        return hold
    return extend_hold(hold, rules.hold, rules.longest, now, jitter)


def extend_hold(hold: Hold, first: float, longest: float, now: Instant, jitter: float) -> Hold:
    """Return the hold with a longer wait than its last one, and without a probe."""
    return replace(
        hold,
        since=hold.since if hold.is_held else now,
        until=now.wall + backoff(hold.rounds, longest, jitter, first),
        decided=now.wall,
        rounds=hold.rounds + 1,
        probe=None,
    )


def is_given_up(hold: Hold, outage: float, now: Instant) -> bool:
    """True if the outage lasts longer than any task's retry budget, so that the waiting tasks are left to an
    operator."""
    return (
        hold.scope is Scope.PROVIDER
        and hold.is_held
        and not hold.has_running_probe()
        and now.since(hold.since) >= outage
    )


def give_up_provider(hold: Hold, now: Instant) -> Hold:
    """Return the hold with its counters reset, so that every task that is resumed or added may start. The row stays, so
    that an answer of the provider closes the alert."""
    return replace(hold, until=None, decided=now.wall, failures=0, rounds=0, probe=None)


def is_outage(hold: Hold) -> bool:
    """True if dispatch is held or the provider was given up, so that the trouble concerns more than one task."""
    return hold.is_held or hold.failures == 0


# -- an account --------------------------------------------------------------------------------------------------------


def new_account_hold(account: str, now: Instant, before: Hold | None = None) -> Hold:
    """Return the hold of an account whose time has come: one task starts as the probe.

    `before`: the row that counts how often probes of the account met the same limit. The probe in that row may still
    run, if another run that began before it met the limit again.
    """
    reason = "its limit should be over, so one task starts first as a probe"
    hold = Hold(scope=Scope.ACCOUNT, name=account, since=now, until=now.wall, decided=now.wall, reason=reason)
    return hold if before is None else replace(hold, since=before.since, rounds=before.rounds, probe=before.probe)


def count_repeats(hold: Hold, task_id: str) -> int:
    """Return how often probes of the account met the same limit, the run that ends now included.

    A run that is not the probe counts as no repetition: the run began before the probe, or an operator opened the
    account.
    """
    return hold.rounds + (hold.is_probe(task_id) or (hold.is_held and not hold.has_running_probe()))


def _is_beside_probe(hold: Hold, task_id: str) -> bool:
    """True if another task is the probe and its agent runs, so that this task began before it."""
    return hold.has_running_probe() and not hold.is_probe(task_id)


def update_account_hold(hold: Hold, task_id: str, verdict: Verdict) -> Hold | None:
    """Return the hold after a run of the account ended. None: the account is open, or the run parked or stopped it for
    another reason (core/dispatch/accounts.py).

    A probe that met the same limit is only counted: nothing is held, because the account is parked. A run that began
    before the probe leaves the probe its place, however the run ends.
    """
    if _is_beside_probe(hold, task_id) and verdict.outcome not in STOPPING:
        return replace(hold, until=None) if verdict.outcome in PARKING else hold
    if verdict.outcome in PARKING and not verdict.has_answer:
        return replace(hold, until=None, rounds=count_repeats(hold, task_id), probe=None)
    if verdict.outcome in PARKING or verdict.outcome in STOPPING:
        return None
    if not hold.is_held:
        return None if verdict.outcome is Outcome.COMPLETED else hold
    if not hold.is_probe(task_id):
        return hold
    return None if has_provider_answered(verdict) else replace(hold, probe=None)


def new_near_limit_hold(account: str, until: float, reason: str, now: Instant) -> Hold:
    return Hold(scope=Scope.NEAR, name=account, since=now, until=until, decided=now.wall, reason=reason)


# -- while a probe runs ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeSight:
    """The observed state of the probe's run. `lived`: seconds since its agent started. None: not started."""

    lived: float | None = None
    has_answer: bool = False  # its model wrote or did something
    in_trouble: bool = False  # since then the agent only retries, or reported an error


class ProbeProgress(StrEnum):
    THROUGH = "through"  # the others may follow
    TOO_LONG = "too_long"  # the probe keeps all others waiting: the hold is extended, and another probe follows
    OPEN = "open"


def judge_probe(hold: Hold, sight: ProbeSight, rules: HoldRules, now: Instant) -> ProbeProgress:
    assert hold.probe is not None
    if not sight.in_trouble and sight.lived is not None:
        if hold.scope is not Scope.FLEET and sight.has_answer:
            return ProbeProgress.THROUGH
        if sight.lived >= rules.alone:
            return ProbeProgress.THROUGH
    return ProbeProgress.TOO_LONG if now.since(hold.probe.since) >= LONGEST_PROBE else ProbeProgress.OPEN


# -- who has to wait ---------------------------------------------------------------------------------------------------


def held_providers(holds: Collection[Hold], now: Instant) -> frozenset[str]:
    return frozenset(hold.name for hold in holds if hold.scope is Scope.PROVIDER and hold.blocks_task(now))


def is_everything_held(holds: Collection[Hold], now: Instant) -> bool:
    return any(hold.scope is Scope.FLEET and hold.blocks_task(now) for hold in holds)


def held_accounts(
    holds: Collection[Hold], crowded: Collection[str], now: Instant, task_id: str | None
) -> Sequence[ClosedAccount]:
    """Return the accounts that a task cannot use now: another task is the probe there, or enough agents run there
    already."""
    found = []
    for hold in holds:
        if (hold.scope is Scope.ACCOUNT and hold.blocks_task(now, task_id)) or (
            hold.scope is Scope.NEAR and hold.name in crowded
        ):
            agent, _, name = hold.name.partition("/")
            found.append(
                ClosedAccount(
                    agent=agent,
                    name=name,
                    until=hold.until if hold.until is not None else now.wall,
                    outcome=Outcome.RATE_LIMITED,
                    reason=hold.reason,
                    at=hold.decided,
                )
            )
    return found


def next_look_at_holds(holds: Collection[Hold], now: Instant) -> float | None:
    """Return when to look again: at the time of a hold, or soon while a probe is running."""
    moments = [
        hold.until for hold in holds if hold.until is not None and hold.is_waiting(now) and not hold.needs_operator
    ]
    if any(hold.has_running_probe() for hold in holds):
        moments.append(now.wall + PROBE_LOOK_INTERVAL)
    return min(moments, default=None)


PROBE_LOOK_INTERVAL = 1.0  # seconds between two looks at a probe
