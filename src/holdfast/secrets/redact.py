"""The redaction of secrets: text of agents and tools passes through here before it is stored or shown.

A secret is known by its value or by its form. Known values are those that this process gave to agents, or has in its
own environment. Known forms are in secrets/patterns.py.

A value is found as it is, escaped for JSON or for addresses, in base64 at any offset, and in hexadecimal. It is also
found when it is cut off at either end of a text. docs/security.md lists what is not found.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from holdfast.secrets.patterns import ANCHORS, BLOCKS, CLOSES_BLOCK, IN_BLOCK, OPENS_BLOCK, compile_pattern

SHORTEST = 8  # letters: a shorter value would be found in innocent words
SHORTEST_WORD = 16  # of nothing but letters: shorter ones are words
MOST_KNOWN = 500  # values; the oldest are dropped
MOST_HELD = 16 << 10  # characters that a flow holds back at most
_EDGE = 8  # letters of a value at the end of a text, or before an ellipsis, that identify it
_ENCODED = 12  # letters that an encoded value must have
_WORTH_KEEPING = 512  # characters; shorter texts are redacted again and again, so their results are cached
_LONGEST_HEADER = 64  # characters of the first line of a key's block
_BORDERS = ("…", "...", "\n", "\r")
_HINTS = (
    "KEY",
    "TOKEN",
    "SECRET",
    "PASS",
    "PWD",
    "CREDENTIAL",
    "AUTH",
    "PRIVATE",
    "COOKIE",
    "DSN",
    "HOOK",
    "_PAT",
    "JWT",
)
# Compiled when needed: every command imports this module, and few meet a name that has to be checked.
_SECRET_NAME = (
    r"(?i)(?:^|[_.-])(?:[a-z]*key|[a-z]*token|[a-z]*secret|[a-z]*passw(?:or)?d|pass|pwd|[a-z]*passphrase|credentials?|"
    r"[a-z]*auth|private|cookie|dsn|webhook|pat|jwt)(?:[_.-]?(?:\d+|id|value|base64|b64))?$"
    r"|secret|passw(?:or)?d|passphrase|api_?key|access_?key|private_?key|_token_|^token_"
)
_LOGIN = r"://[^\s/:@]*:([^\s/@]+)@"
_NO_SECRETS = r"(?:[/~.][^\s]*|[a-z][a-z0-9+.-]*://[^@]*|[0-9.,:-]{1,15}|(?i:true|false|yes|no|none|null))\Z"


def replacement_for(what: str) -> str:
    return f"[redacted: {what}]"


def is_secret_name(name: str) -> bool:
    """True if a variable of this name is likely to hold a secret."""
    given = name.upper()
    return any(hint in given for hint in _HINTS) and compile_pattern(_SECRET_NAME).search(name) is not None


def secrets_in(environment: Mapping[str, str]) -> dict[str, str]:
    """Return name → value of likely secrets: by the variable's name, or a password in an address."""
    found: dict[str, str] = {}
    for name, value in environment.items():
        if len(value) < SHORTEST:
            continue
        login = compile_pattern(_LOGIN).search(value) if "://" in value else None
        if login is not None:
            found[f"{name} (password)"] = login.group(1)
        if is_secret_name(name) and _is_worth_hiding(value):
            found[name] = value
    return found


def _is_worth_hiding(value: str) -> bool:
    if value.isalpha() and len(value) < SHORTEST_WORD:
        return False
    return compile_pattern(_NO_SECRETS).match(value) is None


class Redactor:
    """A redactor for learned values and known forms. It never raises, and never makes a valid text invalid."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}  # values to find, whole or cut off → the replacement
        self._lines: dict[str, str] = {}  # single lines of values with several lines → the replacement
        self._needles: list[tuple[str, str]] = []  # other encodings of both → the replacement
        self._edges: list[tuple[str, str, str, str]] = []  # beginning, end, value, replacement; the longest value first

    def learn(self, secrets: Mapping[str, str]) -> None:
        """Learn secrets, name → value. A value that is too short to be distinguished from other words is ignored."""
        values = {part: replacement_for(name) for name, value in secrets.items() for part in _whole(value)}
        lines = {part: replacement_for(name) for name, value in secrets.items() for part in _lines(value)}
        if values.keys() <= self._values.keys() and lines.keys() <= self._lines.keys():
            return
        # The two are kept apart: one value of a thousand lines must not push the others out.
        self._values = _newest({**self._values, **values})
        self._lines = _newest({**self._lines, **lines})
        longest = sorted((self._lines | self._values).items(), key=lambda known: -len(known[0]))
        self._edges = [(value[:_EDGE], value[-_EDGE:], value, word) for value, word in longest]
        self._needles = [(needle, word) for value, word in longest for needle in _written(value)]

    def redact(self, text: str) -> str:
        if len(text) < SHORTEST:
            return text
        if BLOCKS.anchors[0] in text:  # before values: the lines around one key are the same as around every other
            text = BLOCKS.replace_in(text, replacement_for)
        for beginning, end, value, word in self._edges:
            if beginning in text:
                text = _without_beginning(text.replace(value, word), value, word)
            if end in text:  # the same, from behind
                text = _without_beginning(text[::-1], value[::-1], word[::-1])[::-1]
        for needle, word in self._needles:
            if needle in text:
                text = text.replace(needle, word)
        for anchor, shape in ANCHORS:
            if anchor in text:
                text = shape.replace_in(text, replacement_for)
        return text


def _whole(value: str) -> Iterable[str]:
    value = value.strip()
    return (value,) if len(value) >= SHORTEST else ()


def _lines(value: str) -> Iterable[str]:
    """Yield the lines of a value with several lines, because agents' output is read line by line."""
    lines = [line.strip() for line in value.strip().splitlines()]
    if len(lines) < 2:
        return
    for line in lines:
        if len(line) >= 2 * SHORTEST and not line.startswith("-----"):  # a line of the key's block that is not secret
            yield line


