"""Durations, money and moments as text for interfaces, and durations and sizes parsed from a command line."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Any

from holdfast.base import clock
from holdfast.base.errors import UsageError
from holdfast.base.text import one_line
from holdfast.base.units import parse_duration, show_duration

if TYPE_CHECKING:
    from holdfast.api.tasks.models import UsageRow


def duration(seconds: float) -> str:
    return show_duration(seconds)


def moment(at: float | None) -> str | None:
    """Return a wall time in the zone of the user."""
    return None if at is None else time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(at))


def money(dollars: float) -> str:
    return f"${dollars:.4f}" if 0 < dollars < 1 else f"${dollars:.2f}"


def took(total: UsageRow) -> str:
    """Return tokens, money, turns and model as text. The text is empty when nothing is known."""
    words = []
    if total.get("input") or total.get("output"):
        cached = f" ({_count(total['cached'])} cached)" if total.get("cached") else ""
        words.append(f"{_count(total.get('input', 0))} tokens in{cached}, {_count(total.get('output', 0))} out")
    cost, turns, model = total.get("cost_usd"), total.get("turns"), total.get("model")
    if cost is not None:
        words.append(money(cost))
    if turns:
        words.append(f"{turns} turn{'s' if turns > 1 else ''}")
    if model:
        words.append(one_line(model, 60))
    return ", ".join(words)


def _count(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def _read_setting(key: str, text: str) -> Any:
    from holdfast.config.settings import SETTINGS  # only for options that have the bounds of a setting

    return SETTINGS[key].read(text)


def parse_duration_option(option: str, text: str | None, key: str = "") -> float | None:
    """Return a duration from the command line, in seconds. `key`: the setting whose bounds it has."""
    if text is None:
        return None
    try:
        return float(_read_setting(key, text)) if key else parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}.") from error


def parse_size_option(option: str, text: str | None, key: str) -> int | None:
    """Return a size from the command line, in bytes, within the bounds of a setting."""
    if text is None:
        return None
    try:
        size = int(_read_setting(key, text))
    except ValueError as error:
        raise UsageError(f"{option}: {error}.") from error
    if size == 0:
        raise UsageError(f"{option}: 0 is not a limit. Leave the option out instead.")
    return size


def parse_timeout_option(option: str, text: str | None, key: str) -> float | None:
    """Return a duration from the command line, in seconds, within the bounds of a setting. `off` is infinite."""
    return math.inf if text == "off" else parse_duration_option(option, text, key)


_WEEK = 6 * 86400.0
_YEAR = 300 * 86400.0


def describe_moment(moment: float, zone: str) -> str:
    """Return how far away a moment is, and what a clock in `zone` shows.

    Examples: `in 3h 12m, Tue 02:00 Europe/Berlin`, `5m 2s ago, Mon 23:55 Europe/Berlin`.
    """
    left = moment - clock.now().wall
    away = f"in {show_duration(int(left))}" if left > 0 else f"{show_duration(int(-left))} ago"
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
    except (OSError, ValueError, KeyError):  # the machine's time zone database has changed since
        return UTC
