"""Timeouts from experience: a table, and what must hold for all numbers (R-TERM-13)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.runs.intervals import AdaptiveTimeout
from holdfast.core.runs.intervals import adapt_timeout as adapt_by
from holdfast.supervisor.settings import Thresholds

HOUR, MINUTE = 3600.0, 60.0
NUMBERS = Thresholds()
LEAST_RUNS = NUMBERS.adaptive_runs


def adapt_timeout(durations: list[float], floor: float, own: float) -> AdaptiveTimeout | None:
    return adapt_by(durations, floor, own, factor=NUMBERS.adaptive_factor, least=NUMBERS.adaptive_runs)


@pytest.mark.parametrize(
    ("durations", "floor", "own", "seconds", "words"),
    [
        ([8 * MINUTE] * 8, 10 * MINUTE, HOUR, 12 * MINUTE, "adaptive: 1.5 × the mean of 8 runs"),
        ([10 * MINUTE, 20 * MINUTE] * 3, 10 * MINUTE, HOUR, 22.5 * MINUTE, "the mean of 6 runs"),
        ([1.0] * 5, 10 * MINUTE, HOUR, 10 * MINUTE, "the floor, because 1.5 × the mean of 5 runs is less"),
        ([HOUR] * 5, 10 * MINUTE, HOUR, HOUR, "its own timeout"),
        ([1.0] * 5, 2 * HOUR, HOUR, HOUR, "its own timeout"),  # a floor above the task's own timeout
        ([8 * MINUTE] * 5 + [-100.0], 10 * MINUTE, HOUR, 12 * MINUTE, "the mean of 5 runs"),  # a clock set back
        ([0.0] * 5, 10 * MINUTE, HOUR, 10 * MINUTE, "the mean of 5 runs"),  # over before their start was noted
    ],
)
def test_what_earlier_runs_mean(durations: list[float], floor: float, own: float, seconds: float, words: str) -> None:
    """R-TERM-13: 1.5 × the mean, never under the floor, never above the task's own."""
    found = adapt_timeout(durations, floor, own)
    assert found is not None
    assert found.seconds == pytest.approx(seconds)
    assert words in found.reason


@pytest.mark.parametrize("durations", [[], [60.0] * 4, [60.0] * 4 + [-1.0] * 9])
def test_too_few_say_nothing(durations: list[float]) -> None:
    """R-TERM-13: at least five completed runs."""
    assert adapt_timeout(durations, 1.0, HOUR) is None


times = st.floats(min_value=0.001, max_value=1e7)


@given(st.lists(times, min_size=LEAST_RUNS, max_size=60), times, times)
def test_always_between_floor_and_own(durations: list[float], floor: float, own: float) -> None:
    """R-TERM-13: whatever the history says, the bounds hold, and within them it is 1.5 × the mean."""
    found = adapt_timeout(durations, floor, own)
    assert found is not None
    assert found.seconds <= own
    assert found.seconds >= min(floor, own)
    wanted = 1.5 * sum(durations) / len(durations)
    if floor < wanted < own:
        assert found.seconds == pytest.approx(wanted)


@given(st.lists(times, min_size=LEAST_RUNS, max_size=20), times, st.floats(min_value=1.0, max_value=10.0))
def test_longer_runs_never_shorten_it(durations: list[float], floor: float, factor: float) -> None:
    slower = [seconds * factor for seconds in durations]
    before, after = adapt_timeout(durations, floor, 1e9), adapt_timeout(slower, floor, 1e9)
    assert before is not None
    assert after is not None
    assert after.seconds >= before.seconds * (1 - 1e-9)
