"""The redaction of secrets: text of agents and tools passes through here before it is stored or shown.

A secret is known by its value or by its form. Known values are the secrets that this process gave to agents, or has in
its own environment. Known forms are in secrets/patterns.py.

A value is found whole, cut off at either end of a text, in capitals, escaped, in base64, base32 and hexadecimal, and
with invisible characters inside. The cleaned text would show it without them. docs/security.md lists what is not found.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from holdfast.base.text import ESCAPES
from holdfast.secrets.known_values import SHORTEST_WORD, Found, KnownValues
from holdfast.secrets.patterns import (
    CLOSES_BLOCK,
    OPENS_BLOCK,
    PRIVATE_KEY,
    compile_pattern,
    find_block_end,
    find_blocks,
    find_shapes,
)
from holdfast.secrets.text_view import (
    decode_dump,
    end_of_dump_line,
    lower_letters,
    without_escapes,
    without_invisible,
)

SHORTEST = 8  # letters: a shorter value would be found in innocent words
MOST_KNOWN = 500  # values; the oldest are dropped
MOST_HELD = 16 << 10  # characters that a flow holds back at most
_MOST_SEQUENCES = 64  # escape sequences with a space that are looked at, from the end of a text
_WORTH_KEEPING = 512  # characters; shorter texts are redacted again and again, so their results are cached
_LONGEST_HEADER = 64  # characters of the first line of a key's block
_HINTS = (
    "KEY",
    "TOKEN",
    "SECRET",
    "PASS",
    "PWD",
    "CRED",
    "AUTH",
    "PRIVATE",
    "COOKIE",
    "DSN",
    "HOOK",
    "_PAT",
    "JWT",
    "_SK",
    "SERVICE_ACCOUNT",
)
# Compiled when needed: every command imports this module, and few meet a name that has to be checked.
_SECRET_NAME = (
    r"(?i)(?:^|[_.-])(?:[a-z]*key|[a-z]*token|[a-z]*secret|[a-z]*passw(?:or)?d|[a-z]*pass|pwd|[a-z]*passphrase|"
    r"creds?|credentials?|[a-z]*auth|private|cookie|dsn|webhook|pat|jwt|sk|service_?account)"
    r"(?:[_.-]?(?:\d+|v\d+|id|value|base64|b64|data|json|config))*$"
    r"|secret|passw(?:or)?d|passphrase|api_?key|access_?key|private_?key|_token_|^token_|webhook_?ur[il]"
)
_LOGIN = r"://[^\s/:@]*:([^\s/@]+)@"
_NO_SECRETS = r"(?:[/~.][^\s]*|[a-z][a-z0-9+.-]*://[^@]*|[0-9.,:-]{1,15}|(?i:true|false|yes|no|none|null))\Z"
_LIKE_A_TOKEN = 16  # letters; a part of an address of this length may itself be a secret


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
        if not is_secret_name(name):
            continue
        if _is_worth_hiding(value):
            found[name] = value
        elif "HOOK" in name.upper():
            found |= {f"{name} ({number})": part for number, part in enumerate(tokens_of_address(value), start=1)}
    return found


def tokens_of_address(address: str) -> Iterable[str]:
    """Return the parts of an address's path and query that may be secrets."""
    from urllib.parse import urlsplit  # few commands need it

    try:
        parts = urlsplit(address)
    except ValueError:
        return ()
    words = [*parts.path.split("/"), *parts.query.replace("=", "&").split("&")]
    return (word for word in words if len(word) >= _LIKE_A_TOKEN)


def _is_worth_hiding(value: str) -> bool:
    if value.isalpha() and len(value) < SHORTEST_WORD:
        return False
    return compile_pattern(_NO_SECRETS).match(value) is None


