"""Doing things in `holdfast top` as a person does, and waiting for what a person waits for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tests.tui.screen import until, until_seen
from textual import events
from textual.keys import _character_to_key
from textual.pilot import Pilot

from holdfast.tui.app import Top
from holdfast.tui.widgets.dialogs import Dialog, Question, Refusal
from holdfast.tui.widgets.form import Form
from holdfast.tui.widgets.grid import Grid
from holdfast.tui.widgets.screen import View

Story = Callable[[Pilot[None], Top], Awaitable[None]]
D = TypeVar("D", bound=Dialog)


class Hands:
    def __init__(self, pilot: Pilot[None], app: Top) -> None:
        self.pilot, self.app = pilot, app

    async def go(self, key: str, name: str) -> None:
        """To a screen, by its digit."""
        await self.pilot.press(key)
        await until(self.pilot, lambda: isinstance(self.app.screen, View) and name == self.app.screen.NAME, name)

    async def open(self, task: str) -> None:
        """The screen of one task, with its facts on it."""
        self.app.open_task(task)
        await until(self.pilot, lambda: isinstance(self.app.screen, View) and self.app.screen.NAME == "task", "a task")
        await until(self.pilot, lambda: self.subject("id") == task, f"{task} is shown")

    async def back(self) -> None:
        before = self.app.screen
        await self.pilot.press("escape")
        await until(self.pilot, lambda: self.app.screen is not before, "Esc goes back")

    async def point(self, value: object, by: str = "id") -> None:
        """The cursor on the row that has that value, when it is there."""

        def point() -> bool:
            grid = self.app.screen.query_one(Grid)
            index = next((index for index, row in enumerate(grid.rows) if row[by] == value), None)
            if index is not None:
                grid.action_go(index)
            return self.subject(by) == value

        await until(self.pilot, point, f"{value} is on the screen, and the cursor on it")

    def row(self) -> dict[str, Any]:
        """What the cursor is on."""
        screen = self.app.screen
        assert isinstance(screen, View)
        row: dict[str, Any] | None = screen.subject()
        assert row is not None
        return row

    def subject(self, by: str) -> object:
        screen = self.app.screen
        assert isinstance(screen, View)
        row: dict[str, Any] | None = screen.subject()
        return None if row is None else row[by]

    async def row_is(self, **facts: object) -> None:
        """Until what the cursor is on is so, on the screen: keys are pressed on what a person sees."""
        await until(
            self.pilot,
            lambda: all(self.subject(name) == value for name, value in facts.items()),
            f"the row has {facts}",
        )

    async def nothing_here(self) -> None:
        await until(self.pilot, lambda: self.app.screen.query_one(Grid).row is None, "there are no rows")

    async def asked(self, key: str, *words: str, answer: str = "y") -> None:
        """Press it, read the question, answer it."""
        if key:
            await self.pilot.press(key)
        await self._dialog(Question, words)
        await until_seen(self.pilot, "y: yes   n: no")
        await self._leave(answer)

    async def says(self, key: str, text: str, *words: str) -> None:
        """Press it, and type the text that it asks for, without a look at the screen in between."""
        await self.writes(key, text)
        await self._dialog(Form, words)
        await self._leave("ctrl+d")

    async def writes(self, key: str, *texts: str) -> None:
        """Press it, and type into one field after the other, at once."""
        for number, text in enumerate(texts):
            for letter in (*((key,) if not number else ("tab",)), *text):
                name = "enter" if letter == "\n" else _character_to_key(letter) if len(letter) == 1 else letter
                self.app.post_message(events.Key(name, letter if len(letter) == 1 else None))

    async def together(self, *names: str) -> None:
        """Press all of them at once, without a look at the screen in between."""
        for name in names:
            self.app.post_message(events.Key(name, name if len(name) == 1 else None))

    async def form_says(self, *words: str) -> None:
        """The form stays, and has the reason on it."""
        await until_seen(self.pilot, *words)
        assert isinstance(self.app.screen, Form)

    async def refused(self, key: str, *words: str) -> None:
        """Press it: why not, and what to do, stays until it is closed."""
        if key:
            await self.pilot.press(key)
        await self._dialog(Refusal, words)
        await until_seen(self.pilot, "Esc: close")
        await self._leave("escape")

    async def told(self, *words: str) -> None:
        """What was done is told, and not refused."""

        def is_told() -> bool:
            assert not isinstance(self.app.screen, Refusal), self._words()
            return any(all(word in message for word in words) for message in self.app.messages)

        await until(self.pilot, is_told, f"{words} is told")

    async def _dialog(self, kind: type[D], words: tuple[str, ...]) -> None:
        def there() -> bool:
            screen = self.app.screen
            return isinstance(screen, kind) and all(word in getattr(screen, "words", "") for word in words)

        await until(self.pilot, there, f"a {kind.__name__} with {words}; there is {self._words()}")

    def _words(self) -> str:
        return f"{type(self.app.screen).__name__}: {getattr(self.app.screen, 'words', '')}"

    async def _leave(self, key: str) -> None:
        dialog = self.app.screen
        await self.pilot.press(key)
        await until(self.pilot, lambda: self.app.screen is not dialog, f"{key} closes the dialog")
