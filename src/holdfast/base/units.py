"""Durations and sizes with units, as people write them."""

from __future__ import annotations

import re
from itertools import pairwise

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
LONGEST_WORD = 60
LONGEST = 10 * 365 * 86400.0
_PART = r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)"  # compiled when it is used: `ps` has to start fast
_LONGEST_WORD = 40  # characters of a wrong value in an error message
_LONGEST_DURATION = 60

_STEPS = "kmgtp"
LARGEST = 2**63 - 1
_SIZE = r"(?i)([0-9]+(?:\.[0-9]+)?) ?(?:([kmgtp])(i?b?)|(b|bytes?))"


def parse_duration(text: object) -> float:
    """Return the seconds of "90s", "5m", "1h30m", "250ms". A bare number needs a unit: it raises ValueError, whose text
    is the message."""
    word = str(text).strip()
    parts = re.findall(_PART, word[:_LONGEST_DURATION])  # the pattern needs quadratic time for a very long text
    if not parts or "".join(number + unit for number, unit in parts) != word:
        raise ValueError(f"'{_cut(word)}' is not a duration; write it with a unit, like 90s, 5m, 1h30m or 250ms")
    seconds = round(sum(float(number) * _UNITS[unit] for number, unit in parts), 9)  # 9ms is 0.009, not slightly more
    if seconds > LONGEST:
        raise ValueError(f"'{_cut(word)}' is longer than ten years")
    return seconds


def show_duration(seconds: float) -> str:
    """Return a short form for people: 850ms, 12s, 3m 20s, 2h 5m, 4d 3h. A part that is zero is left out, as in 5m or
    6h."""
    if 0.001 <= seconds < 1:
        return f"{int(seconds * 1000)}ms"
    whole = max(0, int(seconds))
    for (unit, size), (name, part) in pairwise((("d", 86400), ("h", 3600), ("m", 60), ("s", 1))):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size}{unit} {rest}{name}" if rest else f"{whole // size}{unit}"
    return f"{whole}s"


def write_duration(seconds: float) -> str:
    """Return the form that `parse_duration` reads back to the same number: 1h30m, 250ms, 0s."""
    thousandths = round(seconds * 1000)
    if thousandths / 1000 != seconds:
        return f"{seconds:.9f}".rstrip("0") + "s"
    words = ""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, thousandths = divmod(thousandths, size)
        words += f"{count}{unit}" if count else ""
    return words or "0s"


def parse_size(text: object) -> int:
    """Return the bytes of "512MiB", "2G", "1.5GB", "100k", "0". KB, MB … count in thousands, and K, M … and KiB, MiB …
    in 1024s.

    A bare number raises ValueError, because 100 might be bytes or megabytes.
    """
    word = str(text).strip()
    if word == "0":
        return 0
    found = re.fullmatch(_SIZE, word)
    if found is None or isinstance(text, bool):
        raise ValueError(f"'{_cut(word)}' is not a size; write it with a unit, like 512MiB, 2G, 1.5GB or 100k")
    number, step, tail, _plain = found.groups()
    factor = 1
    if step:
        base = 1000 if tail.lower() == "b" else 1024
        factor = base ** (_STEPS.index(step.lower()) + 1)
    whole, _, fraction = number.partition(".")
    # Cut the digits first: int() raises an error for five thousand of them.
    whole, fraction = whole.lstrip("0")[:30] or "0", fraction[:15]
    size: int = int(whole) * factor + int(fraction or "0") * factor // 10 ** len(fraction)
    if size > LARGEST:
        raise ValueError(f"'{_cut(word)}' is larger than any disk")
    return size


def show_size(size: int) -> str:
    """Return a short form for people, in 1024s: 0 B, 512 B, 1.5 MiB, 20 GiB."""
    if size < 1024:
        return f"{size} B"
    value = float(size)
    for step in _STEPS:
        value /= 1024
        if value < 1023.95 or step == _STEPS[-1]:
            break
    return f"{value:.1f}".removesuffix(".0") + f" {step.upper()}iB"


def write_size(size: int) -> str:
    """Return the form that `parse_size` reads back to the same number: 512MiB, 1500B, 0."""
    if size == 0:
        return "0"
    for power in range(len(_STEPS), 0, -1):
        if size % 1024**power == 0:
            return f"{size // 1024**power}{_STEPS[power - 1].upper()}iB"
    return f"{size}B"


def _cut(word: str) -> str:
    flat = " ".join(word.split())  # a message is one line
    return flat if len(flat) <= _LONGEST_WORD else flat[: _LONGEST_WORD - 1] + "…"
