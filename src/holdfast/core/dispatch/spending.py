"""The effect of used-up money or tokens on a task: when its run ends, and while its run lasts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace

from holdfast.base.dataclass import dataclass
from holdfast.core.dispatch.spending_caps import SpendingCap, UsedSpending
from holdfast.core.model import PauseReason
from holdfast.core.runs.outcome import RunUsage
from holdfast.core.runs.policy import Decision, PolicyAction
from holdfast.core.runs.retry_budgets import Budget

_AUTO_RESUMED_PAUSES = frozenset({PauseReason.RATE_LIMIT, PauseReason.USAGE_LIMIT, PauseReason.CONTEXT_LIMIT})


def pause_if_spent(decision: Decision, spent: str, crossed: Sequence[str]) -> Decision:
    """Turn a continuation into a pause if money or tokens are used up. A decision that ends the task is not changed:
    the task is completed, failed or cancelled all the same.

    `spent` describes the task's own used-up budget. `crossed` names the shared budgets that this run used up.
    """
    goes_on = decision.action is PolicyAction.REQUEUE
    if decision.action is PolicyAction.PAUSE:
        # otherwise the task waits in the queue after its pause
        goes_on = decision.pause in _AUTO_RESUMED_PAUSES and bool(spent)
    why = f"its budget is spent ({spent})" if spent else f"with it {' and '.join(crossed)} is spent" if crossed else ""
    if not goes_on or not why:
        return decision
    return replace(
        decision,
        action=PolicyAction.PAUSE,
        pause=PauseReason.BUDGET,
        reason=f"{why}; last: {decision.reason}",
        delay=0.0,
        resume_after=None,
        alert=False,
        # the task does not wait for a limit
        spends=tuple(budget for budget in decision.spends if budget is not Budget.WAIT),
    )


# -- while a run lasts -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class BindingCap:
    """One spending cap that binds a task: its own, or that of the first task of its family, which the whole family
    shares."""

    cap: SpendingCap
    used: UsedSpending
    whose: str = ""  # the owner of the cap, as text; empty: the task itself
    is_shared: bool = False  # shared with the other tasks of its family

    @property
    def spent(self) -> str:
        """Describe the part of the cap that is used up. Empty: something is left."""
        words = self.cap.describe_exceeded(self.used)
        return f"{words}{self.whose}" if words else ""

    @property
    def left(self) -> SpendingCap:
        return self.cap.left(self.used)


@dataclass(kw_only=True, slots=True)
class FamilyUsage:
    """The usage of the runs of one family that run at the same time, as far as they report it."""

    at_work: dict[str, UsedSpending] = field(default_factory=dict)
    ended: UsedSpending = field(default_factory=UsedSpending)  # usage of the runs that ended while others were running

    def used_by_other_runs(self, run_id: str) -> UsedSpending:
        total = self.ended
        for other, used in self.at_work.items():
            total = total if other == run_id else total + used
        return total

    def over(self, run_id: str, used: UsedSpending | None = None) -> None:
        """Move a run from the running runs to the ended runs. `used`: its final usage."""
        known = self.at_work.pop(run_id, None)
        if known is not None:
            self.ended += used or known


@dataclass(frozen=True, kw_only=True, slots=True)
class SpendingMeter:
    """The amount that a run may still use. Usage that the agent's numbers already contained when the run started does
    not count."""

    caps: Sequence[BindingCap]
    # usage of earlier runs of its session, if the agent reports the sum of the session
    before: RunUsage = field(default_factory=RunUsage)
    family: str | None = None  # the first task of the family, if that task has a spending cap
    run_id: str = ""
    family_usage: FamilyUsage | None = None  # the usage of that family
    mark: UsedSpending = field(
        default_factory=UsedSpending
    )  # usage of ended runs when this run began: `allowances` already contain it

    @property
    def left_usd(self) -> float | None:
        return min((allowance.left.usd for allowance in self.caps if allowance.left.usd is not None), default=None)

    def passed(self, told: RunUsage) -> str | None:
        """Return the reason why the run has to end. None: the amount that was left is not used up."""
        used = usage_to_used(usage_since(told, self.before))
        beside = UsedSpending()
        if self.family_usage is not None:
            self.family_usage.at_work[self.run_id] = used
            all_beside = self.family_usage.used_by_other_runs(self.run_id)
            beside = UsedSpending(usd=all_beside.usd - self.mark.usd, tokens=all_beside.tokens - self.mark.tokens)
        for allowance in self.caps:
            now = allowance.used + used + (beside if allowance.is_shared else UsedSpending())
            if spent := replace(allowance, used=now).spent:
                return f"its budget is spent ({spent})"
        return None


def usage_to_used(usage: RunUsage) -> UsedSpending:
    return UsedSpending(usd=usage.cost_usd or 0.0, tokens=usage.tokens, unpriced=int(usage.cost_usd is None))


def usage_since(told: RunUsage, before: RunUsage) -> RunUsage:
    """Return the usage beyond the usage that the session had reported before. A number that is smaller than before adds
    nothing."""
    cost = told.cost_usd
    return replace(
        told,
        input=max(0, told.input - before.input),
        output=max(0, told.output - before.output),
        cached=max(0, told.cached - before.cached),
        reasoning=max(0, told.reasoning - before.reasoning),
        cost_usd=None if cost is None else max(0.0, cost - (before.cost_usd or 0.0)),
    )
