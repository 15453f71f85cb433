"""Who is told of an alert, when it is tried again, when it is given up: pure decisions."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.base.instant import Instant
from holdfast.core.model import Level
from holdfast.core.tasks.alerts import (
    LEVELS,
    LONGEST_WAIT,
    Delivery,
    Notice,
    NoticeRules,
    Transition,
    at_least,
    due_in,
    is_spent,
    key_of,
    plan,
    wait_after,
)

YEARS = 10 * 365 * 86400.0
RULES = NoticeRules()


def notice(
    alert_key: str = "disk", level: Level = Level.CRITICAL, transition: Transition = Transition.RAISED
) -> Notice:
    return Notice(id=1, key="k", alert_key=alert_key, transition=transition, level=level, body="{}")


def delivery(last: Instant | None, delay: float = 60.0, attempts: int = 1) -> Delivery:
    return Delivery(notice=notice(), target="command", attempts=attempts, delay=delay, last=last)


@pytest.mark.parametrize(
    ("about", "rules", "why"),
    [
        (notice(), NoticeRules(), ""),
        (notice(level=Level.WARNING), NoticeRules(), ""),
        (notice(level=Level.INFO), NoticeRules(), "below `notify.level`"),
        (notice(level=Level.WARNING), NoticeRules(level=Level.CRITICAL), "below `notify.level`"),
        (notice(transition=Transition.RESOLVED), NoticeRules(), "`notify.resolved` is off"),
        (notice(transition=Transition.ACKNOWLEDGED), NoticeRules(), "`notify.resolved` is off"),
        (notice(transition=Transition.RESOLVED), NoticeRules(resolved=True), ""),
        (notice("crash:task:x"), NoticeRules(), ""),
        (notice("crash:task:x"), NoticeRules(crashes=False), "`crash.notify` is off"),
        (notice("task:x:lost"), NoticeRules(crashes=False), ""),
    ],
)
def test_who_is_told(about: Notice, rules: NoticeRules, why: str) -> None:
    """R-CRASH-05: `notify`, and the rest of the rules; to nobody always has a reason."""
    decided = plan(about, ("command", "webhook"), rules)
    assert decided.targets == (() if why else ("command", "webhook"))
    assert why in decided.why
    assert bool(decided.why) == bool(why)
    assert plan(about, (), rules).why == "no target is configured"


@given(st.sampled_from(LEVELS), st.sampled_from(LEVELS))
def test_levels_are_in_order(one: Level, other: Level) -> None:
    assert at_least(one, other) == (LEVELS.index(one) >= LEVELS.index(other))


@given(
    st.floats(-YEARS, YEARS),
    st.floats(0, 1e7),
    st.booleans(),
    st.floats(0, 3600),
)
def test_no_clock_makes_a_notice_wait_longer_than_was_decided(
    jump: float, passed: float, boots: bool, delay: float
) -> None:
    """A clock set back or forward by years neither hangs nor hastens it within one boot; across boots it waits its
    delay at most."""
    last = Instant(wall=1.7e9, boottime=1e6, boot_id="one")
    boottime = 5.0 if boots else last.boottime + passed
    now = Instant(wall=last.wall + passed + jump, boottime=boottime, boot_id="two" if boots else "one")
    left = due_in(delivery(last, delay), now)
    assert 0.0 <= left <= delay
    if not boots:
        assert math.isclose(left, max(0.0, delay - passed), abs_tol=1e-6)


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True), st.none() | st.floats(0, 1e12))
def test_waits_are_bounded(attempts: int, jitter: float, asked: float | None) -> None:
    wait = wait_after(attempts, RULES, jitter, asked)
    assert RULES.first_wait <= wait <= LONGEST_WAIT
    if asked is not None:
        assert wait >= min(asked, LONGEST_WAIT)


def test_attempts_are_bounded_and_the_first_is_at_once() -> None:
    assert due_in(delivery(None, attempts=0), Instant(wall=0.0, boottime=0.0, boot_id="x")) == 0.0
    assert [n for n in range(20) if is_spent(delivery(None, attempts=n), RULES)] == list(range(8, 20))


def test_a_key_is_of_one_alert_one_transition_and_one_moment() -> None:
    """After a restore of an old backup the numbers begin again; the keys do not."""
    keys = {key_of(number, how, at) for number in (1, 11) for how in Transition for at in (1e9, 1e9 + 0.5)}
    assert len(keys) == 12
