"""The workspaces screen: sizes, what is preserved and until when, and directories that are left over or foreign."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text

from holdfast.api.queries import Queries
from holdfast.api.work.workspaces import LeftoverFinder, Size, WorkspaceSizes, describe_expiry, is_on_disk
from holdfast.base.units import show_duration, show_size
from holdfast.tui.feed import NOTHING_NEW, Watch
from holdfast.tui.widgets.details import Sheet
from holdfast.tui.widgets.grid import Cell, Column
from holdfast.tui.widgets.list_screen import OrderedListing

if TYPE_CHECKING:
    from holdfast.api.work.models import LeftoverRow, WorkspaceLine, WorkspaceRow

MEASURING, MEASURED = 0.4, 15.0  # seconds between two steps of measuring: while sizes are missing, and afterwards
# Seconds between two searches for findings besides the recorded workspaces: if none was found, and if one was.
FINDINGS_EVERY, FINDINGS_AGAIN = 60.0, 5.0
STYLES = {"preserved": "yellow", "foreign": "magenta", "left over": "bold red", "ready": "green"}


def _age(row: WorkspaceLine) -> str:
    made = row["created_at"]
    return "-" if made is None else show_duration(int(time.time() - made)).split(" ")[0]


def _size(row: WorkspaceLine) -> str:
    size = row["size"]
    if size is None:
        return "-" if row["task"] is None or not is_on_disk(row) else "…"
    return show_size(size.bytes) if size.is_whole else f"> {show_size(size.bytes)}"


def _bytes(row: WorkspaceLine) -> int:
    return row["size"].bytes if row["size"] is not None else 0


def _expiry(row: WorkspaceLine) -> float:
    if row["state"] != "preserved":
        return math.inf
    return 0.0 if row["disposition"] == "salvage" else row["expires_at"] or 1e12


class WorkspacesView(OrderedListing):
    ABOUT: ClassVar[str] = "workspace"
    NAME: ClassVar[str] = "workspaces"
    NO_TASK: ClassVar[str] = "It does not belong to a task of this home."
    EMPTY: ClassVar[str] = "No workspaces: each task gets one when it starts."
    COLUMNS: ClassVar[tuple[Column[WorkspaceLine], ...]] = (
        Column("TASK", 10, lambda row: row["task"] or "-"),
        Column("STATE", 9, lambda row: Cell(row["state"], STYLES.get(row["state"], ""))),
        Column("TASK IS", 9, lambda row: row["task_state"] or "-", spare=4),
        Column("KIND", 9, lambda row: row["strategy"], spare=5),
        Column("AGE", 4, _age, right=True, spare=3),
        Column("SIZE", 10, _size, right=True),
        Column("KEPT", 13, describe_expiry, spare=1),
        Column("PLACE", 12, lambda row: row["place"], grow=True, spare=6),
        Column("WHY", 12, lambda row: row["reason"] or "", grow=True, spare=2),
    )
    ORDERS: ClassVar[Mapping[str, Callable[[WorkspaceLine], Any]]] = {
        "the newest": lambda row: (row["task"] is None, -(row["created_at"] or 0.0), row["key"]),
        "the largest": lambda row: (-_bytes(row), row["key"]),
        "what goes next": lambda row: (_expiry(row), row["key"]),
        "what is not ours": lambda row: (row["task"] is not None, row["key"]),
    }

    def __init__(self) -> None:
        self.ledger: list[WorkspaceRow] | None = None
        self.besides: list[LeftoverRow] = []
        self.sizes: dict[str, Size] = {}
        self.measuring: WorkspaceSizes | None = None
        self._beside: LeftoverFinder | None = None
        super().__init__()

    def watches(self) -> Iterable[Watch]:
        yield Watch("workspaces", self._read, self.seen, gap=0.3)
        self._of_sizes = Watch(
            "sizes of workspaces", self._measure, self._seen_sizes, every=MEASURING, on_change=False, apart=True
        )
        yield self._of_sizes
        self._of_besides = Watch(
            "things beside the workspaces", self._look_besides, self._seen_besides, on_change=False, apart=True
        )
        yield self._of_besides

    # -- in threads of the feed ----------------------------------------------------------------------------------------

    def _read(self, queries: Queries) -> object:
        rows = queries.workspaces()
        return NOTHING_NEW if rows == self.ledger else rows

    def _measure(self, queries: Queries) -> object:
        if self.measuring is None:
            self.measuring = WorkspaceSizes(queries.home)
        sizes = self.measuring.go_on(queries)
        self._of_sizes.every = MEASURED if self.measuring.is_over else MEASURING
        return NOTHING_NEW if sizes == self.sizes else sizes

    def _look_besides(self, queries: Queries) -> object:
        if self._beside is None:
            self._beside = LeftoverFinder(queries.home)
        rows = self._beside.look()
        self._of_besides.every = FINDINGS_EVERY if self._beside.is_quiet else FINDINGS_AGAIN
        return NOTHING_NEW if rows == self.besides else rows

    # -- in the app's thread -------------------------------------------------------------------------------------------

    def seen(self, rows: list[WorkspaceRow]) -> None:
        before = {row["id"] for row in self.ledger or ()}
        self.ledger = rows
        if any(row["id"] not in before for row in rows):
            self._of_sizes.again()
        self._put_together()

    def _seen_sizes(self, sizes: dict[str, Size]) -> None:
        self.sizes = sizes
        self._put_together()

    def _seen_besides(self, rows: list[LeftoverRow]) -> None:
        self.besides = rows
        self._put_together()

    def _put_together(self) -> None:
        if self.ledger is None:
            return
        within = f"{self.top.home}/workspaces/"  # the common prefix of all paths is not shown
        ledger = [{**row, "key": row["id"], "size": self.sizes.get(row["path"])} for row in self.ledger]
        rows = (*ledger, *({**row, "size": None} for row in self.besides))
        self.take([{**row, "place": str(row["path"]).removeprefix(within)} for row in rows])

    def summary(self, shown: Sequence[WorkspaceLine]) -> str:
        ours = [row for row in shown if row["task"] is not None]
        kept = sum(row["state"] == "preserved" for row in ours)
        words = [f"{len(ours)} workspace{'s' if len(ours) != 1 else ''}, {show_size(sum(map(_bytes, ours)))}"]
        if any(is_on_disk(row) and (row["size"] is None or not row["size"].is_whole) for row in ours):
            words[0] += " so far"
        words += [f"{kept} preserved"] if kept else []
        trash = self.sizes.get(self.measuring.trash) if self.measuring is not None else None
        words += [f"{show_size(trash.bytes)} in the trash, being deleted"] if trash is not None and trash.bytes else []
        others = len(shown) - len(ours)
        words += [f"{others} beside them"] if others else []
        status = self.top.status
        if status is not None and status["machine"]["disk_free"] is not None:
            words.append(f"{show_size(status['machine']['disk_free'])} of disk free")
        return ", ".join(words)

    def sheet_of(self, row: WorkspaceLine) -> Text:
        made = Sheet()
        if row["task"] is None:
            made.line(f"{row['strategy']}: {row['state']}", "bold").line(row["path"]).line(row["reason"])
            tool = "`holdfast sweep` (or the next `up`) cleans it up." if row["state"] == "left over" else ""
            return made.fact("Next", tool).text
        made.line(f"Workspace of {row['task']} ({row['task_state']}), {row['state']}", "bold").line(row["path"])
        made.fact("Why", row["reason"])
        made.fact("Kept", describe_expiry(row) if row["state"] == "preserved" else "")
        made.fact("Branch", row["branch"])
        made.fact("Repo", row["repo"])
        made.fact("Container", row["container"])
        if row["failures"]:
            again = (
                ""
                if row["retry_at"] is None
                else f", tried again {time.strftime('%T', time.localtime(row['retry_at']))}"
            )
            made.fact("Removal failed", f"{row['failures']} times{again}", "bold red")
        return made.text
