"""How often a tree is kept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.runs.intervals import COST_SHARE, LONGEST_INTERVAL_FACTOR, next_checkpoint_interval


def test_it_doubles_where_it_is_felt_and_shrinks_back() -> None:
    """R-RES-11: more than 5 % of the interval doubles it."""
    assert next_checkpoint_interval(30.0, 30.0, 1.5) == 30.0
    assert next_checkpoint_interval(30.0, 30.0, 1.6) == 60.0
    assert next_checkpoint_interval(30.0, 60.0, 1.6) == 60.0, "it would be felt at half of it"
    assert next_checkpoint_interval(30.0, 60.0, 1.4) == 30.0
    assert next_checkpoint_interval(30.0, 30.0 * LONGEST_INTERVAL_FACTOR, 1e9) == 30.0 * LONGEST_INTERVAL_FACTOR


@given(st.floats(0.1, 1000), st.floats(0, 100))
def test_the_same_cost_comes_to_rest(every: float, cost: float) -> None:
    interval = every
    for _ in range(12):
        interval = next_checkpoint_interval(every, interval, cost)
    assert every <= interval <= every * LONGEST_INTERVAL_FACTOR
    assert next_checkpoint_interval(every, interval, cost) == interval
    assert cost <= COST_SHARE * interval or interval == every * LONGEST_INTERVAL_FACTOR
