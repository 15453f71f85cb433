"""Issue 9: one key per action on a screen, every action in help, palette and reference; R-CRASH-10."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.fleet import Fleet
from tests.tui.hands import Hands
from tests.tui.screen import play, until, until_seen
from textual import events
from textual.command import CommandList
from textual.pilot import Pilot

from holdfast.tui.actions.palette import ActionProvider, Palette
from holdfast.tui.actions.table import ACTIONS, about
from holdfast.tui.app import VIEWS, Top
from holdfast.tui.key_reference import make_bindings
from holdfast.tui.screens.task.screen import TaskView
from holdfast.tui.widgets.filter_bar import FilterBar
from holdfast.tui.widgets.grid import Grid
from holdfast.tui.widgets.key_bar import fit_keys
from holdfast.tui.widgets.screen import View

SCREENS: list[type[View]] = [*VIEWS.values(), TaskView]
NOT_EVERYWHERE = {"ctrl+s", "ctrl+q", "ctrl+z", "escape"}  # flow control, job control, and what goes back


@pytest.mark.parametrize("view", SCREENS, ids=lambda view: view.NAME)
def test_no_key_does_two_things_on_one_screen(view: type[View]) -> None:
    """R-CRASH-10: neither its actions among one another, nor with the screen's own keys, those of its table and the
    app's. Keys work over ssh and in tmux: no function keys, no Alt."""
    mine = [
        *make_bindings(view.BINDINGS),
        *make_bindings(View.BINDINGS),
        *make_bindings(Top.BINDINGS),
        *make_bindings(Grid.BINDINGS),
    ]
    keys = Counter(key.strip() for binding in mine for key in binding.key.split(","))
    shared = {key for key, number in keys.items() if number > 1}
    assert shared <= {"escape", "enter"}, f"{view.NAME}: {shared}"
    actions = {action.key for action in about(view.ABOUT)}
    assert len(actions) == len(about(view.ABOUT))
    assert all(len(key) == 1 for key in actions), "a letter, which every terminal has"


def test_every_action_is_about_something_and_says_what_it_does() -> None:
    reached = {action.name for view in SCREENS for action in about(view.ABOUT)}
    assert reached == set(ACTIONS)
    for action in ACTIONS.values():
        assert action.help, action.name
        assert "[" not in action.help, "Textual reads it as markup"
        assert len(action.label) <= 20, action.name


def test_the_line_of_keys_always_has_help() -> None:
    keys = [(letter, letter, "Something") for letter in "abcdefghij"]
    for width in (0, 7, 20, 40, 80):
        chosen = fit_keys(keys, width)
        assert chosen[-1][1] == "?"
        assert sum(len(shown) + len(words) + 3 for _key, shown, words in chosen) <= max(width, 9)
    assert len(fit_keys(keys, 80)) > len(fit_keys(keys, 40)) > 1


def test_every_action_is_in_help_and_palette_and_can_be_done_from_there(fleet: Fleet) -> None:
    """R-CRASH-10: on every screen; one is done by its words, one by a click on the line of keys."""
    task = fleet.queue("sleep 100")

    async def check(app: Top) -> None:
        view = app.screen
        assert isinstance(view, View)
        found = [hit.text or "" async for hit in ActionProvider(view).discover()]
        lines = {key for line in view.key_lines() for key in line.keys}
        for action in about(view.ABOUT):
            assert any(text.startswith(f"{action.label}  ({action.key})") for text in found), (view.NAME, action.name)
            assert action.key in lines
        assert any(text.startswith("Fleet  (1)") for text in found)
        assert not any("Up" in text for text in found), "moving the cursor is no command"

    async def story(pilot: Pilot[None], app: Top) -> None:
        hands = Hands(pilot, app)
        for number, name in enumerate(VIEWS, 1):
            await hands.go(str(number), name)
            await check(app)
        await hands.go("1", "fleet")
        await hands.point(task)
        await hands.open(task)
        await check(app)
        await hands.back()
        await until_seen(pilot, "p Pause  c Cancel", "? Help")
        await pilot.press("ctrl+p")
        await until_seen(pilot, "Pause  (p)", "Search for")
        await pilot.press(*"workissaved")
        await until(pilot, lambda: _first(app).startswith("Cancel  (c)"), "Cancel is found by its words")
        await pilot.press("enter")
        await hands.asked("", f"Cancel task {task}?", answer="n")
        await pilot.press("ctrl+p")
        await until(pilot, lambda: isinstance(app.screen, Palette), "the palette is there")
        assert isinstance(app.screen, Palette)
        app.screen._action_escape()  # these at once, as a slow line brings keys: the old one is being taken away
        app.action_command_palette()
        await until_seen(pilot, "Search for", "Cancel  (c)")
        assert isinstance(app.screen, Palette)
        await pilot.resize_terminal(80, 4)  # no room for the list
        await until(pilot, lambda: not app.screen.query_one(CommandList).scrollable_content_region, "it is not shown")
        await pilot.press("pagedown")
        await pilot.resize_terminal(80, 24)
        app.refuse("Something", "meanwhile")
        await until_seen(pilot, "Something: meanwhile")
        await pilot.press("ctrl+p", "escape")
        await until(pilot, lambda: isinstance(app.screen, Palette), "the refusal is closed, the palette is there")
        await hands.back()
        await pilot.click("KeyLine", offset=(0, 0))
        await hands.told(f"Paused {task}")
        await until_seen(pilot, "u Resume  c Cancel")
        await pilot.press("question_mark")
        await until_seen(pilot, "Keys: fleet", "This task", "c Cancel: end the task; its work is saved")

    def _first(app: Top) -> str:
        options = app.screen.query(CommandList).first()
        return str(options.get_option_at_index(0).prompt) if options.option_count else ""

    play(fleet, story, size=(80, 24))
    assert fleet.show(task)["state"] == "paused"


def test_what_is_typed_behind_a_slash_is_a_filter_however_fast_it_comes(fleet: Fleet) -> None:
    """R-CRASH-10: over a slow line several letters come at once; on the list they would pause the task."""
    task = fleet.add("pay the frog", command=("true",))

    async def story(pilot: Pilot[None], app: Top) -> None:
        await until_seen(pilot, task)
        for key, letter in (("slash", "/"), ("p", "p"), ("slash", "/"), ("c", "c")):
            app.post_message(events.Key(key, letter))
        await until_seen(pilot, "0 of 1 tasks have 'p/c'")
        assert app.screen.query_one(FilterBar).value == "p/c"

    play(fleet, story)
    assert fleet.show(task)["state"] == "queued"
