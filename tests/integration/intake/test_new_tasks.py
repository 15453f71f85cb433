"""What a new task may ask of its agent: a limit that nothing would hold is refused, not taken in silence."""

from __future__ import annotations

import math
from typing import Any

import pytest

from holdfast.base.errors import UsageError
from holdfast.config.layers import merge_layers
from holdfast.core.task_settings import BudgetRules
from holdfast.intake.new_task import NewTask, resolve_agent, resolve_budget

WITH_CLAUDE = merge_layers([]).with_values({"agent": "claude"})


@pytest.mark.parametrize("amount", [math.nan, math.inf, -1.0, 0.0])
def test_a_budget_that_is_no_amount_is_refused(amount: float) -> None:
    with pytest.raises(UsageError, match="--budget-usd"):
        resolve_budget(NewTask(prompt="x", directory="/", budget_usd=amount), "claude", WITH_CLAUDE)


@pytest.mark.parametrize(
    ("agent", "limit"),
    [
        ("command", {"budget_usd": 1.0}),
        ("command", {"budget_tokens": 1000}),
        ("codex", {"budget_usd": 1.0}),
        ("gemini", {"budget_usd": 1.0}),
    ],
)
def test_a_budget_that_nothing_would_hold_is_refused(agent: str, limit: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="does not report its"):
        resolve_budget(NewTask(prompt="x", directory="/", **limit), agent, merge_layers([]))


def test_a_command_cannot_be_given_a_number_of_turns() -> None:
    with pytest.raises(UsageError, match="cannot be given"):
        resolve_agent(NewTask(prompt="x", directory="/", command=("true",), max_turns=3), merge_layers([]))


def test_a_setting_that_cannot_hold_is_told_and_the_task_accepted() -> None:
    set_for_all = merge_layers([]).with_values({"budget.task_usd": 2.0, "budget.task_tokens": 5000})
    new = NewTask(prompt="x", directory="/")
    assert resolve_budget(new, "claude", set_for_all) == (BudgetRules(usd=2.0, tokens=5000), [])
    rules, notes = resolve_budget(new, "codex", set_for_all)
    assert rules == BudgetRules(tokens=5000)
    assert [note for note in notes if "budget.task_usd" in note] == notes
    assert len(notes) == 1
    assert len(resolve_budget(new, "command", set_for_all)[1]) == 2
    mine = NewTask(prompt="x", directory="/", budget_usd=0.5, budget_tokens=7)
    assert resolve_budget(mine, "claude", set_for_all) == (BudgetRules(usd=0.5, tokens=7), [])


def test_a_good_one_is_taken() -> None:
    new = NewTask(prompt="x", directory="/", max_turns=3, permission="edit")
    name, options = resolve_agent(new, WITH_CLAUDE)
    assert (name, options["max_turns"]) == ("claude", 3)
