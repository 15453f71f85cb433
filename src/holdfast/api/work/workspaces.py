"""Workspaces as the screen of them lists them: those of the ledger with their sizes, and what else lies there."""

from __future__ import annotations

import os
import time
from typing import Any

from holdfast.api.queries import Queries
from holdfast.api.work.sizes import Size, Sizes
from holdfast.base.units import show_duration
from holdfast.workspaces.names import TRASH

Row = dict[str, Any]
FRESH = 60.0  # seconds that a size holds
BIT = 0.1  # seconds of measuring at a time
LEFT_OVER = "left over"
UNREMARKABLE = ("wait", "keep")  # what a sweep would do about something that the ledger lists anyway


class Measuring:
    """Used in one thread at a time; `sizes` may be read in another."""

    def __init__(self, home: str) -> None:
        self.trash = os.path.join(home, "workspaces", TRASH)
        self._sizes = Sizes(FRESH)
        self.is_over = False

    def go_on(self, queries: Queries) -> dict[str, Size]:
        paths = [row["path"] for row in queries.workspaces() if is_on_disk(row)]
        self.is_over = not self._sizes.go_on([*dict.fromkeys(paths), self.trash], BIT)
        return dict(self._sizes.known)


def is_on_disk(row: Row) -> bool:
    """A tree of ours; `none` is the user's own checkout."""
    return row["strategy"] != "none" and row["state"] in ("ready", "preserved")


class Besides:
    """What lies beside them, looked for again and again. What is ours is left over only if it is found twice: a
    workspace that is just being made or put away is not."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._found: frozenset[str] = frozenset()  # ours, at the last look

    def look(self) -> list[Row]:
        rows, before = found_besides(self._home), self._found
        self._found = frozenset(row["key"] for row in rows if row["state"] == LEFT_OVER)
        return [row for row in rows if row["state"] != LEFT_OVER or row["key"] in before]

    @property
    def is_quiet(self) -> bool:
        """Whether there is nothing that a sweep, or a moment, would change."""
        return not self._found


def found_besides(home: str) -> list[Row]:
    """What lies there and is in no ledger, or not as the ledger has it: as `sweep --dry-run` sees it. Slow: git, /proc
    and the engines are asked."""
    from holdfast.api.home.sweep import plan

    rows = []
    for finding in plan(home):
        if finding["action"] in UNREMARKABLE:
            continue
        is_ours = not finding["foreign"]
        fate = f"; a sweep would {finding['action']} it" if is_ours and finding["action"] != "report" else ""
        rows.append(
            {
                "key": f"{finding['what']} {finding['where']}",
                "task": None,
                "task_state": None,
                "state": LEFT_OVER if is_ours else "foreign",
                "strategy": finding["what"],
                "path": finding["where"],
                "reason": f"{finding['why']}{fate}",
                "created_at": None,
            }
        )
    return rows


def kept_until(row: Row) -> str:
    if row["state"] != "preserved":
        return "-"
    if row["disposition"] == "salvage":
        return "goes now"
    if row["expires_at"] is None:
        return "until dropped"
    return f"for {show_duration(max(0.0, row['expires_at'] - time.time()))}"
