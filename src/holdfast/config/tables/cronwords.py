"""Cron expressions and time zones as people write them, checked, with mistakes in a person's words.

What computes with them is imported only when there is one: every command reads the user's file.
"""

from __future__ import annotations

from holdfast.base.text import is_text
from holdfast.config.values import shown

LONGEST_CRON = 200
LONGEST_ZONE = 64
_FIELDS = "minute, hour, day of month, month, day of week"
_ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_WANTS = {  # by the field's place among six
    "second": (0, "0 to 59"),
    "minute": (1, "0 to 59"),
    "hour": (2, "0 to 23"),
    "day-of-month": (3, "1 to 31, or L for the last day, in a month that has it"),
    "month": (4, "1 to 12, or JAN to DEC"),
    "day-of-week": (5, "0 to 7 (0 and 7 are Sunday), SUN to SAT, 5L for the last Friday or 1#2 for the second Monday"),
}


def cron_expression(value: object) -> str:
    if not isinstance(value, str) or not is_text(value):
        raise ValueError('it is not text; write it in quotes, like "0 2 * * *"')
    if value.strip().lower() in _ALIASES:
        raise ValueError(f"write '{shown(value)}' as \"{_ALIASES[value.strip().lower()]}\"")
    if len(value) > LONGEST_CRON:
        raise ValueError(f"it has {len(value)} characters; {LONGEST_CRON} is the most")
    expression = " ".join(value.split())
    from datetime import UTC, datetime

    from cronsim import CronSim, CronSimError

    try:
        times = CronSim(expression, datetime(2001, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        raise ValueError(_in_words(expression, str(error))) from None
    except (ValueError, AssertionError, OverflowError):
        raise ValueError(f"'{shown(expression)}' cannot be read as cron: {_FIELDS}") from None
    if next(times, None) is None:
        raise ValueError(f"'{shown(expression)}' never comes")
    return expression


def _in_words(expression: str, error: str) -> str:
    parts = expression.split()
    if len(parts) not in (5, 6):
        return (
            f"'{shown(expression)}' has {len(parts)} field{'' if len(parts) == 1 else 's'}; five are expected "
            f"({_FIELDS}), or six with seconds first"
        )
    name = error.removeprefix("Bad ")
    if name not in _WANTS:
        return f"'{shown(expression)}' cannot be read as cron: {error[:1].lower()}{error[1:]}"
    index, wants = _WANTS[name]
    part = parts[index - (6 - len(parts))]
    return (
        f"its {name.replace('-', ' ')} '{shown(part)}' cannot be read: it is {wants}; lists (1,2), ranges (1-5) and "
        "steps (*/15) of them"
    )


def time_zone(value: object) -> str:
    if not isinstance(value, str) or not is_text(value) or not value:
        raise ValueError('it is not text; write it in quotes, like "Europe/Berlin"')
    from zoneinfo import ZoneInfo

    try:
        if len(value) <= LONGEST_ZONE:
            ZoneInfo(value)
            return value
    except (OSError, ValueError, KeyError):  # not there; a directory of zones; outside of their directory
        pass
    raise ValueError(f"there is no time zone '{shown(value)}'{_meant(value)}; they are named like Europe/Berlin")


def _meant(word: str) -> str:
    import difflib
    from zoneinfo import available_timezones

    known = sorted(available_timezones())
    low = word[:LONGEST_ZONE].lower().replace(" ", "_")
    close = [zone for zone in known if zone.lower() == low] or difflib.get_close_matches(word[:LONGEST_ZONE], known, 1)
    close = close or [zone for zone in known if zone.lower().rpartition("/")[2] == low]
    return f"; did you mean '{close[0]}'?" if close else ""
