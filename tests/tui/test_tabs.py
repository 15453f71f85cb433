"""R-CRASH-10: which screens there are, which one this is, and where something needs somebody."""

from __future__ import annotations

from tests.fleet import Fleet
from tests.tui.hands import Hands
from tests.tui.screen import play, text_of, until, until_seen
from tests.tui.test_crashes import raise_alert
from textual.pilot import Pilot

from holdfast.api.fleet.models import AlertCounts
from holdfast.tui.app import VIEWS, Top
from holdfast.tui.widgets.tabs import Tabs, draw_tabs, make_tabs


def test_the_present_one_is_marked_and_a_narrow_line_keeps_what_matters() -> None:
    names = tuple(VIEWS)
    some: AlertCounts = {"open": 12, "worst": "critical"}
    wide = draw_tabs(make_tabs(names, "fleet", None), 80)
    assert wide.plain == "[1 Fleet] 2 Workers  3 Alerts  4 Schedules  5 Workspaces "
    assert draw_tabs(make_tabs(names, "alerts", some), 80).plain.split("[")[1].startswith("3 Alerts 12]")
    assert draw_tabs(make_tabs(names, "fleet", some), 40).plain == "[1 Fleet] 2 Workers  3 Alerts 12  4  5 "
    assert draw_tabs(make_tabs(names, "workspaces", some), 40).plain == " 1  2  3 Alerts 12  4 [5 Workspaces]"
    assert draw_tabs(make_tabs(names, "schedules", some), 20).plain == " 1  2  3 12 [4] 5 "


def test_the_line_of_screens(fleet: Fleet) -> None:
    """R-CRASH-10: the number of open alerts stands beside them on every screen, a click opens one, and the digit of the
    present one leads from a task back to its list. A low terminal has its lines for the list, and still says how a
    long question is answered."""
    task = fleet.queue("true", prompt="many words " * 40)

    async def story(pilot: Pilot[None], app: Top) -> None:
        hands = Hands(pilot, app)
        await until_seen(pilot, task, "[1 Fleet] 2 Workers  3 Alerts  4 Schedules  5 Workspaces")
        raise_alert(fleet, "one", "It broke")
        # With the banner, which moves the line down: a click before that would miss it.
        await until_seen(pilot, "CRITICAL", "It broke", "[1 Fleet] 2 Workers  3 Alerts 1  4 Schedules  5 Workspaces")
        await pilot.click(Tabs, offset=(23, 0))
        await until_seen(pilot, "[3 Alerts 1]", "It broke")
        await hands.point("one", by="key")
        await until(pilot, lambda: "d Diff" not in text_of(app), "without a task nothing was changed")
        await hands.go("1", "fleet")
        await hands.point(task)
        await until_seen(pilot, "[1 Fleet]", "d Diff")
        await hands.open(task)
        await until_seen(pilot, "[1 Fleet]", "[Output]")
        await hands.go("3", "alerts")
        await hands.go("1", "task")
        await hands.go("1", "fleet")
        await hands.row_is(id=task)
        await pilot.resize_terminal(80, 19)
        await until(pilot, lambda: "[1 Fleet]" not in text_of(app), "a low terminal has no such line")
        await pilot.resize_terminal(40, 12)
        await pilot.press("c")
        await until_seen(pilot, f"Cancel task {task}?", "y: yes   n: no", "CRITICAL")

    play(fleet, story, size=(80, 20))
