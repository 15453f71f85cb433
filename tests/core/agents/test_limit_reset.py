"""Reset times: every format of the facts page, what is over, clock changes, and texts that mean harm."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
import zoneinfo
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.core.agents.limit_reset import (
    LONGEST_WAIT_FOR_LIMIT,
    believable_time,
    from_epoch,
    parse_leading_duration,
    parse_reset_time,
)

NOW = datetime(2026, 11, 15, 19, 43, 20, tzinfo=UTC)  # a Sunday
SECOND = 1794818625  # 2026-11-16 08:43:45 UTC


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def read(said: object, now: datetime = NOW, zone: str | None = "UTC") -> datetime | None:
    moment = parse_reset_time(said, now.timestamp(), zone)
    return None if moment is None else datetime.fromtimestamp(moment, UTC)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (SECOND, "2026-11-16T08:43:45"),
        (float(SECOND), "2026-11-16T08:43:45"),
        (SECOND * 1000, "2026-11-16T08:43:45"),
        (SECOND * 10**6, "2026-11-16T08:43:45"),
        (SECOND * 10**9, "2026-11-16T08:43:45"),
        (str(SECOND), "2026-11-16T08:43:45"),
        (f" {SECOND}000\n", "2026-11-16T08:43:45"),
        (f"{SECOND}.5", "2026-11-16T08:43:45.500000"),
        (3600, "2026-11-15T20:43:20"),
        ("3600", "2026-11-15T20:43:20"),
        ("57.5s", "2026-11-15T19:44:17.500000"),
        ("7m12s", "2026-11-15T19:50:32"),
        (f"Claude AI usage limit reached|{SECOND}", "2026-11-16T08:43:45"),
        ("Session limit reached ∙ resets 10am", "2026-11-16T10:01:00"),
        ("You've hit your limit · resets 4:57am (UTC)", "2026-11-16T04:58:00"),
        ("You've hit your session limit · resets 3:50pm (Asia/Tokyo)", "2026-11-16T06:51:00"),
        ("You will regain access on 2026-12-01 at 00:00 UTC.", "2026-12-01T00:00:00"),
        ("You’ve hit your weekly limit · resets Nov 20, 11am (Asia/Seoul)", "2026-11-20T02:01:00"),
        ("Claude usage limit reached. Your limit will reset at 5pm (Europe/Warsaw).", "2026-11-16T16:01:00"),
        ("You’ve hit your usage limit. Upgrade (https://a/b), or try again at 4:55 AM.", "2026-11-16T04:56:00"),
        ("or try again at 4:55\u202fAM.", "2026-11-16T04:56:00"),
        ("or try again at 4:55\u00a0a.m.", "2026-11-16T04:56:00"),
        ("or try again at Nov 25th, 2026 8:19\u202fPM.", "2026-11-25T20:20:00"),
        ("try again at November 25, 2026, 20:19 UTC+2", "2026-11-25T18:20:00"),
        ("try again in 5 days 22 hours 11 minutes.", "2026-11-21T17:54:20"),
        ("try again in 1 hour, 2 minutes and 3 seconds", "2026-11-15T20:45:23"),
        ("Rate limit reached for m on tokens per min (TPM): Limit 100, Used 99. Please try again in 2.5s.", "+2.5"),
        ("Please retry in 2s.", "+2"),
        ("Suggested retry after 2s.", "+2"),
        ("Please wait about 20 ms before the next request", "+0.02"),
        ("Your quota will reset after 18h32m10s.", "2026-11-16T14:15:30"),
        ("retry after 30", "+30"),
        ("Retry-After: 3600", "2026-11-15T20:43:20"),
        ("retry-after-ms=1500", "+1.5"),
        ('{"error":{"type":"usage_limit_reached","resets_at":1794818625}}', "2026-11-16T08:43:45"),
        ('body: "{\\"resets_in_seconds\\":120}"', "+120"),
        ('{"@type":"x/RetryInfo","retryDelay":"57.5s"}', "+57.5"),
        ("anthropic-ratelimit-unified-reset: 1794818625", "2026-11-16T08:43:45"),
        ("2026-11-16T10:00:00Z", "2026-11-16T10:00:00"),
        ("2026-11-16T10:00:00.123456789Z", "2026-11-16T10:00:00.123456"),
        ("2026-11-16T10:00:00+09:00", "2026-11-16T01:00:00"),
        ("2026-11-16T10:00:00-0530", "2026-11-16T15:30:00"),
        ("2026-11-16T10:00:00", "2026-11-16T10:00:00"),
        ("2026-11-16 10:00", "2026-11-16T10:01:00"),
        ("2026-11-17", "2026-11-17T00:00:00"),
        ("Mon, 16 Nov 2026 10:00:00 GMT", "2026-11-16T10:00:00"),
        ("Monday, 16-Nov-26 10:00:00 GMT", "2026-11-16T10:00:00"),
        ("Retry-After: Mon, 16 Nov 2026 10:00:00 GMT", "2026-11-16T10:00:00"),
        ("resets 5pm PT", "2026-11-16T01:01:00"),
        ("resets 12am", "2026-11-16T00:01:00"),
        ("resets 12pm", "2026-11-16T12:01:00"),
        ("resets 0:30 PM", "2026-11-16T12:31:00"),
        ("resets 24:05", "2026-11-16T00:06:00"),
        ("resets Monday at 9am", "2026-11-16T09:01:00"),
        ("resets Sunday at 9am", "2026-11-22T09:01:00"),
        ("try again tomorrow", "2026-11-16T00:00:00"),
        ("resets Nov 20", "2026-11-20T00:00:00"),
        ("resets 5pm (weekly)", "2026-11-16T17:01:00"),
    ],
)
def test_every_way_to_say_it(said: object, expected: str) -> None:
    """R-RES-01: all formats of the facts page, and their neighbours."""
    moment = NOW + timedelta(seconds=float(expected)) if expected.startswith("+") else at(expected)
    assert read(said) == moment


@pytest.mark.parametrize(
    "said",
    [
        *(None, True, b"1794818625", [SECOND], {"resets_at": SECOND}, "", " ", ".", "later"),
        *(-1, -SECOND, float("nan"), float("inf"), 10**19, 10**400, -(10**400), SECOND * 100, 9_000_000),
        *("1" * 20, "9" * 5000, f"-{SECOND}", "1e309", "inf", "٣٦٠٠x"),
        *("Overloaded", "exceeded 100 requests in 1 minute", "version 2.5s", "retry 3 of 5", "max_retries: 10"),
        *("resets at 5", "resets at 13pm", "resets 25:00", "resets 4:60pm", "resets 4:555", "try again in 4:55"),
        *("resets Feb 30, 11am", "resets 2026-13-01", "resets 0000-01-01", "resets Jan 1, 9999 1am"),
        *("resets 3pm (Mars/Phobos)", "resets 3pm (Etc//Nowhere)", "resets 3pm (UTC+99)"),
        *("try again in 5 years", "try again in 400 days", "in 2.5s", "resets Mar 1, 11am"),
        *(SECOND - 10**6, "2026-11-14T10:00:00Z", "try again at Nov 15th, 2026 7:00 PM"),
    ],
)
def test_what_names_no_moment_or_one_that_cannot_be(said: object) -> None:
    assert read(said) is None


def test_what_is_over_rolls_on_unless_it_is_only_just_over() -> None:
    """A reset rounded down to the minute must not cost a day; what is over for longer means the next one."""
    now = at("2026-12-30T00:05:00")
    assert read("resets 12:05am", now) == at("2026-12-30T00:06:00")
    assert read("resets 12:04am", now) == now
    assert read("resets 12:03am", now) is None
    assert read("resets 11:57pm", now) is None, "two minutes before midnight were seven minutes ago"
    assert read("resets 11:53pm", now) == at("2026-12-30T23:54:00")
    assert read("resets Jan 3, 11am", now) == at("2027-01-03T11:01:00")
    assert read("resets Dec 29, 11am", now) is None, "in a year nobody waits any more"
    assert read("resets Feb 29, 11am", at("2028-02-20T00:00:00")) == at("2028-02-29T11:01:00")


def test_nothing_is_further_away_than_a_month() -> None:
    now = NOW.timestamp()
    assert believable_time(now + LONGEST_WAIT_FOR_LIMIT, now) == now + LONGEST_WAIT_FOR_LIMIT
    assert believable_time(now + LONGEST_WAIT_FOR_LIMIT + 1, now) is None
    assert believable_time(float("nan"), now) is None
    assert read("try again in 31 days") == NOW + timedelta(days=31)


@pytest.mark.parametrize("second", [0, 1, 37, 59])
@pytest.mark.parametrize("ahead", [0, 60, 3600, 5 * 86400])
def test_a_time_without_seconds_never_ends_before_the_true_reset(second: int, ahead: int) -> None:
    """R-RES-08: Codex cuts the seconds off. 12:06:37 is told as "12:06 PM": 12:06:00 would be too early."""
    true = datetime(2026, 11, 16, 12, 6, second, tzinfo=UTC)
    for form in ("try again at %b %d, %Y %I:%M %p", "resets %Y-%m-%d %H:%M", "try again at %I:%M %p"):
        if ahead < 86400 or "%d" in form:
            found = read(true.strftime(form), true - timedelta(seconds=ahead))
            assert found == datetime(2026, 11, 16, 12, 7, tzinfo=UTC)
    assert read(true.strftime("resets %Y-%m-%d %H:%M:%S"), true - timedelta(seconds=ahead)) == true


def test_the_time_zone_of_the_process_that_said_it() -> None:
    said = "try again at 4:55 AM"
    assert read(said, zone="America/New_York") == at("2026-11-16T09:56:00")
    assert read(said, zone=":Asia/Tokyo") == at("2026-11-15T19:56:00")
    assert read(said, zone="/usr/share/zoneinfo/Asia/Tokyo") == at("2026-11-15T19:56:00")
    assert read(said, zone="") == at("2026-11-16T04:56:00")
    assert read("resets 4:55am (UTC)", zone="Asia/Tokyo") == at("2026-11-16T04:56:00"), (
        "the text's own zone comes first"
    )
    for unknown in ("Nowhere/Atall", "UTC0foo,M3", "\x00", "é", "../x"):
        assert read(said, zone=unknown) is None
        assert read("try again in 2s", zone=unknown) == NOW + timedelta(seconds=2)


def test_no_zone_is_that_of_this_machine() -> None:
    """In a process of its own: the C library reads TZ once."""
    code = (
        "from holdfast.core.agents.limit_reset import parse_reset_time;"
        f"print(parse_reset_time('try again at 4:55 AM', {NOW.timestamp()}),"
        " parse_reset_time('resets 2:30am', 1805005800.0))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TZ": "America/New_York"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    spring = datetime(2027, 3, 14, 7, 31, tzinfo=UTC)  # 2:30 does not exist there on this day: half past three
    assert done.stdout.split() == [str(at("2026-11-16T09:56:00").timestamp()), str(spring.timestamp())]


def test_without_a_time_zone_database_only_zones_by_name_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = zoneinfo.TZPATH
    try:
        for module in [name for name in sys.modules if name.split(".")[0] == "tzdata"]:
            monkeypatch.delitem(sys.modules, module)
        monkeypatch.setitem(sys.modules, "tzdata", None)  # not installed, either
        zoneinfo.reset_tzpath(["/nonexistent"])
        ZoneInfo.clear_cache()
        assert read("resets 3:50pm (Asia/Tokyo)") is None
        assert read("resets 3:50pm (UTC)") == read("resets 3:50pm") == at("2026-11-16T15:51:00")
        assert read("resets 3:50pm (GMT-2)") == at("2026-11-16T17:51:00")
    finally:
        zoneinfo.reset_tzpath(kept)
        ZoneInfo.clear_cache()


NEW_YORK = ZoneInfo("America/New_York")


def test_a_time_that_does_not_exist_in_spring() -> None:
    """On 14 March 2027 the clocks of New York go from 2:00 to 3:00."""
    before = datetime(2027, 3, 14, 1, 50, tzinfo=NEW_YORK)
    assert read("resets 2:30am (America/New_York)", before) == datetime(2027, 3, 14, 3, 31, tzinfo=NEW_YORK)
    day_before = datetime(2027, 3, 13, 12, 0, tzinfo=NEW_YORK)
    tomorrow = read("resets 11am (America/New_York)", day_before)
    assert tomorrow == datetime(2027, 3, 14, 11, 1, tzinfo=NEW_YORK)
    assert tomorrow - day_before.astimezone(UTC) == timedelta(hours=22, minutes=1)


def test_a_time_that_comes_twice_in_autumn() -> None:
    """On 7 November 2027 they go from 2:00 back to 1:00."""
    first = datetime(2027, 11, 7, 1, 31, tzinfo=NEW_YORK).astimezone(UTC)
    said = "resets 1:30am (America/New_York)"
    assert read(said, first - timedelta(minutes=50)) == first
    assert read(said, first + timedelta(minutes=20)) == first + timedelta(hours=1), "the second one"
    assert read(said, first + timedelta(minutes=90)) == datetime(2027, 11, 8, 1, 31, tzinfo=NEW_YORK)


def test_the_parts_on_their_own() -> None:
    assert parse_leading_duration("5 days 22 hours 11 minutes left") == 5 * 86400 + 22 * 3600 + 11 * 60
    assert (parse_leading_duration("250ms"), parse_leading_duration("5 months"), parse_leading_duration("x 5s")) == (
        0.25,
        None,
        None,
    )
    assert (from_epoch(SECOND), from_epoch(SECOND * 1000), from_epoch(3600)) == (SECOND, SECOND, None)


WORDS = st.sampled_from(
    [
        *("resets", "reset|retry", "in", "after", "at", "try again", "5", "12", "am", "pm", ":", "-", "+", ".", ","),
        *("(", ")", "Asia/Tokyo", "UTC", "Jul", "5th", "2026", "1794818625", "days", "7m12s", "resets_at", '"', "="),
        *(
            "Mon",
            "tomorrow",
            "\u202f",
            "·",
            "٣",
            "\x00",
            "\ud800",
            "9999999999",
            "0",
            "1e9",
            "T00:00:00Z",
            "2026-11-16",
        ),
    ]
)


@settings(max_examples=200, deadline=None)
@given(
    said=st.text(max_size=60) | st.lists(WORDS, max_size=12).map(" ".join) | st.floats() | st.integers(),
    now=st.floats(0, 5e9) | st.floats(),
    zone=st.none() | st.sampled_from(["UTC", "Asia/Tokyo", "", "x"]) | st.text(max_size=9),
)
@example(said="resets 1am", now=0.0, zone="Asia/Tokyo")
@example(said="resets Jan 1, 1am (Pacific/Kiritimati)", now=1.0, zone=None)
def test_nothing_raises_and_whatever_comes_can_be_waited_for(said: object, now: float, zone: str | None) -> None:
    moment = parse_reset_time(said, now, zone)
    assert moment is None or now <= moment <= now + LONGEST_WAIT_FOR_LIMIT


@pytest.mark.parametrize(
    "unit", ["1", "1s", "resets ", "resets at ", "retry-after: ", "|1794818625x", "1 day ", "(", " ", '\\"', "1:", "é·"]
)
def test_a_megabyte_is_read_as_fast_as_a_line(unit: str) -> None:
    text = unit * (2_000_000 // len(unit))
    started = time.thread_time()
    parse_reset_time(text, NOW.timestamp(), "UTC")
    assert time.thread_time() - started < 2.0
    assert read(f"{text} resets 10:30am (UTC)") in (at("2026-11-16T10:31:00"), read(text)), "its end is looked at"


def test_five_thousand_spoilt_texts() -> None:
    """Seeded, so that a finding comes back."""
    draw = random.Random(6)
    good = (
        "You’ve hit your limit · resets Nov 20, 11:30am (Asia/Seoul) or try again at 4:55 AM in 5 days 2h 1.5s |17948"
    )
    for _ in range(5000):
        letters = list(good)
        for _ in range(draw.randrange(1, 12)):
            letters[draw.randrange(len(letters))] = draw.choice([*good, "", "\x00", "\u202f", "9" * 30, "("])
        moment = read("".join(letters))
        assert moment is None or NOW <= moment <= NOW + timedelta(seconds=LONGEST_WAIT_FOR_LIMIT)