class Redactor:
    """A redactor for learned values and known forms. It never raises, and never makes a valid text invalid."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}  # values to find, whole or cut off → the replacement
        self._lines: dict[str, str] = {}  # single lines of values with several lines → the replacement
        self._known: KnownValues | None = None  # both; None: to be made when a text is redacted

    def learn(self, secrets: Mapping[str, str]) -> None:
        """Learn secrets, name → value. A value that is too short to be distinguished from other words is ignored."""
        values = {part: replacement_for(name) for name, value in secrets.items() for part in _whole(value)}
        lines = {part: replacement_for(name) for name, value in secrets.items() for part in _lines(value)}
        if values.keys() <= self._values.keys() and lines.keys() <= self._lines.keys():
            return
        # The two are kept apart: one value of a thousand lines must not push the others out.
        self._values = _newest({**self._values, **values})
        self._lines = _newest({**self._lines, **lines})
        self._known = None

    def redact(self, text: str) -> str:
        if len(text) < SHORTEST:
            return text
        found = list(self._find(text))
        shown = without_invisible(text)
        if shown is not None and len(shown.text) >= SHORTEST:
            found += ((*shown.span_in_text(start, end), word) for start, end, word in self._find(shown.text))
        return _replace_spans(text, found) if found else text

    def _find(self, text: str) -> Iterator[Found]:
        """Yield the spans of secrets, and their replacements. Spans of known values come before spans of known
        forms."""
        if "PRIVATE KEY" in text:
            yield from ((*span, replacement_for(PRIVATE_KEY)) for span in find_blocks(text))
        if self._values:
            yield from self._find_values(text)
        yield from ((start, end, replacement_for(what)) for start, end, what in find_shapes(text))

    def _find_values(self, text: str) -> Iterator[Found]:
        if self._known is None:
            self._known = KnownValues(self._lines | self._values)
        known, small = self._known, lower_letters(text)
        yield from known.find_in(text, small)
        yield from known.find_encoded_in(small)
        decoded = without_escapes(text)
        if decoded is not None:
            small = lower_letters(decoded.text)
            for found in (known.find_in(decoded.text, small), known.find_encoded_in(small)):
                yield from ((*decoded.span_in_text(start, end), word) for start, end, word in found)
        dump = decode_dump(text)
        if dump is not None:
            for start, end, word in known.find_in(dump.text, lower_letters(dump.text)):
                first, last = dump.span_in_text(start, end)
                yield first, end_of_dump_line(text, last), word


def _replace_spans(text: str, found: list[Found]) -> str:
    """Replace each span by its word. Spans that overlap become one, with the word of the span that was found first."""
    kept: list[str] = []
    done = 0
    spans = sorted((start, end, number) for number, (start, end, _word) in enumerate(found))
    at = 0
    while at < len(spans):
        start, end, first = spans[at]
        at += 1
        while at < len(spans) and spans[at][0] < end:
            end, first = max(end, spans[at][1]), min(first, spans[at][2])
            at += 1
        kept += (text[done:start], found[first][2])
        done = end
    return "".join((*kept, text[done:]))


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
    """Return a short text without secrets. Results are cached, because the same reason is in the task, the run, the
    event and its message."""
    return _redactor.redact(text)


def redact_values(value: Any) -> Any:
    """Redact every text in a value that will become JSON. Keys are Holdfast's own names and are not changed."""
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, Mapping):
        return {key: redact_values(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [redact_values(part) for part in value]
    return value


def _is_open(text: str) -> bool:
    """True if the block of a private key begins in the text and its end is missing."""
    opening = compile_pattern(OPENS_BLOCK).match(text)
    return opening is not None and find_block_end(text, opening.end()) == len(text)


def _end_of_word(text: str, end: int) -> int:
    """Return the place after the last space before `end`. A space inside an escape sequence does not end a word."""
    cut = 0
    for _sequence in range(_MOST_SEQUENCES):
        cut = max(text.rfind(space, 0, end) for space in " \n\t") + 1
        escape = text.rfind("\x1b", max(0, cut - MOST_HELD), cut)
        sequence = ESCAPES.match(text, escape) if escape >= 0 else None
        if sequence is None or sequence.end() < cut:
            break
        end = escape
    return cut


class RedactedStream:
    """A redactor for a text that arrives in pieces. A secret that spans two pieces is found, and so is a block of many
    lines."""

    def __init__(self) -> None:
        self._held = ""
        self._in_block = False

    def add(self, piece: str) -> str:
        """Add a piece and return the text that may be shown by now. A word whose end is missing is held back."""
        text = self._held + piece
        cut = _end_of_word(text, len(text))
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
        """Redact one whole line of a text. All lines inside the block of a private key are redacted."""
        if self._in_block:
            closing = compile_pattern(CLOSES_BLOCK).search(line)
            if closing is None and find_block_end(line) == len(line):
                return replacement_for(PRIVATE_KEY) if line.strip() else line
            self._in_block = False
            if closing is not None:
                return line[closing.start() : closing.end()] + redact_text(line[closing.end() :])
        if "PRIVATE KEY" in line:
            self._in_block = _is_open(line[max(line.rfind("-----BEGIN "), 0) :])
        return redact_text(line)
