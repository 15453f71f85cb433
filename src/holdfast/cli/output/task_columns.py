"""The columns of `ps`: their heads, and the text of each for one task."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from holdfast.api.colours import STATE_COLOURS
from holdfast.api.format import duration, money
from holdfast.base.errors import UsageError
from holdfast.cli.output.render import is_fancy, is_terminal, one_line, paint
from holdfast.cli.output.task_table import Table, TableColumn, cut, table_lines

if TYPE_CHECKING:
    from holdfast.api.fleet.models import FleetRow
    from holdfast.api.fleet.selection import TaskListing
    from holdfast.api.queries import Queries

NARROW = 120  # cells: below, ids are shortened
_PROMPT = 40  # cells of a prompt in a pipe, where nothing else is cut
_STORED = {"prompt": 300}  # letters that the store's view returns of a long text


class _Look(NamedTuple):
    """One listing at one moment, with the columns that have been asked for."""

    listing: TaskListing
    now: float
    ids: Mapping[str, str]  # shortened


def took(tokens: int | None, cost_usd: float | None) -> str:
    """Return the cost if it is known, else the tokens."""
    if cost_usd is not None:
        return money(cost_usd)
    tokens = tokens or 0
    return f"{tokens / 1000:.0f}k tok" if tokens >= 10_000 else f"{tokens} tok" if tokens else "-"


def _prompt(row: FleetRow, look: _Look) -> str:
    level = look.listing.levels.get(row["id"], 0)
    text = one_line(row["prompt"]) + ("…" if len(row["prompt"]) >= _STORED["prompt"] else "")
    return f"{'  ' * (level - 1)}└ {text}" if level else text


def why_parts(row: FleetRow, look: _Look) -> tuple[str, str]:
    """Return the reason for a task's state, and its last part, which is never cut. The reason starts with the stage."""
    words, tail = look.listing.around.parts(row, look.now)
    stage = row["stage"]
    if stage is None or row["state"] != "running":
        return one_line(words), tail
    from holdfast.api.tasks.stages import words as stage_words

    return one_line(f"{stage_words(stage)}: {words}" if words else stage_words(stage)), tail


def _age(moment: float | None, look: _Look) -> str:
    return "-" if moment is None else duration(int(look.now - moment)).partition(" ")[0]


def _stage(row: FleetRow) -> str:
    stage = row["stage"]
    return "-" if stage is None else one_line(f"{stage['number']}/{stage['of']} {stage['name']}")


_Text = Callable[["FleetRow", _Look], str]
COLUMNS: Mapping[str, tuple[TableColumn, _Text]] = {
    "id": (TableColumn("ID"), lambda row, look: look.ids.get(row["id"], row["id"])),
    "state": (TableColumn("STATE"), lambda row, _look: row["state"]),
    "agent": (TableColumn("AGENT", may_cut=True, spare=1), lambda row, _look: one_line(row["agent"])),
    "repo": (TableColumn("REPO", may_cut=True, spare=2), lambda row, _look: one_line(os.path.basename(row["repo"]))),
    "worker": (TableColumn("WORKER", may_cut=True, spare=3), lambda row, _look: one_line(row["worker"] or "-")),
    "age": (TableColumn("AGE", spare=5), lambda row, look: _age(row["created_at"], look)),
    "runs": (TableColumn("RUNS", spare=6), lambda row, _look: str(row["runs"])),
    "cost": (TableColumn("COST", spare=4), lambda row, _look: took(row["tokens"], row["cost_usd"])),
    "stage": (TableColumn("STAGE", may_cut=True), lambda row, _look: _stage(row)),
    "labels": (
        TableColumn("LABELS", may_cut=True),
        lambda row, _look: one_line(",".join(f"{key}={value}" for key, value in row["labels"].items()) or "-"),
    ),
    "priority": (TableColumn("PRIORITY"), lambda row, _look: str(row["priority"])),
    "account": (TableColumn("ACCOUNT", may_cut=True), lambda row, _look: one_line(row["account"] or "-")),
    "branch": (TableColumn("BRANCH", may_cut=True), lambda row, _look: one_line(row["branch"] or "-")),
    "updated": (TableColumn("UPDATED"), lambda row, look: _age(row["updated_at"], look)),
    "ended": (TableColumn("ENDED"), lambda row, look: _age(row["ended_at"], look)),
    "path": (TableColumn("PATH", may_cut=True), lambda row, _look: one_line(row["repo"])),
    "prompt": (TableColumn("PROMPT", may_cut=True), _prompt),
    "why": (TableColumn("WHY", may_cut=True), lambda row, look: "".join(why_parts(row, look))),
}
_ALWAYS = ("id", "state", "agent", "age", "runs", "prompt", "why")


def parse_columns(text: str | None) -> tuple[str, ...] | None:
    """Return the chosen columns, or None if no columns are chosen."""
    if text is None:
        return None
    names = tuple(name.strip().lower() for name in text.split(",") if name.strip())
    unknown = next((name for name in names if name not in COLUMNS), None)
    if unknown is not None or not names:
        what = "no column is named" if unknown is None else f"there is no column '{one_line(unknown, 40)}'"
        raise UsageError(f"--columns: {what}. The columns are {', '.join(COLUMNS)}.")
    return names


def _default_columns(rows: Sequence[FleetRow]) -> list[str]:
    """Return the usual columns. The repository has a column only if there are several, worker and cost only if a task
    has one."""
    wanted = set(_ALWAYS)
    if len({row["repo_id"] for row in rows}) > 1:
        wanted.add("repo")
    if any(row["worker"] for row in rows):
        wanted.add("worker")
    if any(row["tokens"] or row["cost_usd"] for row in rows):
        wanted.add("cost")
    return [name for name in COLUMNS if name in wanted]


def find_room(*, wide: bool) -> int | None:
    """Return how many cells a line may have. None: as many as needed, with --wide, and in a pipe without COLUMNS."""
    if wide or not (is_terminal() or os.environ.get("COLUMNS", "").isdecimal()):
        return None
    return max(1, shutil.get_terminal_size().columns)


def listing_lines(
    queries: Queries, listing: TaskListing, names: Sequence[str] | None, room: int | None, *, wide: bool
) -> list[str]:
    """Return the head and one line per task."""
    ids = {}
    if room is not None and room < NARROW:
        ids = queries.shorten_ids([row["id"] for row in listing.rows])
    look = _Look(listing, time.time(), ids)
    chosen = list(names or _default_columns(listing.rows))
    columns = [COLUMNS[name][0] for name in chosen]
    if names is not None:
        columns = [column._replace(spare=0) for column in columns]
    texts = [COLUMNS[name][1] for name in chosen]
    rows = [[text(row, look) for text in texts] for row in listing.rows]
    if room is None and not wide and "prompt" in chosen:
        at = chosen.index("prompt")
        for line in rows:
            line[at] = cut(line[at], _PROMPT)
    tails = {}
    if chosen[-1] == "why" and room is not None:
        tails = {number: tail for number, row in enumerate(listing.rows) if (tail := why_parts(row, look)[1])}
    state = chosen.index("state") if "state" in chosen and is_fancy(sys.stdout) else -1
    states = iter(listing.rows)

    def coloured(index: int, text: str) -> str:
        return text if index != state else paint(text, STATE_COLOURS.get(next(states)["state"], "dim"))

    return list(table_lines(Table(columns, rows, tails), room, coloured if state >= 0 else None))
