"""A table with exactly one line per row, at any width. Texts are measured in cells of a terminal.

On a narrow terminal, optional columns are left out first. Then the longest columns are cut. A text that is
cut ends with `…`. Texts have to be printable (`one_line`).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

GAP = "  "
_READABLE = 20  # cells of a column that may be cut: below that, other columns are left out


class TableColumn(NamedTuple):
    """One column. `spare`: columns with a higher value are left out earlier on a narrow terminal. 0: never left out."""

    head: str
    may_cut: bool = False
    spare: int = 0


class Table(NamedTuple):
    """Columns and rows. `tails`: row → the end of its last text, which stays when the text before it is cut."""

    columns: Sequence[TableColumn]
    rows: Sequence[Sequence[str]]
    tails: Mapping[int, str] = {}


def cell_width(text: str) -> int:
    """Return how many cells of a terminal a printable text takes."""
    return len(text) if text.isascii() else sum(map(_width, text))


@lru_cache(maxsize=4096)
def _width(letter: str) -> int:
    if unicodedata.category(letter) in ("Mn", "Me", "Cf") or "\u1160" <= letter <= "\u11ff":
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def cut(text: str, width: int) -> str:
    """Return the text, cut to `width` cells. A wide letter is never cut in two."""
    if cell_width(text) <= width:
        return text
    at, left = 0, width - 1
    while at < len(text) and left >= _width(text[at]):
        left -= _width(text[at])
        at += 1
    return text[:at].rstrip() + "…" if width > 0 else ""


def table_lines(table: Table, room: int | None, paint: Callable[[int, str], str] | None = None) -> Iterator[str]:
    """Yield the head and one line per row. `room`: None if nothing is cut. `paint` gets a column and its text."""
    shown, widths = _lay_out(table, room)
    last = shown[-1]
    for number, row in enumerate([[column.head for column in table.columns], *table.rows], start=-1):
        line, at = "", 0
        for index, width in zip(shown, widths, strict=True):
            text, most = row[index], width if room is None else min(width, max(0, room - at))
            tail = table.tails.get(number, "") if index == last and number >= 0 else ""
            if tail and cell_width(text) > most > len(tail) + 3:
                text = cut(text.removesuffix(tail), most - len(tail)) + tail
            text = cut(text, most)
            blank = "" if index == last else " " * (width - cell_width(text)) + GAP
            line += (paint(index, text) if paint and text and number >= 0 else text) + blank
            at += width + len(GAP)
        yield line.rstrip()


def _lay_out(table: Table, room: int | None) -> tuple[list[int], list[int]]:
    """Return the indices of the columns that are shown, and their widths."""
    columns, shown = table.columns, list(range(len(table.columns)))
    wanted = [max(map(cell_width, (columns[index].head, *(row[index] for row in table.rows)))) for index in shown]
    if room is None:
        return shown, wanted
    readable = [min(width, _READABLE) if columns[index].may_cut else width for index, width in enumerate(wanted)]
    while sum(readable[index] + len(GAP) for index in shown) - len(GAP) > room:
        spared = max(shown, key=lambda index: columns[index].spare)
        if not columns[spared].spare:
            break
        shown.remove(spared)
    widths = {index: wanted[index] for index in shown}
    over = sum(widths.values()) + len(GAP) * (len(shown) - 1) - room
    can = [index for index in shown if columns[index].may_cut]
    while over > 0 and can and widths[longest := max(can, key=widths.__getitem__)] > 1:
        widths[longest] -= 1
        over -= 1
    return shown, list(widths.values())
