"""Issue 20: how the screens look at 42, 80, 120 and 220 columns, as text in tests/golden/top.

What differs from run to run is left out: ids have a number, ages are 0s, lines about the machine are blank, and so is
the upper edge of a scroll bar, which tells in eighths of a row how much has been read. After a
wanted change of a screen: `make screens`, then read `git diff tests/golden`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.fleet import Fleet, user_name
from tests.tui.hands import Hands
from tests.tui.screen import play, text_of, until, until_seen
from tests.tui.test_crashes import raise_alert
from textual.pilot import Pilot

from holdfast.tui.app import Top
from holdfast.tui.widgets.form import Form

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "top"
SIZES = ((42, 24), (80, 24), (120, 30), (220, 50))
SCROLL_BAR = " ▁▂▃▄▅▆▇"
OF_THE_MACHINE = ("Status", "#about", "#directory")  # disk, load, paths


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}")
def test_screens_look_as_they_did(fleet: Fleet, size: tuple[int, int]) -> None:
    """The fleet with marks and a critical alert, the form of a new task, and a search in an agent's output."""
    script = "seq 40; echo 'a [bold]needle[/bold] 日本語'; echo needle two; echo x > made"
    first = fleet.queue(f"{script}; git add made; git commit -qm made", prompt="Export orders as CSV")
    supervisor = fleet.up("--agents", 1)
    fleet.wait_state(first, "completed")
    fleet.wait_clean()
    fleet.cli("down")
    supervisor.wait(timeout=60)
    odd = "Rename \x1b[31mthe [red]cart[/red] 日本語 in every file of the shop"
    tasks = [first, fleet.queue("true", prompt=odd), fleet.queue("true", prompt="Write release notes")]
    fleet.cli("pause", tasks[1], "--why", "after the deploy")
    raise_alert(fleet, "worker:web", "Worker web is benched after 3 crashes within 10 minutes. Its tasks wait.")

    async def story(pilot: Pilot[None], app: Top) -> None:
        hands = Hands(pilot, app)
        await pilot.press("e", "s")
        await until_seen(pilot, "Export", "CRITICAL", "3 tasks, finished ones too, as added")
        await hands.point(tasks[1])
        await pilot.press("space", "space")
        await until_seen(pilot, "2 marked; ")
        await hands.point(tasks[0])
        await until(pilot, lambda: "needle two" in text_of(app), "its output is shown")
        compare(app, "fleet", size, tasks)

        await pilot.press("plus")
        await until(pilot, lambda: isinstance(app.screen, Form) and app.screen.focused, "the form is open")
        await pilot.press(*"Fix", "space", *"it", "ctrl+d")
        await hands.form_says("No agent is chosen")
        compare(app, "form", size, tasks)
        await hands.back()

        await hands.open(tasks[0])
        await until_seen(pilot, "needle two")
        await pilot.press("slash", *"needle", "enter", "n")
        await until_seen(pilot, "2 of 2 lines")
        compare(app, "search", size, tasks)

    play(fleet, story, size=size)


def compare(app: Top, name: str, size: tuple[int, int], tasks: Sequence[str]) -> None:
    found = "\n".join(line.rstrip(SCROLL_BAR) for line in stable_lines(app, tasks)) + "\n"
    path = GOLDEN / f"{name}-{size[0]}.txt"
    if os.environ.get("HOLDFAST_WRITE_SCREENS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(found, encoding="utf-8")
    assert found == path.read_text(encoding="utf-8"), f"{path} differs; on the screen is:\n{found}"


def stable_lines(app: Top, tasks: Sequence[str]) -> list[str]:
    lines = text_of(app).split("\n")
    for where in OF_THE_MACHINE:
        for widget in app.screen.query(where):
            for y in range(widget.region.y, min(widget.region.bottom, len(lines))):
                lines[y] = f"({where})"
    if isinstance(app.screen, Form):  # what is beside it is the list, with ids that are cut
        box = app.screen.query_one("VerticalScroll").region
        lines = [line if line[:1] == "(" else line[box.x : box.right] for line in lines[box.y : box.bottom]]
    text = "\n".join(lines).replace(f"paused by {user_name()}", "paused by USER")
    for number, task in enumerate(tasks):
        text = text.replace(task, f"task-{number:05}")
    text = re.sub(r"\b\d{4}-\d\d-\d\d \d\d:\d\d\b", "2026-01-01 00:00", text)
    text = re.sub(r"\b\d\d:\d\d:\d\d\b", "00:00:00", text)
    return re.sub(r" *\b\d+[smhd]\b(?= )", lambda age: "0s".rjust(len(age[0])), text).split("\n")
