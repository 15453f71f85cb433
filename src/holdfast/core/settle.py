"""The settlement: what happens to a task when one of its runs has ended. Pure.

The policy decides about the outcome. `settle` passes that decision through `STEPS`, in order: each step may change it
for one reason, and sees the same facts. The supervisor calls `settle` twice: before it saves the work, to learn whether
the task has ended, and again in the transaction that records the settlement, with the facts that this transaction
reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from holdfast.base.dataclass import dataclass
from holdfast.base.instant import Instant
from holdfast.core.dispatch.accounts import PARKING
from holdfast.core.dispatch.holds import Hold, is_outage
from holdfast.core.dispatch.mass_death import Death
from holdfast.core.dispatch.spending import pause_if_spent
from holdfast.core.dispatch.workers import CrashDecision, WorkerRecord, decide_after_run
from holdfast.core.model import PauseReason, Task
from holdfast.core.runs.crashes import CRASHES
from holdfast.core.runs.outcome import Verdict
from holdfast.core.runs.policy import (
    AUTO_RESUMED_PAUSES,
    FAILED_BY_LIMIT,
    Decision,
    PolicyAction,
    decide,
    rebase_times,
)
from holdfast.core.runs.retry_budgets import RESUMES_SPENT, Budget, RetryLimits, Spend, decide_resume, spent
from holdfast.core.workflows.advance import StageOutcome, advance, fail_if_stage_spent
from holdfast.core.workflows.next_stage import NextStep

BEHIND_PROBE = 0.25  # of the hold's time: so much later than the next probe a failed one comes back


@dataclass(frozen=True, kw_only=True, slots=True)
class ProviderHold:
    """The hold of the task's provider, before and after this ending."""

    before: Hold | None
    after: Hold | None


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerFacts:
    """The named worker that had the task."""

    record: WorkerRecord
    crashes: Sequence[Instant]  # since an operator started the worker last
    restarts: bool  # its settings let it continue after a crash
    is_configured: bool  # the settings still name it
    keeps_tasks: bool  # `crash.release_claims = false`


@dataclass(frozen=True, kw_only=True, slots=True)
class SettleFacts:
    """Everything that a settlement depends on."""

    task: Task
    verdict: Verdict
    ledger: Sequence[Spend]
    limits: RetryLimits
    decided: Instant  # when the supervisor looked at the outcome
    recorded: Instant  # when the settlement is recorded: later, because work was saved in between
    jitter: float  # in [0, 1)
    stage: StageOutcome | None = None
    conflict: str = ""  # the branch was to be rebased, and still conflicts with its base, in words
    messages: int = 0  # messages of people that wait for the end of the turn
    spent: str = ""  # the spending cap of the task that is used up, in words
    stage_spent: str = ""  # the spending cap of the stage that is used up, in words
    crossed: Sequence[str] = ()  # names of the shared caps that this run used up
    death: Death | None = None
    repeats: int = 0  # how often runs of the account met its limit before
    other_account: bool = False  # an account that the task may use is open
    loses_session: bool = False  # each run has a container of its own, and its session goes with it
    provider: ProviderHold | None = None
    worker: WorkerFacts | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Settlement:
    """A decision about a task, with its further effects that follow from the same facts."""

    decision: Decision
    following: NextStep | None = None  # the next stage
    worker_crash: CrashDecision | None = None


Step = Callable[[Settlement, SettleFacts], Settlement]


def settle(facts: SettleFacts) -> Settlement:
    """Return what happens to the task: the policy's decision, changed by each of `STEPS`."""
    return _through(STEPS, facts)


def settle_member(facts: SettleFacts) -> Settlement:
    """Return the effects that the end of one member of a parallel stage has on others. The task of the member
    continues."""
    return _through(MEMBER_STEPS, facts)


def _through(steps: Sequence[Step], facts: SettleFacts) -> Settlement:
    settlement = outcome_policy(facts)
    for step in steps:
        settlement = step(settlement, facts)
    return settlement


def outcome_policy(facts: SettleFacts) -> Settlement:
    """Ask the policy table: outcome → action, paid from retry budgets."""
    return Settlement(
        decision=decide(facts.verdict, facts.ledger, facts.limits, facts.decided, facts.jitter, facts.repeats)
    )


