"""How much time has passed, whatever the wall clock was set to (core/cleanup/clock_jumps.py). Promise 1: what is
kept for a month is there for a month of real time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.base.instant import Instant
from holdfast.core.cleanup.clock_jumps import MOST, OFF_AT_MOST, SMALL, ClockHistory, history_from_json, history_to_json

DAY, YEAR = 86400.0, 365 * 86400.0
START = Instant(wall=1_800_000_000.0, boottime=1000.0, boot_id="one")


def later(now: Instant, lived: float, by: float = 0.0) -> Instant:
    return now._replace(wall=now.wall + lived + by, boottime=now.boottime + lived)


def test_a_leap_ahead_makes_nothing_old() -> None:
    made = later(START, 50.0)  # by the old clock
    leapt = later(START, 100.0, 10 * YEAR)
    passing = ClockHistory(START).after(leapt)
    assert passing.jump_since_reading(leapt) == 0.0
    assert passing.wall_time_ago(DAY, leapt) < made.wall
    day_after = later(leapt, DAY)
    assert passing.wall_time_ago(DAY, day_after) > made.wall, "a day of real time has passed"
    assert passing.wall_time_ago(2 * DAY, day_after) < made.wall
    assert passing.shown(made.wall, leapt) == made.wall + 50.0
    assert passing.shown(leapt.wall, later(leapt, 5.0)) == leapt.wall + 5.0


def test_there_and_back_is_forgotten() -> None:
    there = later(START, 10.0, 10 * YEAR)
    back = later(there, 10.0, -10 * YEAR)
    passing = ClockHistory(START).after(there).after(back)
    assert passing == ClockHistory(back)
    halfway = ClockHistory(START).after(there).after(later(there, 10.0, -YEAR))
    assert [round(leap.by / YEAR) for leap in halfway.jumps] == [9]


def test_drift_is_no_leap() -> None:
    passing = ClockHistory(START)
    assert passing.jump_since_reading(later(START, 3600.0, SMALL - 1)) == 0.0
    assert passing.after(later(START, 3600.0, 1 - SMALL)).jumps == ()


def test_a_machine_that_was_off_is_believed_for_a_week() -> None:
    """Nobody counts while it is off; a battery clock that is wrong by years is not believed."""
    short = Instant(wall=START.wall + 3 * DAY, boottime=5.0, boot_id="two")
    assert ClockHistory(START).after(short).jumps == ()
    long = Instant(wall=START.wall + 10 * YEAR, boottime=5.0, boot_id="two")
    passing = ClockHistory(START).after(long)
    assert passing.wall_time_ago(30 * DAY, long) == START.wall + OFF_AT_MOST - 30 * DAY


@given(st.lists(st.tuples(st.floats(0, 30 * DAY), st.floats(-YEAR, 10 * YEAR)), max_size=2 * MOST), st.floats(1, YEAR))
def test_nothing_is_older_than_it_is(steps: list[tuple[float, float]], age: float) -> None:
    """Whatever is made, and whatever the clock is set to: what is younger than `age` in lived time is never called
    older."""
    now, passing, made = START, ClockHistory(START), [(START, 0.0)]
    lived = 0.0
    for passed, by in steps:
        now, lived = later(now, passed, by), lived + passed
        passing = passing.after(now)
        made.append((now, lived))
        for one, at in made:
            if lived - at + (len(made) * SMALL) < age:
                assert one.wall >= passing.wall_time_ago(age, now) - 1e-3
    assert len(passing.jumps) <= MOST
    assert history_from_json(history_to_json(passing)) == passing
