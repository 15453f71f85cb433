"""When a cron expression is due in a time zone. Pure.

An expression is matched against the clock on the wall. Where that clock is set forward or back:

- An expression of five fields with a fixed minute and hour means one moment a day: one that the clock leaps over comes
  right after the leap, one that it shows twice comes the first time.
- Every other one ("every ten minutes", and whatever has seconds) goes by real time: what is leapt over does not exist,
  what is shown twice comes twice.

That is what Debian's cron does. No gap is ever walked through, however long: the first occurrence from a moment on, and
the last one until a moment, are each found by the calendar. Moments are whole seconds since the epoch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache

_SECOND = timedelta(seconds=1)
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - what clocks on walls show has no zone
_PROBE = 3 * 86400  # seconds; no zone leaves an offset and comes back to it within less
_FIELDS = 5


def first_from(cron: str, zone: str, moment: float) -> float | None:
    """The first occurrence at or after a moment; None: it is never due again."""
    return _found(_first_fixed if _is_fixed(cron, zone) else _first_real, cron, zone, math.ceil(moment))


def last_until(cron: str, zone: str, moment: float) -> float | None:
    """The last occurrence at or before a moment."""
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
    except (ValueError, OSError) as error:  # not found is a LookupError already
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
    """The first moment in (moment, until] from which another offset holds than at `moment`."""
    offset, low = _offset(tz, moment), moment
    while tz is not UTC and low < until:
        high = min(low + _PROBE, until)
        if _offset(tz, high) != offset:
            return _border(tz, low, high, offset)
        low = high
    return None


def _change_before(tz: tzinfo, moment: int, since: int) -> int | None:
    """The last moment in (since, moment] from which the offset of `moment` holds, if it did not at `since`."""
    offset, high = _offset(tz, moment), moment
    while tz is not UTC and high > since:
        low = max(high - _PROBE, since)
        if (other := _offset(tz, low)) != offset:
            return _border(tz, low, high, other)
        high = low
    return None


def _border(tz: tzinfo, low: int, high: int, offset: int) -> int:
    """Where `offset`, which holds at `low` and not at `high`, ends."""
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(tz, middle) == offset:
            low = middle
        else:
            high = middle
    return high


# -- by the clock on the wall: every time that it should show is one moment ----------------------------------------


def _first_fixed(cron: str, tz: tzinfo, moment: int) -> int | None:
    # From what was shown a second ago: at the end of a leap, that is where the leap began.
    shown = _next_shown(cron, moment - 1 + _offset(tz, moment - 1) + 1)
    while shown is not None:
        if (found := _moment_of(tz, shown)) >= moment:
            return found
        shown = _next_shown(cron, shown + 1)
    return None


def _last_fixed(cron: str, tz: tzinfo, moment: int) -> int | None:
    here = datetime.fromtimestamp(moment, tz)
    shown_before = (_seconds(here.replace(fold=0)) - _seconds(here)) if here.fold else 0  # later times were, too
    shown = _last_shown(cron, moment + _seconds(here) + shown_before)
    while shown is not None:
        if (found := _moment_of(tz, shown)) <= moment:
            return found
        shown = _last_shown(cron, shown - 1)
    return None


def _moment_of(tz: tzinfo, shown: int) -> int:
    """When a clock shows this for the first time, or leaps over it."""
    wall = (_EPOCH + timedelta(seconds=shown)).replace(tzinfo=tz)
    found = shown - _seconds(wall)
    if found + _offset(tz, found) == shown:
        return found
    # It is leapt over. With the offset of before the leap it comes out after the leap, with the one of after before.
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
