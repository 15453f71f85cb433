"""Foreign text on a terminal: an agent's output or a repository's file must not control the terminal."""

from __future__ import annotations

import re

# Whole escape sequences come first, then all other control characters, except tabs and line ends. Then come those that
# reverse the direction of text, which would also turn the text next to it. The last are those without a width of their
# own, or with one that terminals do not agree about.
ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
    r"|[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
    r"|[\u00ad\u034f\u0600-\u0605\u06dd\u070f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2028\u2029\u2060-\u2065\u206a-\u206f"
    r"\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U0001f3fb-\U0001f3ff\U000e0000-\U000e0fff]"
)
# Characters that would show another path than the real one, or two lines for one.
_MISLEADING = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_HALVES = re.compile("[\ud800-\udfff]")  # bytes that are not text


def clean_text(text: object) -> str:
    """Return text without escape sequences and control characters. No character of the result affects the text next to
    the result."""
    plain = ESCAPES.sub("", str(text))
    return plain if plain.isascii() else _HALVES.sub("�", plain)


def indent_text(text: object, indent: str = "  ") -> str:
    """Return printable text whose later lines are indented, so that they cannot be taken for lines that Holdfast
    prints."""
    return clean_text(text).replace("\n", f"\n{indent}")


def is_misleading(path: str) -> bool:
    """True if a path cannot be printed unchanged, or cannot be passed to a tool that reads lines."""
    return _MISLEADING.search(path) is not None


def one_line(text: object, width: int | None = None) -> str:
    """Return printable text on one line, cut to `width`."""
    flat = " ".join(clean_text(text).split())
    return flat if width is None or len(flat) <= width else flat[: width - 1] + "…"


_MARKS = re.compile(r"(?:(?:#+|[-*])\s+(?:\[[ xX]\]\s+)?)+")  # of a heading, a list or a checklist in Markdown


def subject_line(text: str, width: int = 72) -> str:
    """Return the first line of a text as the subject of a commit: without Markdown marks, cut between two words."""
    first = next((line for line in map(one_line, text.splitlines()) if line), "")
    first = first[marks.end() :] if (marks := _MARKS.match(first)) and marks.end() < len(first) else first
    if len(first) <= width:
        return first.removesuffix(".") if not first.endswith("..") else first
    cut = first[: width - 1]
    space = cut.rfind(" ")
    return (cut[:space] if space > width // 2 else cut).rstrip(" ,;:.-") + "…"


def as_sentence(text: str) -> str:
    """Return the text with a full stop, unless it already ends a sentence."""
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def is_text(text: str) -> bool:
    """True if the text can be stored and shown: no NUL, and no bytes that could not be decoded."""
    return "\0" not in text and not any(0xD800 <= ord(letter) <= 0xDFFF for letter in text)


def make_text(name: str) -> str:
    """Return a file name in a form that can be stored and shown. Bytes that are not text become question marks."""
    return name.encode(errors="surrogateescape").decode(errors="replace").replace("\0", "�")
