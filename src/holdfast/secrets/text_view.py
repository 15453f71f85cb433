"""Views of a text: the text with invisible characters taken out or escapes decoded, and the place in the text from
which each character came.

A secret is searched in every view, and replaced in the text itself. So a secret with a colour, a NUL or a character
without width inside is found, and a cleaned text never shows a secret that the raw text hid. Every view takes one pass.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from re import Match

from holdfast.base.text import ESCAPES
from holdfast.secrets.patterns import compile_pattern

Span = tuple[int, int]
# Characters that `ESCAPES` can start with. One class of characters is searched much faster than its alternatives.
_INVISIBLE = (
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U0001f3fb-\U0001f3ff\U000e0000-\U000e0fff]"
)
# Escapes of JSON, of source code, of addresses and of HTML. Backslashes in front of other characters are left out.
_ESCAPED = (
    r"(?s)\\+(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|u\{([0-9A-Fa-f]{1,6})\}|([0-7]{3})|(.?))"
    r"|%([0-9A-Fa-f]{2})|&(?:#([0-9]{1,7})|#[xX]([0-9A-Fa-f]{1,6})|(amp|lt|gt|quot|apos));"
)
_HEXADECIMAL, _OCTAL, _DECIMAL, _AS_IT_IS, _NAMED = (1, 2, 3, 4, 7, 9), 5, 8, 6, 10
_ENTITIES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
# One line of a dump: the offset, pairs of digits in groups, and mostly a column of text.
_DUMP_LINE = (
    r"(?m)^ {0,4}[0-9A-Fa-f]{7,8}:? {1,2}((?:[0-9A-Fa-f]{2}(?:[0-9A-Fa-f]{2})? {1,2}|[0-9A-Fa-f]{2,4}$){1,16}).*$"
)


class TextView:
    """A text that was made from another one, and where each of its characters came from."""

    def __init__(self, text: str, ats: list[int], places: list[int]) -> None:
        self.text = text
        self._ats = ats  # offsets in the view at which a piece begins
        self._places = places  # their offsets in the text; the last is its end

    def span_in_text(self, start: int, end: int) -> Span:
        """Return the span of the text from which a span of the view came. Escapes stay whole."""
        first, last = bisect_right(self._ats, start) - 1, bisect_right(self._ats, end - 1) - 1
        begins = self._places[first] + start - self._ats[first]
        if self._ats[last + 1] == end:
            return begins, self._places[last + 1]
        return begins, self._places[last] + end - self._ats[last]


def _replace_matches(text: str, matches: Iterable[Match[str]], decode: Callable[[Match[str]], str]) -> TextView:
    parts: list[str] = []
    ats: list[int] = []
    places: list[int] = []
    at = done = 0
    for match in matches:
        start, end = match.span()
        if start > done:
            parts.append(text[done:start])
            ats.append(at)
            places.append(done)
            at += start - done
        letter = decode(match)
        ats.append(at)
        places.append(start)
        if letter:
            parts.append(letter)
            at += 1
        done = end
    parts.append(text[done:])
    return TextView("".join(parts), [*ats, at, at + len(text) - done], [*places, done, len(text)])


def without_invisible(text: str) -> TextView | None:
    """Return the text as `clean_text` shows it. None: the text has no invisible characters."""
    if compile_pattern(_INVISIBLE).search(text) is None:
        return None
    return _replace_matches(text, ESCAPES.finditer(text), lambda match: "")


def without_escapes(text: str) -> TextView | None:
    """Return the text with its escapes decoded. None: the text has no escapes."""
    if "\\" not in text and "%" not in text and "&" not in text:
        return None
    return _replace_matches(text, compile_pattern(_ESCAPED).finditer(text), _decode)


def _decode(match: Match[str]) -> str:
    which = match.lastindex
    assert which is not None
    found = match.group(which)
    if which == _AS_IT_IS:
        return found
    if which == _NAMED:
        return _ENTITIES[found]
    number = int(found, 8 if which == _OCTAL else 10 if which == _DECIMAL else 16)
    return chr(number) if number <= 0x10FFFF else "�"


def decode_dump(text: str) -> TextView | None:
    """Return the bytes of a hexadecimal dump (`xxd`, `hexdump -C`) as text. None: the text has no dump."""
    if "0: " not in text and "0  " not in text:
        return None
    letters: list[str] = []
    places: list[int] = []
    end = 0
    for line in compile_pattern(_DUMP_LINE).finditer(text):
        for pair in compile_pattern("[0-9A-Fa-f]{2}").finditer(text, *line.span(1)):
            letters.append(chr(int(pair.group(), 16)))
            places.append(pair.start())
        end = line.end()
    return TextView("".join(letters), list(range(len(letters) + 1)), [*places, end]) if letters else None


def end_of_dump_line(text: str, at: int) -> int:
    """Return the end of the line around `at`. The whole line counts, because its last column shows the same bytes as
    text."""
    rest = compile_pattern('[^"\n]*').match(text, at)
    return at if rest is None else rest.end()


def lower_letters(text: str) -> str:
    """Return the text in small letters, with the same length."""
    small = text.lower()
    if len(small) == len(text):
        return small
    return "".join(letter.lower() if len(letter.lower()) == 1 else letter for letter in text)


_NOT_IN_CODES = bytes(byte for byte in range(256) if not (48 <= byte <= 57 or 97 <= byte <= 122))


def letters_and_digits(small: str) -> str:
    """Return the small letters and digits of a text: base64 and hexadecimal without line ends and spaces."""
    return small.encode("ascii", "ignore").translate(None, _NOT_IN_CODES).decode()


def without_line_ends(small: str) -> str:
    """Return the text with spaces in the place of line ends as JSON writes them."""
    return small.replace("\\n", "  ").replace("\\r", "  ") if "\\" in small else small


def places_of_letters(small: str) -> list[int]:
    """Return the place of each character of `letters_and_digits`."""
    return [at for at, letter in enumerate(small) if "0" <= letter <= "9" or "a" <= letter <= "z"]
