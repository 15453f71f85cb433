"""Parsers for the values of settings, from TOML (typed) and from variables and flags (text).

A parser returns the value or raises ValueError, whose text is the message. `takes` describes the values that a parser
accepts, for messages and the reference page. `write` is the inverse of a parser, for `config show` and for the file
that `init` writes. The last part has parsers that several tables share (accounts, workers, workflows, schedules), and
`meant`, which suggests the word that was probably meant.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable
from typing import Any

from holdfast.base.dataclass import dataclass
from holdfast.base.text import is_text
from holdfast.base.units import parse_duration, parse_size, write_duration, write_size

BIGGEST_NUMBER = 2**31 - 1  # the largest number that both the store and argparse accept
FOREVER = "forever"
OWN_VARIABLES = "HOLDFAST_"  # how the names of our own variables begin
_LONGEST_SHOWN = 60

Parser = Callable[[Any], Any]


def quote_wrong_value(value: object) -> str:
    """Return a wrong value as messages quote it: short and on one line."""
    flat = " ".join(str(value).split())
    return flat if len(flat) <= _LONGEST_SHOWN else flat[: _LONGEST_SHOWN - 1] + "…"


def parse_boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    raise ValueError(f"'{quote_wrong_value(value)}' is neither true nor false")


def parse_text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"'{quote_wrong_value(value)}' is not text; write it in quotes")
    return _checked(value)


def parse_program(value: object) -> str:
    """Parse the name or the path of a program. `~` is the user's home, as in a shell."""
    return os.path.expanduser(parse_text(value))


def expand_program(argv: list[str]) -> list[str]:
    """Return a command line with `~` at the beginning of its program replaced by the user's home."""
    return [os.path.expanduser(argv[0]), *argv[1:]] if argv else []


def parse_words(value: object) -> list[str]:
    """Parse a list of texts. The text of a variable is split as a shell would split it."""
    if isinstance(value, str):
        return [_checked(word) for word in _split(value)]
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return [_checked(word) for word in value]
    raise ValueError(f'\'{quote_wrong_value(value)}\' is not a list of texts, like ["one", "two"]')


_COMMAND = re.compile(r"[A-Za-z0-9_./@%+:=][A-Za-z0-9_./@%+:=-]*(?: [A-Za-z0-9_./@%+:=-]+)*", re.ASCII)


def is_plain_command(text: str) -> bool:
    """True if the text is one program with plain arguments: every CLI reads such a command in the same way."""
    return _COMMAND.fullmatch(text) is not None


def parse_commands(value: object) -> list[str]:
    """Parse a list of plain commands, without quotes, wildcards or anything else that has a special meaning in a
    shell."""
    commands = [" ".join(word.split()) for word in parse_words(value)]
    for command in commands:
        if not is_plain_command(command):
            raise ValueError(
                f"'{quote_wrong_value(command)}' is not one plain command, like \"make test\": it cannot have quotes, "
                "wildcards, commas or characters of the shell"
            )
    return commands


def variable_patterns(value: object) -> list[str]:
    """Parse a list of patterns of variables' names, as `parse_words` does. The supervisor's own variables are refused,
    because they are not passed on."""
    patterns = parse_words(value)
    for pattern in patterns:
        if pattern.startswith(OWN_VARIABLES):
            raise ValueError(
                f"'{quote_wrong_value(pattern)}' means variables of Holdfast itself; "
                "agents get only those that it makes for them"
            )
    return patterns


def parse_pairs(value: object) -> dict[str, str]:
    """Parse a table of texts. The text of a variable is a list of NAME=VALUE words."""
    if isinstance(value, str):
        found = [word.partition("=") for word in _split(value)]
        if not all(separator for _name, separator, _text in found):
            raise ValueError("it is written NAME=VALUE NAME=VALUE …")
        value = {name: word for name, _separator, word in found}
    if not isinstance(value, dict) or not all(isinstance(entry, str) for entry in value.values()):
        raise ValueError(f"'{quote_wrong_value(value)}' is not a table of texts, like {{ NAME = \"value\" }}")
    for name in value:
        if not name or "=" in name:
            raise ValueError(f"'{quote_wrong_value(name)}' cannot be the name of an environment variable")
        if name.startswith(OWN_VARIABLES):
            raise ValueError(
                f"{quote_wrong_value(name)} is a variable of Holdfast itself, and cannot be set for agents"
            )
    return {_checked(name): _checked(word) for name, word in value.items()}