def spare_mass_death(settlement: Settlement, facts: SettleFacts) -> Settlement:
    """Requeue at no cost a task whose agent died together with many others (R-CRASH-07)."""
    decision = settlement.decision
    if (
        facts.death is None
        or not facts.death.is_mass
        or decision.action not in (PolicyAction.REQUEUE, PolicyAction.FAIL)
    ):
        return settlement
    crashes = decision.crashes
    spared = replace(
        decision,
        action=PolicyAction.REQUEUE,
        reason=f"{decision.reason} (one of many agents that died at once; its budgets are untouched)",
        spends=(),
        failure=None,
        alert=False,
        delay=0.0,
        crashes=crashes and replace(crashes, count=crashes.count - 1, is_mass=True),
    )
    return replace(settlement, decision=spared)


def next_stage(settlement: Settlement, facts: SettleFacts) -> Settlement:
    """Move a task of a workflow to its next stage, or have its present stage tried again."""
    decision = settlement.decision
    if not facts.spent:  # otherwise the task waits for more money, and its stage goes on then
        decision = fail_if_stage_spent(decision, facts.stage, facts.task, facts.verdict, facts.stage_spent)
    decision, following = advance(
        facts.task, decision, facts.stage, facts.verdict, facts.ledger, facts.limits, facts.stage_spent
    )
    return replace(settlement, decision=decision, following=following)


def go_on_with_messages(settlement: Settlement, facts: SettleFacts) -> Settlement:
    """Let a task whose work is done continue with the messages that were sent meanwhile."""
    decision = settlement.decision
    if decision.action is not PolicyAction.COMPLETE or not facts.messages:
        return settlement
    waiting = "a message waits" if facts.messages == 1 else f"{facts.messages} messages wait"
    going_on = replace(
        decision, action=PolicyAction.REQUEUE, reason=f"{decision.reason}; {waiting} for it", begins_round=True
    )
    return replace(settlement, decision=going_on)


def tell_conflict(settlement: Settlement, facts: SettleFacts) -> Settlement:
    """Add the conflict that a rebase did not solve to the decision's reason: the agent's report of success is not the
    whole truth."""
    decision = settlement.decision
    if decision.action is not PolicyAction.COMPLETE or not facts.conflict:
        return settlement
    return replace(settlement, decision=replace(decision, reason=f"{facts.conflict}; {decision.reason}"))


def change_account(settlement: Settlement, facts: SettleFacts) -> Settlement:
    """Let a task continue under another account at once if its own one met a limit or was stopped.

    A task whose session has no answer yet loses nothing. Any other task leaves its session only if
    `resume.change_account` is true: its next agent begins with a hand-over.
    """
    decision, limits = settlement.decision, facts.limits
    is_fresh = facts.task.session_id is None and not facts.verdict.has_answer
    may_leave = is_fresh or (limits.change_account and facts.verdict.outcome in PARKING)
    if (
        not (facts.other_account and may_leave)
        or decision.parking is None
        or decision.action is not PolicyAction.PAUSE
        or spent(facts.ledger, Budget.MOVE) >= limits.moves
    ):
        return settlement
    changed = replace(
        decision,
        action=PolicyAction.REQUEUE,
        reason=f"{decision.reason}; it continues under another account",
        pause=None,
        resume_after=None,
        alert=False,
        keeps_session=False,
        spends=(*(budget for budget in decision.spends if budget is not Budget.WAIT), Budget.MOVE),
    )
    return replace(settlement, decision=changed)


def refuse_resume(settlement: Settlement, facts: SettleFacts) -> Settlement:
    """Fail a task now if the automatic resume that it would wait for is going to be refused (R-RES-03)."""
    decision, task = settlement.decision, facts.task
    if not facts.limits.auto_resume or decision.pause not in AUTO_RESUMED_PAUSES or decision.resume_after is None:
        return settlement
    earlier = task.resume_attempts - decision.returns_resume
    answer = decide_resume(earlier, task.spec.max_resumes, task.id, decision.pause)
    if answer.allowed:
        return settlement
    failed = replace(
        decision,
        action=PolicyAction.FAIL,
        reason=answer.message,
        failure=RESUMES_SPENT,
        refused=answer,
        spends=tuple(budget for budget in decision.spends if budget is not Budget.WAIT),
    )
    return replace(settlement, decision=failed)


