"""Durations with units, as people write them."""

from __future__ import annotations

import re

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
LONGEST_WORD = 60
LONGEST = 10 * 365 * 86400.0
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def parse_duration(text: object) -> float:
    """Seconds of "90s", "5m", "1h30m", "250ms". A bare number needs a unit: ValueError, whose text is the message."""
    word = str(text).strip()
    if len(word) > LONGEST_WORD:  # before the pattern, which would need quadratic time for a very long one
        raise ValueError(f"'{word[:LONGEST_WORD]}…' is not a duration; write it like 90s, 5m, 1h30m or 250ms")
    parts = _PART.findall(word)
    if not parts or "".join(number + unit for number, unit in parts) != word:
        raise ValueError(f"'{word}' is not a duration; write it with a unit, like 90s, 5m, 1h30m or 250ms")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if seconds > LONGEST:
        raise ValueError(f"'{word}' is longer than ten years")
    return seconds


def show_duration(seconds: float) -> str:
    """A short human form: 850ms, 12s, 3m 20s, 2h 5m, 4d 3h."""
    if seconds < 1:
        return f"{max(0, int(seconds * 1000))}ms"
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60}s"
    if whole < 86400:
        return f"{whole // 3600}h {whole % 3600 // 60}m"
    return f"{whole // 86400}d {whole % 86400 // 3600}h"