def parse_age(value: object) -> float:
    """Parse a duration or the word `forever`."""
    return math.inf if value == FOREVER else parse_duration(value)


def parse_money(value: object) -> float:
    """Parse an amount of dollars. 0 means that no amount is set."""
    try:
        amount = float(str(value).removeprefix("$")) if not isinstance(value, bool) else -1.0
    except ValueError:
        amount = -1.0
    if not 0 <= amount <= BIGGEST_NUMBER:  # also false for NaN
        raise ValueError(f"'{quote_wrong_value(value)}' is not an amount of dollars, like 5 or 0.25")
    return amount


class WholeNumber:  # lower case: it reads as a function in the table of settings
    """A parser for a whole number of at least `least`."""

    def __init__(self, least: int) -> None:
        self.least = least

    def __call__(self, value: object) -> int:
        word = str(value)
        if isinstance(value, bool) or not (word.isascii() and word.isdigit()) or int(word[:20]) < self.least:
            raise ValueError(f"'{quote_wrong_value(value)}' is not a whole number of at least {self.least}")
        if int(word[:20]) > BIGGEST_NUMBER:
            raise ValueError(f"'{quote_wrong_value(value)}' is larger than {BIGGEST_NUMBER}")
        return int(word)


class OneOf:  # lower case: see `count`
    """A parser for one of a few words."""

    def __init__(self, *choices: str) -> None:
        self.choices = choices

    def __call__(self, value: object) -> str:
        if not isinstance(value, str) or value not in self.choices:
            raise ValueError(f"'{quote_wrong_value(value)}' is not one of {', '.join(self.choices)}{self._hint(value)}")
        return value

    def _hint(self, value: object) -> str:
        import difflib  # only for a mistake

        close = difflib.get_close_matches(str(value), self.choices, n=1)
        return f". Did you mean '{close[0]}'?" if close else ""


class ListOf:
    """A parser for a list of a few words. In a variable, the words are separated by spaces."""

    def __init__(self, *choices: str) -> None:
        self.one = OneOf(*choices)

    def __call__(self, value: object) -> list[str]:
        return [self.one(word) for word in parse_words(value)]


def describe_parser(parse: Parser) -> str:
    """Describe the values that a parser accepts."""
    if isinstance(parse, WholeNumber):
        return f"a whole number of at least {parse.least}"
    if isinstance(parse, ListOf):
        return "a list of " + ", ".join(parse.one.choices)
    if isinstance(parse, OneOf):
        return "one of " + ", ".join(parse.choices)
    return _TAKES.get(parse, "text")


def write_toml(parse: Parser, value: Any) -> str:
    """Return the value as TOML that `parse` reads back. TOML has no None, so an example is written for it."""
    if value is None:
        value = _EXAMPLES.get(parse, "")
    if value == math.inf:
        value = FOREVER
    elif parse is parse_duration or parse is parse_age:
        value = write_duration(value)
    elif parse is parse_size:
        value = write_size(value)
    return format_toml(value)


def format_toml(value: Any) -> str:
    """Return a value as TOML."""
    if isinstance(value, dict):
        inside = ", ".join(f"{_quoted(name)} = {_quoted(word)}" for name, word in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list):
        return "[" + ", ".join(_quoted(word) for word in value) + "]"
    return _quoted(value) if isinstance(value, str) else str(value).lower()


def _quoted(word: str) -> str:
    """Return a TOML basic string. Invisible characters (controls, right-to-left marks) are escaped, so that no
    character is hidden."""
    quoted = json.dumps(word, ensure_ascii=False)
    return "".join(letter if letter.isprintable() else _escaped(letter) for letter in quoted)


def _escaped(letter: str) -> str:
    return f"\\u{ord(letter):04x}" if ord(letter) <= 0xFFFF else f"\\U{ord(letter):08x}"


def _split(line: str) -> list[str]:
    import shlex

    try:
        return shlex.split(line)
    except ValueError as error:
        raise ValueError(f"'{quote_wrong_value(line)}' cannot be split into words: {str(error).lower()}") from None


