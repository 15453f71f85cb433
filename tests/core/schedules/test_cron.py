"""When cron expressions are due, against an oracle that goes through every second or minute of a stretch of time."""

from __future__ import annotations

import bisect
import functools
import random
import time
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from holdfast.core.schedules.cron import first_occurrence, last_occurrence


def at(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


# Zone, and where its clock is set: forward and back by an hour, by half an hour, and over a whole day.
CHANGES = [
    ("Europe/Berlin", "2026-03-29T01:00"),
    ("Europe/Berlin", "2026-10-25T01:00"),
    ("America/New_York", "2027-03-14T07:00"),
    ("America/New_York", "2027-11-07T06:00"),
    ("Australia/Lord_Howe", "2026-04-04T15:00"),
    ("Australia/Lord_Howe", "2026-10-03T15:30"),
    ("Pacific/Apia", "2011-12-30T10:00"),
    ("UTC", "2026-03-29T01:00"),
]
BY_MINUTES = [
    *("0 3 * * *", "30 2 * * *", "30 1 * * *", "0 0 * * *", "15,45 1-3 * * *", "0 12 30 12 *"),
    *("*/10 * * * *", "0 * * * *", "5 */2 * * *", "*/15 2 * * *", "0 9 * * 1", "0 4 1 * 5"),
]
BY_SECONDS = ["* * * * * *", "*/7 * * * * *", "0 30 2 * * *", "20,40 59 1 * * *", "0 0 */3 * * *"]
SPAN = 26 * 3600


@functools.cache
def matches(field: str, value: int, low: int, high: int) -> bool:
    for term in field.split(","):
        base, _, step = term.partition("/")
        first, _, last = base.partition("-")
        begin, end = (low, high) if base == "*" else (int(first), int(last or (high if step else first)))
        if begin <= value <= end and (value - begin) % int(step or 1) == 0:
            return True
    return False


def is_shown(cron: str, wall: datetime) -> bool:
    fields = cron.split() if len(cron.split()) == 6 else ["0", *cron.split()]
    second, minute, hour, day, month, weekday = fields
    by_day = matches(day, wall.day, 1, 31), matches(weekday, wall.isoweekday() % 7, 0, 7)
    starred = day.startswith("*") or weekday.startswith("*")
    return (
        matches(second, wall.second, 0, 59)
        and matches(minute, wall.minute, 0, 59)
        and matches(hour, wall.hour, 0, 23)
        and matches(month, wall.month, 1, 12)
        and (all(by_day) if starred else any(by_day))
    )


@functools.cache
def clock(zone: str, begin: int, end: int, step: int) -> list[tuple[int, datetime]]:
    tz = ZoneInfo(zone)
    return [(moment, datetime.fromtimestamp(moment, tz).replace(tzinfo=None)) for moment in range(begin, end, step)]


@functools.cache
def oracle(cron: str, zone: str, begin: int, end: int) -> list[int]:
    parts = cron.split()
    step = 1 if len(parts) == 6 else 60
    shown = clock(zone, begin, end, step)
    if len(parts) == 6 or parts[0].startswith("*") or parts[1].startswith("*"):
        return [moment for moment, wall in shown if is_shown(cron, wall)]
    found, furthest = set(), shown[0][1]
    for (moment, wall), (_, before) in zip(shown[1:], shown, strict=False):
        if wall <= furthest:
            continue  # shown before
        minutes = int((wall - furthest).total_seconds()) // 60
        passed = (
            datetime.fromtimestamp(furthest.replace(tzinfo=UTC).timestamp() + 60 * n, UTC)
            for n in range(1, minutes + 1)
        )
        if any(is_shown(cron, one.replace(tzinfo=None)) for one in passed):
            found.add(moment)
        furthest = max(furthest, wall, before)
    return sorted(found)


@pytest.mark.parametrize(("zone", "change"), CHANGES)
@pytest.mark.parametrize("cron", BY_MINUTES)
def test_every_minute_of_days_on_which_the_clock_is_set(zone: str, change: str, cron: str) -> None:
    """R-CRON-02: forward and backward searches agree with what a clock on the wall shows, minute by minute."""
    middle = int(at(change))
    compare(cron, zone, middle - SPAN, middle + SPAN, 12)


@pytest.mark.parametrize(("zone", "change"), CHANGES)
def test_every_second_around_the_change(zone: str, change: str) -> None:
    """R-CRON-02."""
    middle = int(at(change))
    for cron in BY_SECONDS:
        compare(cron, zone, middle - 2000, middle + 2000, 12)


def compare(cron: str, zone: str, begin: int, end: int, samples: int) -> None:
    known = oracle(cron, zone, begin, end)
    chosen = random.Random(f"{cron}{zone}{begin}")
    near = [moment + chosen.choice((-1, -0.5, 0, 0.5, 1)) for moment in chosen.sample(known, min(samples, len(known)))]
    middle, step = (begin + end) // 2, min(600, (end - begin) // 20)  # the clock is set in the middle
    around = [middle + step * number + 1 for number in range(-8, 9)]
    for moment in [*near, *around, *(chosen.uniform(begin + 60, end - 60) for _ in range(samples // 2))]:
        later = bisect.bisect_left(known, moment)
        if later < len(known):
            assert first_occurrence(cron, zone, moment) == known[later], (cron, zone, moment)
        earlier = bisect.bisect_right(known, moment)
        if earlier > 0:
            assert last_occurrence(cron, zone, moment) == known[earlier - 1], (cron, zone, moment)


def test_fixed_times_are_once_a_day_and_the_others_go_by_real_time() -> None:
    """R-CRON-02: in words."""
    berlin = "Europe/Berlin"
    leap, back = at("2026-03-28T12:00"), at("2026-10-24T12:00")
    assert first_occurrence("30 2 * * *", berlin, leap) == at("2026-03-29T03:00", berlin), "leapt over: right after"
    assert first_occurrence("30 2 * * *", berlin, back) == at("2026-10-25T00:30"), "shown twice: the first time"
    assert first_occurrence("30 2 * * *", berlin, at("2026-10-25T00:31")) == at("2026-10-26T01:30")
    assert first_occurrence("30 * * * *", berlin, at("2026-10-25T00:31")) == at("2026-10-25T01:30"), (
        "the hour comes twice"
    )


def test_a_night_in_which_half_past_one_comes_twice_has_one_occurrence() -> None:
    """America/St_Johns goes from -2:30 to -3:30 at 04:30 UTC: whoever looks when, it is the one at 04:00 UTC."""
    zone, cron = "America/St_Johns", "30 1 * * *"
    first = at("2027-11-07T04:00")
    for minute in range(0, 60 * 24, 7):
        moment = first + 60 * minute
        assert last_occurrence(cron, zone, moment) == first, minute
        assert first_occurrence(cron, zone, moment + 1) == at("2027-11-08T05:00"), minute
        assert first_occurrence(cron, zone, first - 60 * minute) == first if minute else True


def test_what_is_rare_is_found_and_what_never_comes_is_none() -> None:
    """R-CRON-01."""
    now = at("2026-11-16T00:00")
    assert first_occurrence("0 0 29 2 *", "Europe/Berlin", now) == at("2028-02-29T00:00", "Europe/Berlin")
    assert last_occurrence("0 0 29 2 *", "Europe/Berlin", now) == at("2024-02-29T00:00", "Europe/Berlin")
    assert first_occurrence("* * * * *", "UTC", 1e12) is None, "beyond the calendar"


def test_no_gap_is_walked_through() -> None:
    """R-CRON-03: what is due after ten years of "every second" is found at once."""
    now, begun = at("2036-11-16T12:34:56"), time.thread_time()
    for _ in range(20):
        assert last_occurrence("* * * * * *", "Europe/Berlin", now) == now
        assert first_occurrence("* * * * * *", "Europe/Berlin", now) == now
    assert time.thread_time() - begun < 1.0
