"""Dates and times of day as people and CLIs write them: `3:50pm (Asia/Tokyo)`, `Jul 5th, 2026 8:19 PM`, ISO, HTTP.

This module only reads them. `core/agents/limit_reset.py` decides what a time means for a limit, and has the rules for
times that have passed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo

JUST_OVER = 600.0  # seconds
MINUTE = 60.0  # a time of day without seconds was cut off, so it means the end of its minute
Reading = tuple[float | None, int]  # the time (None: unknown), and the position where its text ends

_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_ZONES: dict[str, int | str] = {
    **dict.fromkeys(("UTC", "GMT", "Z", "WET"), 0),
    **dict.fromkeys(("CET", "BST", "WEST"), 60),
    **dict.fromkeys(("CEST", "EET"), 120),
    **dict.fromkeys(("JST", "KST"), 540),
    **dict.fromkeys(("EDT",), -240),
    **dict.fromkeys(("EST", "CDT"), -300),
    **dict.fromkeys(("CST", "MDT"), -360),
    **dict.fromkeys(("MST", "PDT"), -420),
    **dict.fromkeys(("PST",), -480),
    "ET": "America/New_York",
    "CT": "America/Chicago",
    "PT": "America/Los_Angeles",
}  # minutes east of UTC, or an area for names whose offset depends on the season


def _short_or_long(names: Iterable[str]) -> str:
    return "|".join(f"{name[:3]}(?:{name[3:]})?" if name[3:] else name for name in names)


_FLAGS = re.IGNORECASE | re.ASCII
_SHIFT = r"[+-]\d\d?(?::?\d\d)?"
_ZONE = (
    rf"(?: ?\((?P<area>[a-z][a-z0-9_+:/-]{{1,40}})\)"
    rf"|(?: ?(?P<short>{'|'.join(_ZONES)})\b)?(?: ?(?P<shift>{_SHIFT}))?(?![a-z0-9:]))"
)
_CLOCK = (
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<part>\d{1,9}))?)?)?"
    r"(?: ?(?P<half>[ap])(?:m\b|\.m\.))?"
)
_MONTH = rf"(?P<month>{_short_or_long(_MONTHS)}|sept)\b\.?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_WEEKDAY = rf"(?P<weekday>{_short_or_long(_DAYS)}|tues|thurs?)\b"
_AT = rf"(?:,?(?: at)? {_CLOCK})?"
_SHAPES = tuple(
    re.compile(shape + _ZONE, _FLAGS)
    for shape in (
        rf"(?P<year>\d{{4}})-(?P<month>\d\d)-(?P<day>\d\d)(?:[T ]{_CLOCK})?",  # ISO 8601
        rf"(?:{_WEEKDAY},? )?{_MONTH} {_DAY}(?:,? (?P<year>\d{{4}})(?!\d|:))?{_AT}",
        rf"(?:{_WEEKDAY},? )?{_DAY}[ -]{_MONTH}(?:,?[ -](?P<year>\d{{4}}|\d\d)(?!\d|:))?{_AT}",  # HTTP dates
        rf"(?:{_WEEKDAY}|(?P<relative>today|tomorrow)\b){_AT}",
        _CLOCK,
    )
)
_SHIFTED = re.compile(rf"(?P<short>[a-z]{{1,4}})?(?P<shift>{_SHIFT})?", _FLAGS)
_Fields = dict[str, str | None]


def parse_leading_time(text: str, now: float, zone: str | None) -> Reading | None:
    """Return the time that `text` begins with, or None. `zone` applies to a time without a zone."""
    for shape in _SHAPES:
        found = shape.match(text)
        if found is None:
            continue
        fields: _Fields = found.groupdict()
        try:
            return _nearest(fields, _clock(fields), now, _zone_of_text(fields, zone)), found.end()
        except LookupError:
            return None, found.end()  # a zone that this machine does not know
        except (ValueError, OverflowError, OSError):
            continue  # the 31st of February, 25 o'clock, a year that no clock can show
    return None


def _nearest(fields: _Fields, clock: time, now: float, tz: tzinfo | None) -> float | None:
    """Return the first future time that `fields` and `clock` name. None: there is none, or one of the named times has
    only just passed."""
    today = datetime.fromtimestamp(now, UTC).astimezone(tz).date()
    cut_off = MINUTE if fields["hour"] is not None and fields["second"] is None else 0.0
    moments = [
        moment + cut_off for day in _days(fields, today) for moment in _seconds(datetime.combine(day, clock), tz)
    ]
    if any(0 < now - moment < JUST_OVER for moment in moments):
        return None
    return min((moment for moment in moments if moment >= now), default=None)


def _seconds(wall: datetime, tz: tzinfo | None) -> Iterator[float]:
    """Yield the times at which a clock in `tz` (None: that of this machine) shows `wall`. In the autumn night when
    clocks are set back there are two."""
    first = wall.replace(tzinfo=tz, fold=0).timestamp()
    second = wall.replace(tzinfo=tz, fold=1).timestamp()
    yield first
    if second > first:
        yield second  # if `second` is earlier, the hour does not exist, and `first` is when it would have been


def _days(fields: _Fields, today: date) -> Iterator[date]:
    month, day, year = fields.get("month"), fields.get("day"), fields.get("year")
    if month is not None and day is not None:
        number = int(month) if month.isdigit() else 1 + _index(_MONTHS, month)
        years = [today.year - 1, today.year, today.year + 1] if year is None else [int(year) + 2000 * (len(year) == 2)]
        yield from _existing_dates((y, number, int(day)) for y in years)
    elif (weekday := fields.get("weekday")) is not None:
        this = today + timedelta(days=_index(_DAYS, weekday) - today.weekday())
        yield from (this - timedelta(days=7), this, this + timedelta(days=7))
    elif (relative := fields.get("relative")) is not None:
        yield today + timedelta(days=relative.lower() == "tomorrow")
    else:
        yield from (today - timedelta(days=1), today, today + timedelta(days=1))


def _existing_dates(dates: Iterable[tuple[int, int, int]]) -> list[date]:
    """Return the dates that exist, without the 29ths of February of other years. Raise ValueError if none is left."""
    found, problem = [], None
    for year, month, day in dates:
        try:
            found.append(date(year, month, day))
        except ValueError as error:
            problem = error
    if not found and problem is not None:
        raise problem
    return found


def _index(names: tuple[str, ...], name: str) -> int:
    return next(i for i, known in enumerate(names) if known.startswith(name.lower()[:3]))


def _clock(fields: _Fields) -> time:
    """Return the time of day. Raise ValueError if the text is not one. "at 5" is not a time of day, because it is the
    morning or the evening."""
    if fields["hour"] is None:
        return time()
    hour, minute, second = (int(fields[name] or 0) for name in ("hour", "minute", "second"))
    if (half := fields["half"]) is not None:
        if hour > 12:
            raise ValueError(hour)
        hour = hour % 12 + 12 * (half.lower() == "p")
    elif fields["minute"] is None:
        raise ValueError(hour)
    part = int((fields["part"] or "").ljust(6, "0")[:6])
    return time(0 if hour == 24 else hour, minute, min(second, 59), part)  # some clocks show 24:05, and leap seconds


def _zone_of_text(fields: _Fields, zone: str | None) -> tzinfo | None:
    """Return the zone that the text names, or else the zone of the process that wrote the text. Raise LookupError for
    an unknown zone."""
    area, short, shift = fields["area"], fields["short"], fields["shift"]
    if area is not None and ("/" in area or area.isupper() or not area.isalpha()):
        parts = _SHIFTED.fullmatch(area)
        if parts is None or (parts["short"] or "").upper() not in _ZONES:
            return _area(area)
        short, shift = parts["short"], parts["shift"]
    if short is None and shift is None:
        return _zone_of_process(zone)
    base = _ZONES[(short or "UTC").upper()]
    if isinstance(base, str):
        return _area(base)
    return timezone(timedelta(minutes=base + _minutes(shift or "+0")))


def _minutes(shift: str) -> int:
    digits = shift[1:].replace(":", "")
    hours, minutes = (digits[:-2], digits[-2:]) if len(digits) > 2 else (digits, "0")
    return (-1 if shift[0] == "-" else 1) * (60 * int(hours) + int(minutes))


def _zone_of_process(zone: str | None) -> tzinfo | None:
    """Return the zone for a TZ value. Unset means this machine's zone, empty means UTC, and a path is the file of a
    zone."""
    if zone is None or zone.lstrip(":") == "/etc/localtime":
        return None
    name = zone.lstrip(":").rpartition("zoneinfo/")[2]
    return _area(name) if name else UTC


def _area(name: str) -> tzinfo:
    if name in ("UTC", "Etc/UTC", "GMT"):
        return UTC  # needs no database
    from zoneinfo import ZoneInfo  # imported only here: the import is slow, and hardly ever needed

    try:
        return ZoneInfo(name)
    except (ValueError, OSError) as error:  # a zone that is not found is a LookupError already
        raise LookupError(name) from error
