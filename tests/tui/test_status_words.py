"""The line on top: what is left out when there is little room, and what never is."""

from __future__ import annotations

from typing import Any

import pytest
from rich.cells import cell_len

from holdfast.tui.feed import Feed, Trouble, Watch
from holdfast.tui.widgets.status import status_text

NOW = 1_800_000_000.0


def vitals(**more: Any) -> Any:
    up = {"state": "up", "silent": 1.0, "pid": 4711, "agents": 4, "since": NOW - 7500, "version": "0.1.0"}
    machine = {"disk_free": 23 << 30, "disk_floor": 1 << 30, "disk_low": False, "load": 0.42, "memory": 3 << 30}
    return {
        "supervisor": {**up, "held": None, "other_version": None},
        "counts": {"running": 3, "queued": 12, "paused": 1, "completed": 900},
        "alerts": {"open": 2, "worst": "critical"},
        "accounts": [],
        "holds": [],
        "machine": {**machine, "stall": 0.0, "cgroups": True},
        **more,
    }


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_the_line_fits_and_says_the_most_important_first(width: int) -> None:
    """R-CRASH-10: readable on every terminal."""
    made = status_text(vitals(), width, NOW).plain
    assert "\n" not in made
    assert cell_len(made) <= width
    assert made.startswith("supervisor up 2h 5m")
    assert "2 alerts (critical)" in made
    assert ("3 running, 12 queued, 1 paused" in made) == (width >= 80)
    assert ("disk 23 GiB free" in made) == (width >= 120)
    assert ("cgroups" in made and "load 0.4" in made) == (width >= 120)
    assert ("900 completed" in made and "pid 4711, 4 at once" in made and "memory 3 GiB" in made) == (width >= 200)


def test_what_holds_the_fleet_up_has_a_line_of_its_own() -> None:
    """R-CRASH-09: nothing waits in silence; other people's words drive nothing."""
    held = {**vitals()["supervisor"], "held": "the load per core is 9.00\x1b[31m, at most 4 is wanted"}
    breaker = {"scope": "provider", "name": "anthropic", "probe": "abc", "until": NOW, "is_due": True, "reason": "-"}
    parked = [
        {"account": "claude/work", "until": None, "reason": "login"},
        {"account": "claude/home", "until": NOW, "reason": "limit"},
    ]
    made = status_text(vitals(supervisor=held, holds=[breaker], accounts=parked), 300, NOW).plain
    _, second = made.split("\n")
    assert second.startswith("nothing new starts: the load per core is 9.00, at most 4 is wanted; ")
    assert "provider anthropic is held, task abc starts first" in second
    assert "account claude/work is stopped until its login is fixed" in second
    assert "account claude/home is parked until " in second
    assert len(status_text(vitals(supervisor=held), 40, NOW).plain.split("\n")[1]) <= 40


def test_bad_news_is_said_in_words() -> None:
    none = {"state": "none", "held": None, "other_version": None}
    assert status_text(vitals(supervisor=none), 80, NOW).plain.startswith("no supervisor is running (U starts one)  ")
    low = {**vitals()["machine"], "disk_low": True, "disk_free": 300 << 20, "cgroups": False}
    assert "disk low: 300 MiB free, 1 GiB wanted" in status_text(vitals(machine=low), 120, NOW).plain
    assert "no cgroups" in status_text(vitals(machine=low), 200, NOW).plain


def test_what_one_screen_cannot_read_hides_nothing_of_the_rest() -> None:
    """R-CRASH-09: one screen's trouble stands below the line on top, the store's in its place."""
    watched: list[Trouble | None] = []
    feed = Feed("/nowhere", lambda _watch, _value: None, watched.append)
    feed._say_of(Watch("left", lambda _queries: None, lambda _value: None), "found out when its screen was left")
    feed._say("sizes", "git does not answer")
    feed._say("", "the store is gone")
    feed._say("", None)
    feed.detach([Watch("sizes", lambda _queries: None, lambda _value: None)])
    assert [told and (told.words, told.is_of_all) for told in watched] == [
        ("git does not answer", False),
        ("the store is gone", True),
        ("git does not answer", False),
        None,
    ]
