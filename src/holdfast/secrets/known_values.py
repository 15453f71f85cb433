"""Known values of secrets in a text: whole, cut off, or encoded.

The work does not grow with the number of values: a set of pieces of all values shows first which pieces occur in the
text. Then only values with such a piece are searched. Every step is linear, whatever an agent writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from holdfast.secrets.patterns import compile_pattern
from holdfast.secrets.text_view import (
    letters_and_digits,
    lower_letters,
    places_of_letters,
    without_escapes,
    without_line_ends,
)

EDGE = 8  # letters of a value at the end of a text, or before an ellipsis, that identify it
SHORTEST_WORD = 16  # of nothing but letters: shorter ones are words
_ENCODED = 12  # letters that an encoded value must have
_PIECE = 5  # letters of a piece
_STEP = 4  # letters between two pieces of a text. Eight letters of a value have one of them, wherever they are
_MOST_VALUES = 1000  # whose ways of writing are cached
_BORDERS = r"…|\.\.\.|\n|\r|\Z"  # a value may be cut off in front of them
_PART = r"(?:[^\"\\]|\\[^\"])+"  # without a quotation mark, and without half of an escaped one
Found = tuple[int, int, str]  # a span and the replacement


class KnownValues:
    """The values that are searched for, each with its replacement."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._forms: list[tuple[str, str]] = []  # small letters → the replacement; the longest first
        self._codes: list[tuple[str, str]] = []
        self._by_piece: dict[str, list[int]] = {}
        self._code_by_piece: dict[str, list[int]] = {}
        self._automaton: tuple[tuple[int, ...], Automaton, Automaton] | None = None  # of the last values that were cut
        for value, word in values.items():
            forms, codes = ways_of_writing(value)
            for form in forms:
                for at in {*range(_STEP), *range(len(form) - EDGE, len(form) - EDGE + _STEP)}:
                    self._by_piece.setdefault(form[at : at + _PIECE], []).append(len(self._forms))
                self._forms.append((form, word))
            for code in codes:
                for at in range(_STEP):
                    self._code_by_piece.setdefault(code[at : at + _PIECE], []).append(len(self._codes))
                self._codes.append((code, word))

    def find_in(self, text: str, small: str) -> Iterator[Found]:
        """Yield the spans of values: whole values, and values that are cut off at either end of the text or at a border
        inside it. `small`: the text in small letters."""
        near = _near(small, self._by_piece)
        if not near:
            return
        forms = [self._forms[number] for number in near]
        whole = list(_find_whole(small, forms))
        yield from whole
        beginnings, ends = {form[:EDGE] for form, _word in forms}, {form[-EDGE:] for form, _word in forms}
        rest = _blank(small, whole)
        begun, ended = any(part in rest for part in beginnings), any(part in rest for part in ends)
        if not begun and not ended:
            return
        forwards, backwards = self._automata(near)
        if begun:
            yield from (found for found in forwards.find_cut(rest) if not _is_a_word(text[found[0] : found[1]]))
        if ended:
            for at, end, word in backwards.find_cut(rest[::-1]):
                if not _is_a_word(text[len(text) - end : len(text) - at]):
                    yield len(text) - end, len(text) - at, word

    def find_encoded_in(self, small: str) -> Iterator[Found]:
        """Yield the spans of encoded values in a text of small letters. A span never includes a quotation mark."""
        small = without_line_ends(small)
        letters = letters_and_digits(small)
        near = _near(letters, self._code_by_piece)
        found = list(_find_whole(letters, [self._codes[number] for number in near]))
        if not found:
            return
        places = places_of_letters(small)
        for start, end, word in found:
            for part in compile_pattern(_PART).finditer(small, places[start], places[end - 1] + 1):
                if letters_and_digits(part.group()):
                    yield *part.span(), word

    def _automata(self, near: list[int]) -> tuple[Automaton, Automaton]:
        kept = self._automaton
        if kept is None or kept[0] != tuple(near):
            forms = [self._forms[number] for number in near]
            kept = tuple(near), Automaton(forms), Automaton([(form[::-1], word) for form, word in forms])
            self._automaton = kept
        return kept[1:]


def _near(text: str, by_piece: Mapping[str, list[int]]) -> list[int]:
    pieces = {text[at : at + _PIECE] for at in range(0, len(text), _STEP)}
    if by_piece.keys().isdisjoint(pieces):
        return []
    return sorted({number for piece in by_piece.keys() & pieces for number in by_piece[piece]})