def _checked(word: str) -> str:
    if not is_text(word):
        raise ValueError(f"'{quote_wrong_value(ascii(word))}' is not text (it has NUL or undecodable bytes)")
    return word


_TAKES: dict[Parser, str] = {
    parse_boolean: "true or false",
    parse_program: "the name or the path of a program",
    parse_words: "a list of texts",
    variable_patterns: "a list of texts",
    parse_pairs: "a table of texts",
    parse_duration: "a duration like `90s` or `1h30m`",
    parse_age: "a duration like `30d`, or `forever`",
    parse_size: "a size like `512MiB` or `2G`",
    parse_money: "an amount of dollars like `5` or `0.25`",
}
_EXAMPLES: dict[Parser, Any] = {
    parse_boolean: True,
    parse_duration: 60.0,
    parse_age: 60.0,
    parse_size: 1024,
    parse_words: [],
    variable_patterns: [],
    parse_pairs: {},
}


def parse_nonempty_text(value: object) -> str:
    if not isinstance(value, str) or not is_text(value):
        raise ValueError("it is not text; write it in quotes")
    if not value:
        raise ValueError("it is empty; leave it out instead")
    return value


def parse_nonblank_text(value: object) -> str:
    """Parse a text that is not blank."""
    if not parse_nonempty_text(value).strip():
        raise ValueError("it is empty; leave it out instead")
    return parse_nonempty_text(value)


def parse_flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("it is neither true nor false")
    return value


def meant(word: str, known: tuple[str, ...], prefix: str = "") -> str:
    """Return the end of a message that suggests the nearest known word, or an empty text."""
    import difflib

    close = difflib.get_close_matches(word[:200], known, n=1)
    return f"; did you mean '{prefix}{close[0]}'?" if close else ""


DANGEROUS = "could run commands or show secrets"
ABOUT_MONEY = "controls your money"
OF_THE_SUPERVISOR = "is a setting of the supervisor, not of a task"

# What a repository's file may do with a setting while the file is not trusted (config/trust_rules.py).
NEVER = "never"  # nothing: the user's own value stays
DOWN = "down"  # set a smaller value, or an earlier one of a few words, than the user's own
UP = "up"  # set a larger value than the user's own


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its default, its parser, its meaning, and which files may set it."""

    default: Any
    parse: Parser
    meaning: str
    user_only: str = ""  # why a repository's file may not set the key; DANGEROUS: it may, once trusted
    reload: bool = False  # a running supervisor applies a new value when the user's file changes
    untrusted: str = ""  # NEVER, DOWN or UP; empty is NEVER. Every setting without `user_only` declares it
    no_limit: int | None = None  # for DOWN: the value that means "no limit", so it is the largest
    least: float = 0  # of a number; a WholeNumber may have its own
    most: float = math.inf  # of a number, apart from `forever`
    takes_zero: bool = False  # 0 has a meaning of its own, so it is accepted below `least`

    def read(self, value: object) -> Any:
        """Parse a value and check its bounds. Raise ValueError, whose text is the message."""
        found = self.parse(value)
        if isinstance(found, bool) or not isinstance(found, int | float) or found == math.inf:
            return found
        if not self.least <= found <= self.most and not (found == 0 and self.takes_zero):
            raise ValueError(f"'{quote_wrong_value(value)}' is not {self._describe_bounds()}")
        return found

    def describe(self) -> str:
        """Describe the values that the setting accepts."""
        bounds = self._describe_bounds("`")
        return describe_parser(self.parse) + (f", {bounds}" if bounds else "")

    def _describe_bounds(self, quote: str = "") -> str:
        words = [f"at least {self._show(self.least, quote)}"] if self.least else []
        if words and self.takes_zero:
            words = [f"{self._show(0, quote)}, or {words[0]}"]
        if self.most != math.inf:
            words.append(f"at most {self._show(self.most, quote)}")
        return " and ".join(words)

    def _show(self, bound: float, quote: str) -> str:
        return quote + write_toml(self.parse, bound).strip('"') + quote

    @property
    def needs_trust(self) -> bool:
        return self.user_only == DANGEROUS

    @property
    def may_be_in_repository(self) -> bool:
        """True if a repository's file may set the key, at least once the file is trusted."""
        return not self.user_only or self.needs_trust