def _newest(known: dict[str, str]) -> dict[str, str]:
    return dict(list(known.items())[-MOST_KNOWN:])


def _written(value: str) -> Iterable[str]:
    """Yield the other encodings of a value."""
    from json import dumps
    from urllib.parse import quote, quote_plus

    plain, once, as_bytes = dumps(value, ensure_ascii=False)[1:-1], dumps(value)[1:-1], value.encode(errors="replace")
    encoded = (plain, once, dumps(once)[1:-1], quote(as_bytes, ""), quote_plus(as_bytes), as_bytes.hex())
    yield from dict.fromkeys(way for way in (*encoded, *_in_base64(as_bytes)) if way != value)


def _in_base64(value: bytes) -> Iterable[str]:
    """Yield the base64 forms, without the letters that depend on the text before and after the value."""
    from base64 import b64encode

    for before in range(3):
        letters = b64encode(b"\0" * before + value).decode().rstrip("=")
        first = (0, 2, 3)[before]
        last = len(letters) if (before + len(value)) % 3 == 0 else len(letters) - 1
        if last - first >= _ENCODED:
            yield letters[first:last]
            yield letters[first:last].replace("+", "-").replace("/", "_")


def _without_beginning(text: str, value: str, word: str) -> str:
    """Replace the beginning of a value where the text ends or was cut. Agents choose how often it occurs, so this takes
    one pass."""
    kept: list[str] = []
    done, at = 0, text.find(value[:_EDGE])
    while at >= 0:
        end = at + _EDGE
        while end < len(text) and end - at < len(value) and text[end] == value[end - at]:
            end += 1
        is_cut = end == len(text) or text.startswith(_BORDERS, end)
        if is_cut and not _is_a_word(text[at:end]):
            kept += (text[done:at], word)
            done = end
        at = text.find(value[:_EDGE], end)
    return "".join((*kept, text[done:])) if kept else text


def _is_a_word(part: str) -> bool:
    """True for a part like `password` of password123 or `postgres` of an address: other texts have it too, and it is
    not secret."""
    return len(part) < SHORTEST_WORD and part in (part.lower(), part.upper()) and not any(map(str.isdigit, part))


# -- the redactor of this process --------------------------------------------------------------------------------------

_redactor = Redactor()
_of_process = 0  # the process whose environment was read: a fork has its own


def learn(secrets: Mapping[str, str]) -> None:
    """Learn values that must not be stored or shown from now on. Their names replace them."""
    _redactor.learn(secrets)
    _short.cache_clear()


def redact_text(text: str) -> str:
    """Return the text without secrets."""
    global _of_process
    if _of_process != os.getpid():
        _of_process = os.getpid()
        learn(secrets_in(os.environ))
    return _short(text) if len(text) < _WORTH_KEEPING else _redactor.redact(text)


@lru_cache(maxsize=256)
def _short(text: str) -> str:
    """Return the cached result: the same reason is in the task, the run, the event and its message."""
    return _redactor.redact(text)


def redact_values(value: Any) -> Any:
    """Redact every text in a value that will become JSON. Keys are our own names and stay."""
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, Mapping):
        return {key: redact_values(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [redact_values(part) for part in value]
    return value


def _is_open(text: str) -> bool:
    """True if a key's block begins here and its end is missing."""
    opening = compile_pattern(OPENS_BLOCK).match(text)
    return opening is not None and compile_pattern(IN_BLOCK).fullmatch(text, opening.end()) is not None


class RedactedStream:
    """The redaction of a text that arrives in pieces. A secret that spans two pieces is found, and so is a block of
    many lines."""

    def __init__(self) -> None:
        self._held = ""
        self._in_block = False

    def add(self, piece: str) -> str:
        """Return the text that may be shown by now. A word whose end is missing is held back."""
        text = self._held + piece
        cut = max(text.rfind(space) for space in " \n\t") + 1
        begun = text.rfind("-----BEGIN ")
        if begun >= 0 and (len(text) - begun < _LONGEST_HEADER or _is_open(text[begun:])):
            cut = min(cut, begun)
        cut = max(cut, len(text) - MOST_HELD)
        self._held = text[cut:]
        return redact_text(text[:cut])

    def end(self) -> str:
        held, self._held = self._held, ""
        return redact_text(held)

    def line(self, line: str) -> str:
        """Redact one whole line of a text. All lines inside a key's block are redacted."""
        if self._in_block:
            closing = compile_pattern(CLOSES_BLOCK).search(line)
            if closing is None and compile_pattern(IN_BLOCK).fullmatch(line):
                return replacement_for("a private key") if line.strip() else line
            self._in_block = False
            if closing is not None:
                return line[closing.start() : closing.end()] + redact_text(line[closing.end() :])
        if "PRIVATE KEY" in line:
            self._in_block = _is_open(line[max(line.rfind("-----BEGIN "), 0) :])
        return redact_text(line)