def _find_whole(text: str, forms: Iterable[tuple[str, str]]) -> Iterator[Found]:
    for form, word in forms:
        at = text.find(form)
        while at >= 0:
            yield at, at + len(form), word
            at = text.find(form, at + len(form))


def _blank(text: str, found: Iterable[Found]) -> str:
    """Return the text with the spans blanked out, at the same length."""
    kept: list[str] = []
    done = 0
    for start, end, _word in sorted(found):
        if end > done:
            start = max(start, done)
            kept += (text[done:start], "\0" * (end - start))
            done = end
    return "".join((*kept, text[done:])) if kept else text


class Automaton:
    """The automaton of Aho and Corasick: after each letter it knows the longest beginning of a value that ends there.

    A text is read only once for all values, because an agent's output may have any number of such beginnings.
    """

    def __init__(self, forms: Iterable[tuple[str, str]]) -> None:
        self._next: list[dict[str, int]] = [{}]
        self._depth = [0]
        self._words = [""]
        for form, word in forms:
            node = 0
            for letter in form:
                if letter not in self._next[node]:
                    self._next[node][letter] = len(self._next)
                    self._next.append({})
                    self._depth.append(self._depth[node] + 1)
                    self._words.append(word)
                node = self._next[node][letter]
        self._shorter = [0] * len(self._next)  # the node of the longest beginning that is an end of this one
        nodes = list(self._next[0].values())
        for node in nodes:  # grows: shorter beginnings first
            for letter, child in self._next[node].items():
                self._shorter[child] = self._step(self._shorter[node], letter)
                nodes.append(child)

    def _step(self, node: int, letter: str) -> int:
        following = self._next
        while node and letter not in following[node]:
            node = self._shorter[node]
        return following[node].get(letter, 0)

    def find_cut(self, text: str) -> Iterator[Found]:
        """Yield the beginnings of values that are cut off by a border or by the end of the text."""
        following, shorter = self._next, self._shorter
        node = done = 0
        for border in compile_pattern(_BORDERS).finditer(text):
            for letter in text[done : border.start()]:
                while node and letter not in following[node]:
                    node = shorter[node]
                node = following[node].get(letter, 0)
            done = border.start()
            depth = self._depth[node]
            if depth >= EDGE:
                yield done - depth, done, self._words[node]


def _is_a_word(part: str) -> bool:
    """True if a part of a value looks like an ordinary word, like `password` in password123 or `postgres` in an
    address. Such a word also occurs in other texts and is not secret."""
    return len(part) < SHORTEST_WORD and part in (part.lower(), part.upper()) and not any(map(str.isdigit, part))


@lru_cache(maxsize=_MOST_VALUES)
def ways_of_writing(value: str) -> tuple[list[str], list[str]]:
    """Return the forms of a value in small letters, and its encodings in small letters and digits."""
    from json import dumps  # few commands get here

    as_bytes = value.encode(errors="replace")
    written = [value, value.replace(" ", "+"), dumps(value)[1:-1], as_bytes.decode("latin-1")]
    decoded = [view.text for view in map(without_escapes, written) if view is not None]
    forms = [form for form in dict.fromkeys(map(lower_letters, (*written, *decoded))) if len(form) >= EDGE]
    codes: list[str] = []
    for data in (as_bytes, value.encode("utf-16-le", errors="replace")):
        once = list(_in_base64(data))
        twice = [code for letters in once for code in _in_base64(letters.encode())]
        codes += (data.hex(), *once, *twice, *_in_base32(data))
    plain = (letters_and_digits(code.lower()) for code in codes)
    return forms, [code for code in dict.fromkeys(plain) if len(code) >= _ENCODED]


def _in_base64(value: bytes) -> Iterator[str]:
    """Yield the base64 forms, of a value, without the letters that depend on the text before and after the value."""
    from base64 import b64encode

    for before in range(3):
        letters = b64encode(b"\0" * before + value).decode().rstrip("=")
        last = len(letters) if (before + len(value)) % 3 == 0 else len(letters) - 1
        yield letters[(0, 2, 3)[before] : last]


def _in_base32(value: bytes) -> Iterator[str]:
    from base64 import b32encode

    for before in range(5):
        letters = b32encode(b"\0" * before + value).decode().rstrip("=")
        last = len(letters) if (before + len(value)) % 5 == 0 else len(letters) - 1
        yield letters[(0, 2, 4, 5, 7)[before] : last]