def enforce_spending(settlement: Settlement, facts: SettleFacts) -> Settlement:
    """Pause a task that would continue although a spending cap is used up."""
    return replace(settlement, decision=pause_if_spent(settlement.decision, facts.spent, facts.crossed))


def end_container_session(settlement: Settlement, facts: SettleFacts) -> Settlement:
    """Begin a new session after a run in a container: the session's files went with the container.

    A login or a payment that failed in there may work outside, where the account's own directory is. So the account is
    not stopped.
    """
    if not facts.loses_session:
        return settlement
    parking = settlement.decision.parking
    is_stopped = parking is not None and parking.until is None
    decision = replace(settlement.decision, keeps_session=False, parking=None if is_stopped else parking)
    return replace(settlement, decision=decision)


def rebase_delay(settlement: Settlement, facts: SettleFacts) -> Settlement:
    """Move the decision's moments if the wall clock was set while work was saved."""
    return replace(settlement, decision=rebase_times(settlement.decision, facts.decided, facts.recorded))


def wait_behind_probe(settlement: Settlement, facts: SettleFacts) -> Settlement:
    """Delay a requeued task whose provider does not answer, so that another task is the next probe of the provider.

    So a task that fails for a reason of its own does not delay the others.
    """
    decision, hold = settlement.decision, None if facts.provider is None else facts.provider.after
    if decision.action is not PolicyAction.REQUEUE or hold is None or hold.until is None or hold.failures == 0:
        return settlement
    left = hold.until - facts.recorded.wall
    if left <= 0:
        return settlement
    delay = max(decision.delay, left + BEHIND_PROBE * left)
    return replace(settlement, decision=replace(decision, delay=delay))


def one_alert_per_provider(settlement: Settlement, facts: SettleFacts) -> Settlement:
    """Raise no alert for the task when its provider's outage has one."""
    if not raises_outage_alert(settlement.decision, facts.provider):
        return settlement
    return replace(settlement, decision=replace(settlement.decision, alert=False))


def raises_outage_alert(decision: Decision, provider: ProviderHold | None) -> bool:
    """True if the task pauses for an outage that is recorded in the hold of its provider."""
    before = None if provider is None else provider.before
    return decision.pause is PauseReason.OUTAGE and before is not None and is_outage(before)


def keep_worker(settlement: Settlement, facts: SettleFacts) -> Settlement:
    """Decide what a crash means for the named worker that had the task, and whether the task waits for that worker."""
    worker, decision = facts.worker, settlement.decision
    if worker is None or facts.verdict.outcome not in CRASHES:
        return settlement
    crash = decide_after_run(
        facts.verdict.outcome,
        worker.record,
        worker.crashes,
        worker.restarts,
        facts.limits,
        facts.recorded,
        is_paid=bool(decision.spends),  # a mass death spends nothing, of the task or of the worker
    )
    if crash.counts and worker.keeps_tasks:
        waits = decision.action is PolicyAction.REQUEUE and worker.is_configured
        decision = replace(decision, keeps_worker=waits)
    return replace(settlement, decision=decision, worker_crash=crash)


def alert_people(settlement: Settlement, _facts: SettleFacts) -> Settlement:
    """Raise an alert for a budget pause without a time to resume, and for a failure at one of Holdfast's limits.

    Other pauses that only a person can end have an alert already: of the account, the provider, or the approval.
    """
    decision = settlement.decision
    is_stuck = decision.action is PolicyAction.PAUSE and decision.pause is PauseReason.BUDGET
    is_limited = decision.action is PolicyAction.FAIL and decision.failure in FAILED_BY_LIMIT
    if not (is_limited or (is_stuck and decision.resume_after is None)):
        return settlement
    return replace(settlement, decision=replace(decision, alert=True))


STEPS: tuple[Step, ...] = (
    spare_mass_death,
    next_stage,
    go_on_with_messages,
    tell_conflict,
    change_account,
    enforce_spending,
    refuse_resume,
    end_container_session,
    rebase_delay,
    wait_behind_probe,
    one_alert_per_provider,
    keep_worker,
    alert_people,
)
MEMBER_STEPS: tuple[Step, ...] = (wait_behind_probe, one_alert_per_provider, spare_mass_death)
