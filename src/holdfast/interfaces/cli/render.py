"""Text for people: tables, colours where there is a terminal, nothing that an agent wrote unfiltered."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

COLOURS = {
    "queued": "cyan",
    "running": "blue",
    "paused": "yellow",
    "completed": "green",
    "failed": "red",
    "cancelled": "magenta",
}
_CODES = {"red": 31, "green": 32, "yellow": 33, "blue": 34, "magenta": 35, "cyan": 36, "bold": 1, "dim": 2}
# Control characters and whole escape sequences: an agent's words must not drive the user's terminal.
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)


def clean(text: object) -> str:
    """Printable text: escape sequences and control characters are gone; tabs and line ends stay."""
    return _ESCAPES.sub("", str(text))


def one_line(text: object, width: int = 60) -> str:
    flat = " ".join(clean(text).split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"


def is_fancy(stream: Any = None) -> bool:
    """Whether colours and live output are welcome."""
    stream = stream or sys.stdout
    return bool(stream.isatty()) and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str, stream: Any = None) -> str:
    return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if is_fancy(stream) else text


def print_json(value: object) -> None:
    print(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def ago(moment: float | None) -> str:
    from holdfast.api.show import duration

    return "-" if moment is None else duration(max(0.0, time.time() - moment))


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, state_column: int | None = None) -> None:
    """Aligned columns; with rich on a terminal, plain elsewhere."""
    listed = [list(row) for row in rows]
    if is_fancy():
        _rich_table(headers, listed, state_column)
        return
    widths = [max(len(cell) for cell in column) for column in zip(headers, *listed, strict=True)]
    for row in [list(headers), *listed]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def rich_table(headers: Sequence[str], rows: Iterable[Sequence[str]], state_column: int | None) -> Any:
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, header_style="bold")
    for header in headers:
        made.add_column(header, overflow="fold")
    for row in rows:
        made.add_row(
            *(
                Text(cell, style=COLOURS.get(cell, "")) if index == state_column else Text(cell)
                for index, cell in enumerate(row)
            )
        )
    return made


def _rich_table(headers: Sequence[str], rows: Iterable[Sequence[str]], state_column: int | None) -> None:
    from rich.console import Console

    Console().print(rich_table(headers, rows, state_column))
