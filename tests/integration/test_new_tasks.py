"""What a new task may ask of its agent: a limit that nothing would hold is refused, not taken in silence."""

from __future__ import annotations

import math
from typing import Any

import pytest

from holdfast.api.newtask import NewTask, agent_of
from holdfast.config.layers import merge
from holdfast.errors import UsageError

WITH_CLAUDE = merge([]).but({"agent": "claude"})


@pytest.mark.parametrize("amount", [math.nan, math.inf, -1.0, 0.0])
def test_a_budget_that_is_no_amount_is_refused(amount: float) -> None:
    with pytest.raises(UsageError, match="--budget-usd"):
        agent_of(NewTask(prompt="x", directory="/", budget_usd=amount), WITH_CLAUDE)


@pytest.mark.parametrize("limit", [{"budget_usd": 1.0}, {"max_turns": 3}])
def test_a_command_cannot_be_given_limits_of_a_cli(limit: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="cannot be given"):
        agent_of(NewTask(prompt="x", directory="/", command=("true",), **limit), merge([]))


def test_a_good_one_is_taken() -> None:
    new = NewTask(prompt="x", directory="/", budget_usd=0.5, max_turns=3, permission="edit")
    name, options = agent_of(new, WITH_CLAUDE)
    assert (name, options["budget_usd"], options["max_turns"]) == ("claude", 0.5, 3)
