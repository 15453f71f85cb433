"""What follows for a task and its run when money or tokens are used up: at the run's end, and while it lasts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from holdfast.core.budgets import Budget
from holdfast.core.caps import Cap, Used
from holdfast.core.model import PauseReason
from holdfast.core.outcome import RunUsage
from holdfast.core.policy import Action, Decision

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
class Meter:
    """What a run may still use, and what its agent's numbers already had in them when it started."""

    left: Cap
    cap: Cap
    before: RunUsage = field(default_factory=RunUsage)  # of its session, where the agent tells the sum of that

    def passed(self, told: RunUsage) -> str | None:
        """Why it has to end, if it has used up what was left."""
        used = used_of(since(told, self.before))
        if not self.left.is_reached(used):
            return None
        spent = Used(
            usd=(self.cap.usd or 0.0) - (self.left.usd or 0.0) + used.usd,
            tokens=(self.cap.tokens or 0) - (self.left.tokens or 0) + used.tokens,
        )
        return f"its budget is spent ({self.cap.against(spent)})"


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
