"""Driving `holdfast top` in this process with Textual's pilot, against a real home, supervisor and agents.

Tests wait on facts: what is on the screen, or what is in the store. `text_of` is what a person would read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from tests.fleet import PATIENCE, Fleet
from textual.pilot import Pilot

from holdfast.tui.app import Top

T = TypeVar("T")
SIZE = (120, 30)
LONGEST = 240.0  # seconds: a story that hangs in the pilot itself, where no `until` looks at the clock


def text_of(app: Top) -> str:
    """The whole screen as plain text, dialogs included."""
    lines = app.screen._compositor.render_strips()  # what was drawn; no public way gives it
    return "\n".join(strip.text.rstrip() for strip in lines)


async def until(pilot: Pilot[None], fact: Callable[[], T], what: str, patience: float = PATIENCE) -> T:
    deadline = time.monotonic() + patience
    while True:
        value = fact()
        if value:
            return value
        if time.monotonic() > deadline:
            assert isinstance(pilot.app, Top)
            pytest.fail(f"this never became true: {what}\n{text_of(pilot.app)}")
        await pilot.pause(0.05)


async def until_seen(pilot: Pilot[None], *words: str, patience: float = PATIENCE) -> str:
    """Until all the words are on the screen together."""
    app = pilot.app
    assert isinstance(app, Top)

    def seen() -> str:
        text = text_of(app)
        return text if all(word in text for word in words) else ""

    return await until(pilot, seen, f"{words} are on the screen", patience)


def start_tasks_as_the_product_does() -> None:
    """Use the task factory that `App.run` sets from Python 3.12 on, and that `run_test` does not set."""
    eager = getattr(asyncio, "eager_task_factory", None)
    if eager is not None:
        asyncio.get_running_loop().set_task_factory(eager)


def play(
    fleet: Fleet,
    story: Callable[[Pilot[None], Top], Awaitable[None]],
    *,
    size: tuple[int, int] = SIZE,
    bell: bool = False,
) -> None:
    """Open the app on the fleet's home, play the story, close it."""

    async def whole() -> None:
        start_tasks_as_the_product_does()
        app = Top(str(fleet.home), bell=bell)
        async with app.run_test(size=size, notifications=True) as pilot:
            try:
                async with asyncio.timeout(LONGEST):
                    await story(pilot, app)
            except TimeoutError:
                stacks = "\n".join(str(task.get_stack(limit=3)) for task in asyncio.all_tasks())
                pytest.fail(f"the story did not end within {LONGEST:.0f} s\n{text_of(app)}\n{stacks}")

    with pytest.MonkeyPatch.context() as patch:
        for name, value in fleet.env.items():  # actions are carried out here, as in the user's own shell
            patch.setenv(name, value)
        patch.chdir(fleet.repo)
        asyncio.run(whole())
