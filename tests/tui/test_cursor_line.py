"""The line with the cursor is seen as that, whatever colours its cells have."""

from __future__ import annotations

import asyncio

from rich.style import Style
from textual.app import App, ComposeResult

from holdfast.tui.widgets.grid import Cell, Column, Grid


class Listing(App[None]):
    def compose(self) -> ComposeResult:
        yield Grid(
            [Column("STATE", 9, lambda row: Cell(row["id"], "bold red")), Column("WHY", 5, lambda row: row["id"])]
        )


def test_the_cursor_has_a_background_of_its_own() -> None:
    styles: dict[int, set[Style]] = {}

    async def look() -> None:
        app = Listing()
        async with app.run_test(size=(40, 10)) as pilot:
            grid = app.query_one(Grid)
            grid.show([{"id": "one"}, {"id": "two"}])
            await pilot.pause()
            styles.update({line: {part.style for part in grid.render_line(line) if part.style} for line in (1, 2)})

    asyncio.run(look())
    assert {style.bgcolor for style in styles[1]}.isdisjoint(style.bgcolor for style in styles[2])
    assert {style.color for style in styles[1]} == {style.color for style in styles[2]}, "cells keep their own colours"
