"""Words that interfaces show, where a whole run would only cost more."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.api.tasks.explain import state_lines
from holdfast.cli.output.task_columns import took


@pytest.mark.parametrize(
    ("tokens", "cost", "words"),
    [(None, None, "-"), (0, None, "-"), (576, None, "576 tok"), (12_400, None, "12k tok"), (576, 0.0027, "$0.0027")],
)
def test_what_a_task_took_in_ps(tokens: int | None, cost: float | None, words: str) -> None:
    assert took(tokens, cost) == words


def test_a_failure_that_we_declared_is_named_once() -> None:
    reason = "crash_loop: the crash budget is spent; last: killed by signal 9"
    task: Any = {
        "id": "t1",
        "state": "failed",
        "failure_reason": "crash_loop",
        "outcome": "external_kill",
        "reason": reason,
        "runs": [],
        "salvages": [],
    }
    first = state_lines(task)[0]
    assert first == "It failed (crash_loop): the crash budget is spent; last: killed by signal 9."
