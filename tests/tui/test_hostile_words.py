"""Whatever agents, users and files say: no screen lets it move, colour, hide or turn anything."""

from __future__ import annotations

import os
import random
import re

from tests.acceptance.config.test_config import user_file
from tests.acceptance.dispatch.test_workers import WEB
from tests.fleet import Fleet, wait_until
from tests.tui.screen import play, text_of, until, until_seen
from tests.tui.terminal import needs_tmux, terminal
from textual.pilot import Pilot

from holdfast.api.queries import Queries
from holdfast.tui.app import Top

# Control characters, what turns a line round, what has no width, and halves of pairs.
DRIVES = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufe00-\ufe0f\ufeff\ud800-\udfff]"
)
PIECES = (
    "\x1b[31mred",
    "\x1b[2J\x1b[H",
    "\x1b]0;owned\x07",
    "\x1b]52;c;aGVsbG8=\x07",
    "\x1b[?1049l",
    "\x1b[?25h\x1b[?7h",
    "\x1bP1$r\x1b\\",
    "\u009b31m",
    "\x9d0;owned\x9c",
    "a\rb\bc\vd\fe\x7f",
    "\ttab\t",
    "\u202eturned\u202c",
    "\u2066isolated",
    "\u200bnothing\u200d\ufeff",
    "👩\u200d👩\u200d👧\ufe0f",
    "日本語",
    "[bold red]markup[/]",
    "[@click=app.quit]press[/]",
    "Z̸̡͈a̷l̴g̵o̶",
    "%s {0} {{ x }}",
    "\u2028line\u2029",
    "x" * 300,
)


def hostile(seed: int) -> str:
    chance = random.Random(seed)
    return f"seen{seed} " + " ".join(chance.sample(PIECES, len(PIECES)))


def is_calm(app: Top) -> str:
    """The screen, every line of it exactly as wide as the terminal."""
    for strip in app.screen._compositor.render_strips():
        text = strip.text
        found = DRIVES.search(text)
        assert found is None, f"{found.group()!a} is drawn in {text!a}"
        assert strip.cell_length == app.size.width, text
    return text_of(app)


def _stage(fleet: Fleet) -> dict[str, str]:
    """Something hostile in each place that others fill: prompts, labels, output, errors, names of files, reports."""
    user_file(fleet, f"agents = 2\n{WEB}")
    label = hostile(1).replace("=", " ")[:60]
    talks = fleet.queue("true", prompt=hostile(2), labels={"note": label}, delay=9000.0)
    speaks = fleet.add_scenario(
        {"say": hostile(3)},
        {"print": hostile(4)},
        {"stderr": hostile(5)},
        {"tool": {"name": "Bash", "input": hostile(6), "for": "1ms"}},
        {"write": {"path": "od\x1b[31md\u202e [bold]name", "text": hostile(7) + "\n"}},
        {"commit": hostile(8)},
        {"report": {"kind": "progress", "message": hostile(9), "percent": 7}},
        {"hang": True},
    )
    fails = fleet.queue(f"printf '%s' {_quoted(hostile(10))} >&2; exit 3", prompt="fail")
    dies = fleet.queue(f"printf '%s' {_quoted(hostile(11))} >&2; kill -9 $$", prompt="die", labels={"area": "web"})
    fleet.up()
    wait_until(lambda: "7 %" in str(fleet.show(speaks)["reason"]), "it has told how far it is")
    fleet.wait_state(fails, "failed")
    wait_until(lambda: Queries(str(fleet.home)).alerts(), "its worker is stopped, and an alert says so")
    repo = next(folder for folder in (fleet.home / "workspaces").iterdir() if not folder.name.startswith("."))
    os.mkdir(os.fsencode(repo) + b"/for\x1b[2Jeign\xff\xe2\x80\xae")
    return {"talks": talks, "speaks": speaks, "fails": fails, "dies": dies}


def _quoted(words: str) -> str:
    return "'" + words.replace("'", "").replace("\n", "") + "'"


def test_nothing_that_others_say_drives_a_screen(fleet: Fleet) -> None:
    """R-CRASH-10: on every screen and page, with a dialog over it, wide and narrow."""
    tasks = _stage(fleet)

    async def story(pilot: Pilot[None], app: Top) -> None:
        await until_seen(pilot, tasks["speaks"], "running")
        for columns in (80, 40):
            await pilot.resize_terminal(columns, 24)
            for key, word in (("2", "web"), ("3", "LEVEL"), ("4", ""), ("5", tasks["speaks"]), ("1", "seen2 line")):
                await pilot.press(key)
                await until(pilot, lambda word=word: word in is_calm(app), f"screen {key} shows {word!r}")  # type: ignore[misc]
                await pilot.press("down", "down")
                await pilot.pause()
                is_calm(app)
            app.open_task(tasks["speaks"])
            await until(pilot, lambda: "seen6" in is_calm(app), "its agent's words are there")
            for page in "oietnvd":
                await pilot.press(page)
                await pilot.pause()
                await until(pilot, lambda: is_calm(app) and app.screen.NAME == "task", "the page is there")  # type: ignore[attr-defined]
            await until(pilot, lambda: "1 file changed" in is_calm(app), "its changes are there")
            await pilot.press("c")
            await until(pilot, lambda: "Cancel" in is_calm(app), "it asks first")
            await pilot.press("n", "escape", "ctrl+p")
            await pilot.pause()
            is_calm(app)
            await pilot.press("escape")
        app.notify(hostile(12))

    play(fleet, story, size=(80, 24))
    assert fleet.show(tasks["speaks"])["state"] == "running"


@needs_tmux
def test_a_real_terminal_is_not_driven_either(fleet: Fleet) -> None:
    """R-CRASH-10: the terminal that draws it keeps its title, its clipboard, its screen, and every line its place."""
    script = f"printf '%s\\n' {_quoted(hostile(4))}; sleep 1000"
    task = fleet.queue(script, prompt=hostile(2))
    fleet.up()
    fleet.wait_started(task)
    with terminal(fleet, columns=100, lines=24, term="xterm-256color") as seen:
        title = seen.title()
        seen.top()
        seen.until_seen(task, "running", "Help")
        seen.press("Enter")
        seen.until_seen("[Output]", "following", "x" * 90)
        lines = seen.text().rstrip("\n").split("\n")
        assert lines[0].startswith("supervisor up"), lines[0]
        assert "Help" in lines[-1], lines[-1]
        assert seen.title() == title
        assert seen.modes()["alternate_on"]
        assert not seen.modes()["cursor_flag"]
        seen.press("q")
        seen.until_seen("ended: 0")
