"""Values that tables of several kinds have (accounts, workers, workflows, schedules), and what a stray word meant."""

from __future__ import annotations

from holdfast.base.text import is_text


def text(value: object) -> str:
    if not isinstance(value, str) or not is_text(value):
        raise ValueError("it is not text; write it in quotes")
    if not value:
        raise ValueError("it is empty; leave it out instead")
    return value


def words(value: object) -> str:
    """The same, and not only blanks."""
    if not text(value).strip():
        raise ValueError("it is empty; leave it out instead")
    return text(value)


def flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("it is neither true nor false")
    return value


def meant(word: str, known: tuple[str, ...], prefix: str = "") -> str:
    """As the end of a message."""
    import difflib

    close = difflib.get_close_matches(word[:200], known, n=1)
    return f"; did you mean '{prefix}{close[0]}'?" if close else ""
