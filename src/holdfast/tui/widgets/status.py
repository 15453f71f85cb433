"""The status line on top of every screen: the health of the supervisor, and what holds the fleet up."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text
from textual import events
from textual.widgets import Static

from holdfast.api.fleet.status import StatusPiece, list_delays, status_line
from holdfast.base.text import one_line
from holdfast.tui.feed import Trouble

if TYPE_CHECKING:
    from holdfast.api.fleet.models import VitalsRow

EVERY = 1.0  # seconds: a supervisor that was killed emits no event
PATIENCE = 3.0  # seconds that the store may take to answer before the line reports the delay
BETWEEN = "  "
STYLES = {"": "", "good": "green", "warn": "yellow", "bad": "bold red"}


class Status(Static):
    """The status line. Problems with the store replace it."""

    DEFAULT_CSS = """
    Status { height: auto; min-height: 1; max-height: 2; background: $panel; }
    Status { text-wrap: nowrap; text-overflow: ellipsis; }
    Status.-trouble { max-height: 5; text-wrap: wrap; }
    """

    def __init__(self) -> None:
        super().__init__(Text("holdfast: reading …"))
        self._shown: Text | None = None
        self._facts: tuple[VitalsRow | None, Trouble | None, float] = (None, None, 0.0)

    def show(self, vitals: VitalsRow | None, trouble: Trouble | None, waits: float = 0.0) -> None:
        """Show the status. `waits` is for how many seconds the present reading has waited for the store."""
        self._facts = (vitals, trouble, waits)
        self._draw()

    def on_resize(self, _event: events.Resize) -> None:
        self._draw()

    def _draw(self) -> None:
        vitals, trouble, waits = self._facts
        width = self.size.width or self.app.size.width
        is_whole = trouble is None or not trouble.is_of_all
        if trouble is not None and not is_whole:
            made = describe_trouble(trouble)
        elif waits > PATIENCE:
            made = describe_wait(waits)
        elif vitals is not None and width > 0:
            made = status_text(vitals, width, time.time())
            if trouble is not None:
                made.append("\n").append_text(describe_trouble(trouble))
        else:
            return
        if self._shown is None or made.markup != self._shown.markup:  # an unchanged line is not drawn again
            is_trouble = trouble is not None or waits > PATIENCE
            is_as_high = not is_trouble and self.size.height == made.plain.count("\n") + 1
            self._shown = made
            self.set_class(is_trouble, "-trouble")
            self.update(made, layout=not is_as_high)


def describe_trouble(trouble: Trouble) -> Text:
    since = time.strftime("%H:%M:%S", time.localtime(trouble.since))
    return Text.assemble((f"As of {since}. ", "bold"), (one_line(trouble.words, 1000), "bold red"))


def describe_wait(waits: float) -> Text:
    since = time.strftime("%H:%M:%S", time.localtime(time.time() - waits))
    return Text(f"As of {since}: the store does not answer, because something holds it locked. Retrying.", "bold red")


def status_text(vitals: VitalsRow, width: int, now: float) -> Text:
    """Return the status line, with a second line only if something holds the fleet up."""
    made = Text(no_wrap=True, overflow="ellipsis", end="")
    for number, piece in enumerate(fit_pieces(status_line(vitals, now), width)):
        made.append(BETWEEN if number else "")
        made.append(one_line(piece.text), STYLES[piece.level])
    held = list_delays(vitals)
    if held:
        made.append("\n")
        made.append(one_line("; ".join(held), max(1, width)), STYLES["warn"])
    return made


def fit_pieces(pieces: list[StatusPiece], width: int) -> list[StatusPiece]:
    chosen = list(pieces)
    while sum(cell_len(piece.text) + len(BETWEEN) for piece in chosen) - len(BETWEEN) > width:
        spare = max(chosen, key=lambda piece: piece.spare)
        if not spare.spare:
            break
        chosen.remove(spare)
    return chosen
