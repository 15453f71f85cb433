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
    AlertChange,
    Delivery,
    DeliveryRules,
    Transition,
    delivery_key,
    is_at_least,
    is_out_of_attempts,
    plan_delivery,
    seconds_after_attempt,
    seconds_until_due,
)

YEARS = 10 * 365 * 86400.0
RULES = DeliveryRules()


def notice(
    alert_key: str = "disk", level: Level = Level.CRITICAL, transition: Transition = Transition.RAISED
) -> AlertChange:
    return AlertChange(id=1, key="k", alert_key=alert_key, transition=transition, level=level, body="{}")


def delivery(last: Instant | None, delay: float = 60.0, attempts: int = 1) -> Delivery:
    return Delivery(notice=notice(), target="command", attempts=attempts, delay=delay, last=last)


@pytest.mark.parametrize(
    ("about", "rules", "why"),
    [
        (notice(), DeliveryRules(), ""),
        (notice(level=Level.WARNING), DeliveryRules(), ""),
        (notice(level=Level.INFO), DeliveryRules(), "below `notify.level`"),
        (notice(level=Level.WARNING), DeliveryRules(level=Level.CRITICAL), "below `notify.level`"),
        (notice(transition=Transition.RESOLVED), DeliveryRules(), "`notify.resolved` is off"),
        (notice(transition=Transition.ACKNOWLEDGED), DeliveryRules(), "`notify.resolved` is off"),
        (notice(transition=Transition.RESOLVED), DeliveryRules(resolved=True), ""),
        (notice("crash:task:x"), DeliveryRules(), ""),
        (notice("crash:task:x"), DeliveryRules(crashes=False), "`crash.notify` is off"),
        (notice("task:x:lost"), DeliveryRules(crashes=False), ""),
    ],
)
def test_who_is_told(about: AlertChange, rules: DeliveryRules, why: str) -> None:
    """R-CRASH-05: `notify`, and the rest of the rules; to nobody always has a reason."""
    decided = plan_delivery(about, ("command", "webhook"), rules)
    assert decided.targets == (() if why else ("command", "webhook"))
    assert why in decided.why
    assert bool(decided.why) == bool(why)
    assert plan_delivery(about, (), rules).why == "no target is configured"


@given(st.sampled_from(LEVELS), st.sampled_from(LEVELS))
def test_levels_are_in_order(one: Level, other: Level) -> None:
    assert is_at_least(one, other) == (LEVELS.index(one) >= LEVELS.index(other))


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
    left = seconds_until_due(delivery(last, delay), now)
    assert 0.0 <= left <= delay
    if not boots:
        assert math.isclose(left, max(0.0, delay - passed), abs_tol=1e-6)


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True), st.none() | st.floats(0, 1e12))
def test_waits_are_bounded(attempts: int, jitter: float, asked: float | None) -> None:
    wait = seconds_after_attempt(attempts, RULES, jitter, asked)
    assert RULES.first_wait <= wait <= LONGEST_WAIT
    if asked is not None:
        assert wait >= min(asked, LONGEST_WAIT)


def test_attempts_are_bounded_and_the_first_is_at_once() -> None:
    assert seconds_until_due(delivery(None, attempts=0), Instant(wall=0.0, boottime=0.0, boot_id="x")) == 0.0
    assert [n for n in range(20) if is_out_of_attempts(delivery(None, attempts=n), RULES)] == list(range(8, 20))


def test_a_key_is_of_one_alert_one_transition_and_one_moment() -> None:
    """After a restore of an old backup the numbers begin again; the keys do not."""
    keys = {delivery_key(number, how, at) for number in (1, 11) for how in Transition for at in (1e9, 1e9 + 0.5)}
    assert len(keys) == 2 * len(Transition) * 2
