"""The occurrences of a cron expression in a time zone. Pure.

An expression is matched against local time. When local time is set forward or back:

- An expression of five fields with a fixed minute and hour means one time a day. A time that is skipped comes right
  after the change. A time that is shown twice comes the first time.
- Every other expression ("every ten minutes", and any with seconds) goes by real time. A skipped time does not exist.
  A time that is shown twice comes twice.

Debian's cron does the same. The code never walks through a gap, however long it is. Both `first_occurrence` and
`last_occurrence` compute their result from the calendar. Times are whole seconds since the epoch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache

_SECOND = timedelta(seconds=1)
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - local time has no zone here
_PROBE = 3 * 86400  # seconds; no zone leaves an offset and returns to it within less
_FIELDS = 5


def first_occurrence(cron: str, zone: str, moment: float) -> float | None:
    """Return the first occurrence at or after `moment`. None: no occurrence is left."""
    return _found(_first_fixed if _is_fixed(cron, zone) else _first_real, cron, zone, math.ceil(moment))


def last_occurrence(cron: str, zone: str, moment: float) -> float | None:
    """Return the last occurrence at or before `moment`."""
    return _found(_last_fixed if _is_fixed(cron, zone) else _last_real, cron, zone, math.floor(moment))


def _found(search: Callable[[str, tzinfo, int], int | None], cron: str, zone: str, moment: int) -> float | None:
    try:
        found = search(cron, _zone(zone), moment)
    except (OverflowError, ValueError, OSError):  # beyond the calendar
        return None
    return None if found is None else float(found)


@lru_cache(maxsize=64)
def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC  # needs no database
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (ValueError, OSError) as error:  # a zone that is not found is a LookupError already
        raise LookupError(name) from error


def _is_fixed(cron: str, zone: str) -> bool:
    fields = cron.split()
    return zone != "UTC" and len(fields) == _FIELDS and not fields[0].startswith("*") and not fields[1].startswith("*")


# -- by real time: stretches of one offset, and plain calendar within each -----------------------------------------


def _first_real(cron: str, tz: tzinfo, moment: int) -> int | None:
    while True:
        offset = _offset(tz, moment)
        shown = _next_shown(cron, moment + offset)
        if shown is None:
            return None
        candidate = shown - offset
        change = _change_after(tz, moment, candidate)
        if change is None:
            return candidate
        moment = change


def _last_real(cron: str, tz: tzinfo, moment: int) -> int | None:
    while True:
        offset = _offset(tz, moment)
        shown = _last_shown(cron, moment + offset)
        if shown is None:
            return None
        candidate = shown - offset
        change = _change_before(tz, moment, candidate)
        if change is None:
            return candidate
        moment = change - 1


def _change_after(tz: tzinfo, moment: int, until: int) -> int | None:
    """Return the first time in (moment, until] at which the offset differs from that at `moment`."""
    offset, low = _offset(tz, moment), moment
    while tz is not UTC and low < until:
        high = min(low + _PROBE, until)
        if _offset(tz, high) != offset:
            return _border(tz, low, high, offset)
        low = high
    return None


def _change_before(tz: tzinfo, moment: int, since: int) -> int | None:
    """Return the time in (since, moment] at which the present offset of `moment` began. None: the offset was the same
    at `since`."""
    offset, high = _offset(tz, moment), moment
    while tz is not UTC and high > since:
        low = max(high - _PROBE, since)
        if (other := _offset(tz, low)) != offset:
            return _border(tz, low, high, other)
        high = low
    return None


def _border(tz: tzinfo, low: int, high: int, offset: int) -> int:
    """Return the time at which `offset` ends. It applies at `low` and not at `high`."""
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(tz, middle) == offset:
            low = middle
        else:
            high = middle
    return high


# -- by local time: every local time that the expression names is one moment ---------------------------------------


def _first_fixed(cron: str, tz: tzinfo, moment: int) -> int | None:
    # Start from the local time of a second ago: right after a gap, that is where the gap began.
    shown = _next_shown(cron, moment - 1 + _offset(tz, moment - 1) + 1)
    while shown is not None:
        if (found := _moment_of(tz, shown)) >= moment:
            return found
        shown = _next_shown(cron, shown + 1)
    return None


def _last_fixed(cron: str, tz: tzinfo, moment: int) -> int | None:
    here = datetime.fromtimestamp(moment, tz)
    # later local times were shown before, too
    shown_before = (_seconds(here.replace(fold=0)) - _seconds(here)) if here.fold else 0
    shown = _last_shown(cron, moment + _seconds(here) + shown_before)
    while shown is not None:
        if (found := _moment_of(tz, shown)) <= moment:
            return found
        shown = _last_shown(cron, shown - 1)
    return None


def _moment_of(tz: tzinfo, shown: int) -> int:
    """Return the time at which a clock in `tz` shows the local time `shown` for the first time, or skips it."""
    wall = (_EPOCH + timedelta(seconds=shown)).replace(tzinfo=tz)
    found = shown - _seconds(wall)
    if found + _offset(tz, found) == shown:
        return found
    # The local time is skipped. With the offset before the gap it comes out after the gap, and with the offset after
    # the gap before it.
    after = shown - _seconds(wall.replace(fold=1))
    low, high = min(found, after), max(found, after)
    return _border(tz, low, high, _offset(tz, low))


# -- plain calendar, and zones -------------------------------------------------------------------------------------


def _next_shown(cron: str, shown: int) -> int | None:
    from cronsim import CronSim

    return _shown(next(CronSim(cron, _EPOCH + timedelta(seconds=shown) - _SECOND), None))


def _last_shown(cron: str, shown: int) -> int | None:
    from cronsim import CronSim

    return _shown(next(CronSim(cron, _EPOCH + timedelta(seconds=shown) + _SECOND, reverse=True), None))


def _shown(found: datetime | None) -> int | None:
    return None if found is None else (found - _EPOCH) // _SECOND


def _offset(tz: tzinfo, moment: int) -> int:
    return _seconds(datetime.fromtimestamp(moment, tz))


def _seconds(local: datetime) -> int:
    offset = local.utcoffset()
    assert offset is not None  # every zone has one
    return int(offset.total_seconds())
