"""Output for people: tables, colours on a terminal, and no unfiltered text of an agent."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from holdfast.api.colours import LEVEL_COLOURS, STATE_COLOURS
from holdfast.api.outcome import ActionOutcome
from holdfast.base.errors import NotFound, UsageError
from holdfast.base.text import clean_text, indent_text, one_line

if TYPE_CHECKING:
    from holdfast.api.home.models import ErrorRow

__all__ = [
    "SCHEMA",
    "build_rich_table",
    "clean_text",
    "format_age",
    "indent_text",
    "is_fancy",
    "is_terminal",
    "number",
    "one_line",
    "paint",
    "paint_level",
    "print_json",
    "print_json_error",
    "print_outcome",
    "print_table",
    "size",
]

_CODES = {"red": 31, "green": 32, "yellow": 33, "blue": 34, "magenta": 35, "cyan": 36, "bold": 1, "dim": 2}


SCHEMA = 1  # the number of the JSON format: it rises if a field goes or gets another meaning
BIGGEST_NUMBER = 2**31 - 1


def number(least: int = -BIGGEST_NUMBER, most: int = BIGGEST_NUMBER) -> Callable[[str], int]:
    """Return a parser of whole numbers within what the store can hold."""

    def parse(word: str) -> int:
        try:
            value = int(word)
        except ValueError:
            raise argparse.ArgumentTypeError(f"'{one_line(word, 40)}' is not a whole number") from None
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"'{one_line(word, 40)}' is not between {least} and {most}")
        return value

    return parse


def is_terminal(stream: Any = None) -> bool:
    return bool((stream or sys.stdout).isatty()) and os.environ.get("TERM") != "dumb"


def is_fancy(stream: Any = None) -> bool:
    """True if the stream may have colours."""
    return is_terminal(stream) and "NO_COLOR" not in os.environ


def paint(text: str, colour: str, stream: Any = None) -> str:
    return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if is_fancy(stream) else text


def paint_level(text: str, level: str, stream: Any = None) -> str:
    """Paint the text in the colour of the level of an event or alert."""
    return paint(text, LEVEL_COLOURS.get(level, "dim"), stream)


def print_json(value: Mapping[str, Any], stream: TextIO | None = None) -> None:
    """Print one object as a line of JSON. Characters that the encoding of the stream may lack are escaped."""
    stream = stream or sys.stdout
    is_utf8 = (stream.encoding or "").lower().replace("-", "").replace("_", "") == "utf8"
    text = json.dumps({"schema": SCHEMA, **value}, ensure_ascii=not is_utf8, separators=(",", ":"))
    safe = text if text.isascii() and "\x7f" not in text else _TERMINAL_CONTROLS.sub(_escape_match, text)
    print(safe, file=stream, flush=stream is sys.stderr)


def print_json_error(error: object, text: str, code: int, argv: Sequence[str]) -> None:
    """Print the object for an error as the last line of standard error. `text` is its cleaned message."""
    sentences = re.split(r"(?<=[.!?]) (?=[A-Z`])", text)
    named = re.findall(r"`((?:holdfast|git|sudo) [^`]*)`", text)
    row: ErrorRow = {
        "error": type(error).__name__ if isinstance(error, Exception) else "Unexpected",
        "message": text,
        "kept": " ".join(sentence for sentence in sentences if re.search(_KEPT, sentence))
        or "Everything that was acknowledged is kept.",
        "next": named[-1] if named else _next_command(error, argv),
        "exit_code": code,
    }
    print_json(row, sys.stderr)


_KEPT = r"\b([Nn]othing (was|is|that)|(is|are|was|were) kept|left as|stays?|continues?|is recorded)\b"


def _next_command(error: object, argv: Sequence[str]) -> str:
    """Return the command that follows when the message of the error names none."""
    if isinstance(error, UsageError):
        from holdfast.cli.main import COMMANDS

        return " ".join(["holdfast help", *[word for word in argv if word in COMMANDS][:1]])
    return "holdfast ps --all" if isinstance(error, NotFound) else "holdfast doctor"


def print_outcome(outcome: ActionOutcome, *, as_json: bool) -> None:
    """Print the data of the outcome as JSON, or its message with its note on standard error."""
    if as_json:
        print_json(outcome.data)
        return
    print(clean_text(outcome.message))
    if outcome.note:
        print(clean_text(outcome.note), file=sys.stderr)


# Characters that JSON allows unescaped but that a terminal may obey. Their escapes have the same value in JSON.
_TERMINAL_CONTROLS = re.compile(
    "[\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffb"
    "\U0001f3fb-\U0001f3ff\U000e0000-\U000e0fff]"
)


def _escape_match(found: re.Match[str]) -> str:
    return json.dumps(found.group())[1:-1] if found.group() != "\x7f" else "\\u007f"


def format_age(moment: float | None) -> str:
    from holdfast.api.format import duration

    return "-" if moment is None else duration(int(time.time() - moment))


def size(count: float) -> str:
    """Return a number of bytes for people: 12 B, 3.4 KiB, 1.0 GiB."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def print_table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, state_column: int | None = None) -> None:
    """Print aligned columns, by rich on a terminal, plain elsewhere."""
    listed = [[" ".join(clean_text(cell).split("\n")) for cell in row] for row in rows]
    if is_fancy():
        _print_rich_table(headers, listed, state_column)
        return
    widths = [max(len(cell) for cell in column) for column in zip(headers, *listed, strict=True)]
    for row in [list(headers), *listed]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def build_rich_table(headers: Sequence[str], rows: Iterable[Sequence[str]], state_column: int | None) -> Any:
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, header_style="bold")
    for header in headers:
        made.add_column(header, overflow="fold")
    for row in rows:
        made.add_row(
            *(
                Text(cell, style=STATE_COLOURS.get(cell, "")) if index == state_column else Text(cell)
                for index, cell in enumerate(row)
            )
        )
    return made


def _print_rich_table(headers: Sequence[str], rows: Iterable[Sequence[str]], state_column: int | None) -> None:
    from rich.console import Console

    Console().print(build_rich_table(headers, rows, state_column))
