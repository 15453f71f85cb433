"""Moments in the words of people: how far away, and what a clock in their zone shows."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo

from holdfast.base import clock
from holdfast.base.units import show_duration

_WEEK = 6 * 86400.0
_YEAR = 300 * 86400.0


def in_words(moment: float, zone: str) -> str:
    """`in 3h 12m, Tue 02:00 Europe/Berlin`; `5m 2s ago, Mon 23:55 Europe/Berlin`."""
    left = moment - clock.now().wall
    away = f"in {show_duration(left)}" if left > 0 else f"{show_duration(-left)} ago"
    try:
        local = datetime.fromtimestamp(moment, _zone(zone))
    except (ValueError, OverflowError, OSError):  # beyond the calendar
        return away
    day = "%a" if abs(left) < _WEEK else "%a %d %b" if abs(left) < _YEAR else "%a %d %b %Y"
    time = "%H:%M" if local.second == 0 else "%H:%M:%S"
    return f"{away}, {local.strftime(f'{day} {time}')} {zone}"


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):  # the machine's database has changed since
        return UTC
