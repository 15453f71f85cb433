"""What follows for a task and its run when money or tokens are used up: at the run's end, and while it lasts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from holdfast.core.dispatch.spending_caps import Cap, Used
from holdfast.core.model import PauseReason
from holdfast.core.runs.outcome import RunUsage
from holdfast.core.runs.policy import Action, Decision
from holdfast.core.runs.retry_budgets import Budget

_GOES_ON_BY_ITSELF = frozenset({PauseReason.RATE_LIMIT, PauseReason.USAGE_LIMIT, PauseReason.CONTEXT_LIMIT})


def held_to(decision: Decision, spent: str, crossed: Sequence[str]) -> Decision:
    """What becomes of a task whose own budget is spent (`spent` in words), or whose run was the one that used up what
    it shares with others (`crossed`, their names). What ended has ended: it stays completed, failed or cancelled."""
    goes_on = decision.action is Action.REQUEUE
    if decision.action is Action.PAUSE:
        goes_on = decision.pause in _GOES_ON_BY_ITSELF and bool(spent)  # else it waits in the queue afterwards
    why = f"its budget is spent ({spent})" if spent else f"with it {' and '.join(crossed)} is spent" if crossed else ""
    if not goes_on or not why:
        return decision
    return replace(
        decision,
        action=Action.PAUSE,
        pause=PauseReason.BUDGET,
        reason=f"{why}; last: {decision.reason}",
        delay=0.0,
        resume_after=None,
        alert=False,
        spends=tuple(budget for budget in decision.spends if budget is not Budget.WAIT),  # it waits for no limit
    )


# -- while a run lasts -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Purse:
    """One budget that binds a task: its own, or that of the first task of its family, which all of them share."""

    cap: Cap
    used: Used
    whose: str = ""  # in words, if it is not its own
    is_shared: bool = False  # with the others of its family

    @property
    def spent(self) -> str:
        """In words; empty: something is left."""
        words = self.cap.against(self.used)
        return f"{words}{self.whose}" if words else ""

    @property
    def left(self) -> Cap:
        return self.cap.left(self.used)


@dataclass(kw_only=True, slots=True)
class Till:
    """What the runs of one family use while they are at work beside one another, as far as they say."""

    at_work: dict[str, Used] = field(default_factory=dict)
    ended: Used = field(default_factory=Used)  # of those that ended since somebody is at work

    def beside(self, run_id: str) -> Used:
        total = self.ended
        for other, used in self.at_work.items():
            total = total if other == run_id else total + used
        return total

    def over(self, run_id: str, used: Used | None = None) -> None:
        """`used`: what it said in the end."""
        known = self.at_work.pop(run_id, None)
        if known is not None:
            self.ended += used or known


@dataclass(frozen=True, kw_only=True, slots=True)
class Meter:
    """What a run may still use, and what its agent's numbers already had in them when it started."""

    purses: Sequence[Purse]
    before: RunUsage = field(default_factory=RunUsage)  # of its session, where the agent tells the sum of that
    family: str | None = None  # the first task of it, if that has a budget
    run_id: str = ""
    till: Till | None = None  # of that family
    mark: Used = field(default_factory=Used)  # what had ended in it when this run began: that is in its purses

    @property
    def left_usd(self) -> float | None:
        return min((purse.left.usd for purse in self.purses if purse.left.usd is not None), default=None)

    def passed(self, told: RunUsage) -> str | None:
        """Why it has to end, if it has used up what was left."""
        used = used_of(since(told, self.before))
        beside = Used()
        if self.till is not None:
            self.till.at_work[self.run_id] = used
            all_beside = self.till.beside(self.run_id)
            beside = Used(usd=all_beside.usd - self.mark.usd, tokens=all_beside.tokens - self.mark.tokens)
        for purse in self.purses:
            now = purse.used + used + (beside if purse.is_shared else Used())
            if spent := replace(purse, used=now).spent:
                return f"its budget is spent ({spent})"
        return None


def used_of(usage: RunUsage) -> Used:
    return Used(usd=usage.cost_usd or 0.0, tokens=usage.tokens, unpriced=int(usage.cost_usd is None))


def since(told: RunUsage, before: RunUsage) -> RunUsage:
    """What came on top of what the session had told earlier. A smaller number than before adds nothing."""
    cost = told.cost_usd
    return replace(
        told,
        input=max(0, told.input - before.input),
        output=max(0, told.output - before.output),
        cached=max(0, told.cached - before.cached),
        reasoning=max(0, told.reasoning - before.reasoning),
        cost_usd=None if cost is None else max(0.0, cost - (before.cost_usd or 0.0)),
    )
