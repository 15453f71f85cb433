"""The end of a limit: every form in which agents report it, as one wall time.

`reset_time` reads a field of a CLI's error, never the model's text. The error was written at `now` by a process whose
time zone is `zone` (its TZ; None: that of this machine). The rules:

- A number is an epoch by its magnitude (seconds to nanoseconds). One that is too small for that is seconds from now.
- A time of day without seconds ("12:06 PM", "2pm") was cut off: it means the end of its minute, 12:07:00.
- A time of day that is over means the next day, and a date without a year the next year.
- A time that is over by less than ten minutes is unknown: it was rounded down, or is late. A day's wait would be wrong.
- A whole date that is over is unknown. So is everything beyond LONGEST, so that no task waits for months.
- A time that does not exist (spring) is read as if the clocks had not changed. Of two (autumn) the next one counts.
- A time in a zone that this machine does not know is unknown.

"Unknown" is None, and `resume.default_hold` holds the task then. No text makes these functions raise.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from holdfast.core.agents.dates import Reading, parse_leading_time

LONGEST_WAIT_FOR_LIMIT = (
    32 * 86400.0
)  # limits are per minute to per month; no task should wait longer without an operator
_READ = 8192  # characters at each end of a text: the middle of a megabyte adds nothing

_EPOCHS = ((1e9, 1.0), (1e12, 1e3), (1e15, 1e6), (1e18, 1e9))  # s, ms, µs, ns: each from 2001 to 2286
_LEAST_EPOCH = _EPOCHS[0][0]
_UNITS = {"ms": 0.001, "mil": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}

_FLAGS = re.IGNORECASE | re.ASCII
_NUMBER = re.compile(r"(\d{1,19}(?:\.\d{1,9})?)(?![.:]?\d)", _FLAGS)
_PART = re.compile(
    r"(\d{1,9}(?:\.\d{1,9})?) ?"
    r"(ms|milliseconds?|msecs?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?)(?![a-z])"
    r"(?:,? (?:and )?(?=\d))?",
    _FLAGS,
)
_EPOCH_AFTER_BAR = re.compile(r"\| ?(\d{10,19})(?!\d)", _FLAGS)  # "Claude AI usage limit reached|1794714959"
_KEY = re.compile(
    r"(?:resets?[_-]?(?:at|on|in|after|time(?:stamp)?|delay|requests|tokens)?|retry[_-]?(?:after|delay|in))"
    r"[_-]?(?:seconds|(?P<ms>ms))?\\{0,4}[\"']? ?[:=] ?\\{0,4}[\"']?",
    _FLAGS,
)  # of a header or of a JSON body inside the text
_LEAD = re.compile(
    r"\b(?:resets?|resetting|try(?:ing)? again|retry(?:ing)?|wait|available|renews?|until|regain access)\b", _FLAGS
)
_FILLER = re.compile(
    r"(?:[ :,·∙•-]|\b(?:at|on|again|after|about|around|approximately|will|be|is|the|time|up to|it)\b)*", _FLAGS
)
_IN = re.compile(r"(?:in|for)(?: about| around| approximately)? ", _FLAGS)
_AFTER = re.compile(r"\bafter\b", _FLAGS)


def parse_reset_time(said: object, now: float, zone: str | None = None) -> float | None:
    """Return the time that `said` (a number or a text) names, if it can be believed. See the rules above."""
    if not 0.0 <= now < 10 * _LEAST_EPOCH:
        return None
    if isinstance(said, int | float) and not isinstance(said, bool):
        return believable_time(_from_number(said, now), now)
    return parse_time_in_text(said, now, zone) if isinstance(said, str) else None


def believable_time(moment: float | None, now: float) -> float | None:
    """Return the time if a task may wait for it: not over, not NaN, and not months away."""
    return moment if moment is not None and now <= moment <= now + LONGEST_WAIT_FOR_LIMIT else None


def from_epoch(number: float) -> float | None:
    """Return the seconds since 1970 of a number that may count seconds, milliseconds, microseconds or nanoseconds."""
    unit = next((unit for least, unit in _EPOCHS if least <= number < 10 * least), None)
    return None if unit is None else number / unit


def parse_leading_duration(text: str) -> float | None:
    """Return the seconds of the duration that `text` begins with: `5 days 22 hours 11 minutes`, `2.5s`, `7m12s`."""
    duration = _duration(text)
    return None if duration is None else duration[0]


def parse_time_in_text(text: str, now: float, zone: str | None = None) -> float | None:
    """Return the time that a text names. The first reading counts, even one that names no time: a less certain one
    would be a guess."""
    return believable_time(next(_readings(_plain(text), now, zone), None), now)


def _plain(text: str) -> str:
    """Return both ends of the text, with all spaces and digits replaced by plain ones. Some CLIs put a narrow no-break
    space before AM and PM."""
    if len(text) > 2 * _READ:
        text = f"{text[:_READ]}\n{text[-_READ:]}"
    return " ".join(unicodedata.normalize("NFKC", text).split())


def _readings(text: str, now: float, zone: str | None) -> Iterator[float | None]:
    """Yield the possible readings of the text, the most certain first."""
    whole = _value(text, now, zone)
    if whole is not None and whole[1] >= len(text.rstrip(".")):
        yield whole[0]
    for bar in _EPOCH_AFTER_BAR.finditer(text):
        yield from_epoch(int(bar[1]))
    for key in _KEY.finditer(text):
        value = _value(text[key.end() : key.end() + 100], now, zone, 0.001 if key["ms"] else 1.0)
        if value is not None:
            yield value[0]
    for lead in _LEAD.finditer(text):
        prose = _prose(text[lead.end() : lead.end() + 160], now, zone)
        if prose is not None:
            yield prose[0]


def _value(text: str, now: float, zone: str | None, unit: float = 1.0) -> Reading | None:
    """Read a text that begins with a duration, a time or a number, as in headers and fields."""
    if (duration := _duration(text)) is not None:
        return now + duration[0], duration[1]
    if (moment := parse_leading_time(text, now, zone)) is not None:
        return moment
    number = _NUMBER.match(text)
    return None if number is None else (_from_number(float(number[1]), now, unit), number.end())


def _prose(text: str, now: float, zone: str | None) -> Reading | None:
    """Read the text after "resets", "try again" and the like."""
    filler = _FILLER.match(text)
    start = 0 if filler is None else filler.end()
    rest = text[start:]
    if within := _IN.match(rest):
        duration = _duration(rest[within.end() :])
        return None if duration is None else (now + duration[0], 0)
    reading = _value(rest, now, zone)
    bare = _NUMBER.match(rest)
    is_bare = bare is not None and reading is not None and reading[1] == bare.end()
    if is_bare and bare is not None and float(bare[1]) < _LEAST_EPOCH and not _AFTER.search(text, 0, start):
        return None  # "retry 3" is a count; "retry after 3" is not
    return reading


def _duration(text: str) -> tuple[float, int] | None:
    seconds, place = 0.0, 0
    while part := _PART.match(text, place):
        seconds += float(part[1]) * _seconds_of(part[2].lower())
        place = part.end()
    return (seconds, place) if place else None


def _seconds_of(unit: str) -> float:
    return next(seconds for word, seconds in _UNITS.items() if unit.startswith(word))


def _from_number(number: float, now: float, unit: float = 1.0) -> float | None:
    return now + number * unit if 0 <= number < _LEAST_EPOCH else from_epoch(number)
