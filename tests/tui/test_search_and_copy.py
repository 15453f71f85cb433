"""F13, issue 20: search in a text, copy, leave the mouse to the terminal, see an agent's output below the list."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fleet import Fleet
from tests.tui.hands import Hands
from tests.tui.screen import play, text_of, until, until_seen
from tests.tui.terminal import needs_tmux, terminal
from textual.pilot import Pilot

from holdfast.api.tasks.log_window import LogWindow
from holdfast.tui.app import Top
from holdfast.tui.screens.live_output import EVERY, LiveOutput, output_height
from holdfast.tui.screens.task.screen import TaskView
from holdfast.tui.widgets.text_view import Paper

ODD = "\\033]52;c;aGVsbG8=\\007 [red]needle[/red]"


def test_words_are_found_in_output_and_diff(fleet: Fleet) -> None:
    """`/` searches, n and N move and wrap around, the count is shown, Esc ends it; without a search n is a page."""
    script = 'seq 20000; echo "a Needle"; seq 100; printf "$ODD\\n"; seq 50; echo needle >> README.md'
    task = fleet.queue(f"ODD='{ODD}'; {script}; git commit -qam done")
    fleet.up("--agents", 1)
    fleet.wait_state(task, "completed")

    async def story(pilot: Pilot[None], app: Top) -> None:
        hands = Hands(pilot, app)
        await hands.open(task)
        await until_seen(pilot, "following", "\n50")
        for key in ("/", *"needle"):
            await pilot.press("slash" if key == "/" else key)
        await until_seen(pilot, "1 of 2 lines with 'needle'", "a Needle", "only what was read is searched")
        view = app.screen
        assert isinstance(view, TaskView)
        paper = view.query_one("#page-output Paper", Paper)
        await pilot.press("enter")
        await until(pilot, lambda: app.focused is paper, "the text has the keys again")
        await pilot.press("n")
        await until_seen(pilot, "2 of 2 lines", "[red]needle[/red]")
        assert not paper.follows
        pieces = paper.render_line(_row_of(paper, "[red]"))
        assert [piece.text for piece in pieces if piece.style and piece.style.reverse] == ["needle"]
        await pilot.press("C")
        await until_seen(pilot, "Copy:", f"i  id         {task}", "b  branch", "l  line")
        await pilot.press("l")
        await hands.told("Copied the line")
        assert app.clipboard.endswith("[red]needle[/red]")
        assert app.clipboard.isprintable()
        await pilot.press("n")
        await until_seen(pilot, "1 of 2 lines")
        await pilot.press("N")
        await until_seen(pilot, "2 of 2 lines")
        await pilot.press("escape")
        await until(pilot, lambda: "lines with" not in text_of(app), "the search is over")
        await pilot.press("n")
        await until_seen(pilot, "[Results]")
        await pilot.press("t", "slash")
        await hands.told("This page has no text to search")
        await pilot.press("d")
        await until_seen(pilot, "+needle")
        await pilot.press("slash", *"+NEED", "enter")
        await until_seen(pilot, "1 of 1 lines with '+NEED'")
        await pilot.press("slash", *"x")
        await until_seen(pilot, "No line has '+NEEDx'")
        await pilot.press("escape")
        await hands.back()

    play(fleet, story)


def test_keys_that_come_together_are_taken_one_after_the_other(fleet: Fleet) -> None:
    """Over ssh a terminal sends several keys in one packet: a search, Enter and n; n is no word of the search then."""
    task = fleet.queue("echo needle one; echo hay; echo needle two; echo nails")
    fleet.up("--agents", 1)
    fleet.wait_state(task, "completed")

    async def story(pilot: Pilot[None], app: Top) -> None:
        hands = Hands(pilot, app)
        await hands.open(task)
        await until_seen(pilot, "nails")
        await hands.together("slash", *"needle", "enter", "n")
        await until_seen(pilot, "2 of 2 lines with 'needle' (n, N; Esc ends)")
        await hands.together("slash")
        await until_seen(pilot, "(Enter, then n, N; Esc ends)")
        await hands.together("escape")
        await until(pilot, lambda: "lines with" not in text_of(app), "the search is over")
        await hands.together("slash", "n")
        await until_seen(pilot, "1 of 3 lines with 'n' (Enter, then n, N; Esc ends)")
        await hands.together("escape", "slash", "n", "enter", "N", "n")
        assert "only what was read" not in await until_seen(pilot, "1 of 3 lines with 'n' (n, N; Esc ends)")

    play(fleet, story)


def _row_of(paper: Paper, words: str) -> int:
    return next(y for y in range(paper.size.height) if words in paper.render_line(y).text)


def test_what_the_cursor_is_on_is_copied(fleet: Fleet) -> None:
    task = fleet.queue("true", prompt="two\nlines")

    async def story(pilot: Pilot[None], app: Top) -> None:
        hands = Hands(pilot, app)
        await hands.point(task)
        await pilot.press("C", "x", "i")
        await hands.told("Copied the id", task)
        assert app.clipboard == task
        await pilot.press("C", "p")
        await hands.told("Copied the prompt", "two lines")
        assert app.clipboard == "two\nlines"

    play(fleet, story)
    assert fleet.kinds(task) == ["task.queued"]


@needs_tmux
def test_a_copy_reaches_the_terminal(fleet: Fleet) -> None:
    """The bytes of OSC 52 leave the process: tmux takes them as an outer terminal would, into its clipboard."""
    task = fleet.queue("true", prompt="two\nlines")
    with terminal(fleet) as seen:
        seen.take_clipboard()
        seen.top()
        seen.until_seen(task, "Quit")
        seen.press("C")
        seen.until_seen("Copy:")
        seen.press("p")
        seen.until_seen("Copied the prompt")
        assert seen.clipboard() == "two\nlines"
        seen.press("C")
        seen.until_seen("Copy:")
        seen.press("i")
        seen.until_seen("Copied the id")
        assert seen.clipboard() == task
        seen.press("q")


@needs_tmux
def test_the_mouse_is_left_to_the_terminal_and_taken_back(fleet: Fleet) -> None:
    """Then the terminal selects text as everywhere, even after Ctrl+Z."""
    task = fleet.queue("true")
    with terminal(fleet) as seen:
        seen.top()
        seen.until_seen(task, "Quit")
        assert seen.modes()["mouse_any_flag"]
        seen.press("M")
        seen.until_seen("The mouse now selects text")
        assert not seen.modes()["mouse_any_flag"]
        seen.press("C-z")
        seen.until_line("^ready>|topped")
        seen.type("fg; echo ended: $?")
        seen.until_seen(task, "Quit")
        assert not seen.modes()["mouse_any_flag"]
        seen.press("M")
        seen.until_seen("The mouse controls `top` again")
        assert seen.modes()["mouse_any_flag"]
        seen.press("q")
        seen.until_seen("ended: 0")


@pytest.mark.parametrize(
    ("lines", "rows", "height"), [(20, 3, 16), (20, 15, 4), (20, 16, 0), (20, 500, 0), (45, 500, 10), (45, 5, 39)]
)
def test_output_takes_the_room_that_the_list_leaves(lines: int, rows: int, height: int) -> None:
    assert output_height(lines, rows) == height


def test_output_is_live_below_the_list(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task under the cursor; its words move nothing; a quiet log is not read again, and a short screen has none."""
    go = fleet.root / "go"
    first = fleet.queue(f"printf '{ODD} one\\n'; until [ -e {go} ]; do sleep 0.1; done; echo two; exec sleep 600")
    second = fleet.queue("echo other; exec sleep 600")
    fleet.up("--agents", 2)
    fleet.wait_started(first)
    fleet.wait_started(second)
    reads: list[str] = []
    for name in ("newest", "later"):
        _count(monkeypatch, name, reads)

    async def story(pilot: Pilot[None], app: Top) -> None:
        hands = Hands(pilot, app)
        await hands.point(first)
        await until_seen(pilot, f"Output of {first}, run 1", "[red]needle[/red] one")
        output = app.screen.query_one(LiveOutput)
        await until(pilot, lambda: output._reader is not None and output._reader._known, "it has read all there is")
        reads.clear()
        begun = output.reading.read_at
        await until(pilot, lambda: output.reading.read_at > begun + 2 * EVERY, "it has looked again, more than once")
        assert reads == []
        go.touch()
        await until_seen(pilot, "\ntwo")
        assert set(reads) == {"later"}
        await hands.point(second)
        await until_seen(pilot, f"Output of {second}", "\nother")
        assert output.query_one(Paper).text() == "other"
        await pilot.resize_terminal(42, 8)
        await until(pilot, lambda: "Output of" not in text_of(app), "there is no room")
        await pilot.resize_terminal(42, 24)
        await until_seen(pilot, f"Output of {second}", "\nother", "PROMPT")

    play(fleet, story)
    for task in (first, second):
        fleet.cli("cancel", task)
        fleet.wait_state(task, "cancelled")


def _count(monkeypatch: pytest.MonkeyPatch, name: str, reads: list[str]) -> None:
    real = getattr(LogWindow, name)

    def counted(window: LogWindow, **how: bool) -> object:
        reads.append(name)
        return real(window, **how)

    monkeypatch.setattr(LogWindow, name, counted)


def test_two_repositories_have_a_column(fleet: Fleet) -> None:
    other = fleet.make_repo(fleet.root / "elsewhere")
    fleet.queue("true", prompt="here")

    async def story(pilot: Pilot[None], app: Top) -> None:
        screen = await until_seen(pilot, "here")
        assert "REPO" not in screen
        fleet.queue("true", prompt="there", directory=Path(other))
        await until_seen(pilot, "REPO", "elsewhere", "PROMPT")

    play(fleet, story, size=(80, 24))
