"""Other people's words on a terminal: an agent's output or a repository's file must not drive it."""

from __future__ import annotations

import re

# Whole escape sequences first, then whatever control characters are left (tabs and line ends stay), those that let a
# text run the other way (they would turn what stands beside it too), and those without a width of their own, or with
# one that terminals do not agree about.
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
    r"|[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
    r"|[\u00ad\u0600-\u0605\u06dd\u070f\u180e\u200b-\u200d\u2028\u2029\u2060-\u2064\ufe00-\ufe0f\ufeff\ufff9-\ufffb"
    r"\U0001f3fb-\U0001f3ff\U000e0000-\U000e0fff]"
)
# What would show another path than the one that it is, or two lines for one.
_MISLEADING = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_HALVES = re.compile("[\ud800-\udfff]")  # bytes that are no text


def clean(text: object) -> str:
    """Printable text: escape sequences and control characters are gone, and nothing in it moves what stands beside."""
    plain = _ESCAPES.sub("", str(text))
    return plain if plain.isascii() else _HALVES.sub("�", plain)


def quoted(text: object, indent: str = "  ") -> str:
    """The same, where what follows a line end cannot be taken for a line of ours."""
    return clean(text).replace("\n", f"\n{indent}")


def misleads(path: str) -> bool:
    """Whether a path cannot be shown, or given to a tool that reads lines, as it is."""
    return _MISLEADING.search(path) is not None


def one_line(text: object, width: int | None = None) -> str:
    """The same on one line, cut to `width`."""
    flat = " ".join(clean(text).split())
    return flat if width is None or len(flat) <= width else flat[: width - 1] + "…"


def is_text(text: str) -> bool:
    """Whether it can be stored and shown: no NUL, no bytes that were not decodable."""
    return "\0" not in text and not any(0xD800 <= ord(letter) <= 0xDFFF for letter in text)


def as_text(name: str) -> str:
    """The name of a file as it can be stored and shown: bytes that are no text become question marks."""
    return name.encode(errors="surrogateescape").decode(errors="replace").replace("\0", "�")
