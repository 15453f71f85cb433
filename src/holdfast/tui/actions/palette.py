"""The palette (Ctrl+P): everything that a key does here, found by its words. Made of the same bindings and actions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from rich.text import Text
from textual.command import CommandPalette, DiscoveryHit, Hit, Hits, Provider

from holdfast.tui.widgets.screen import View


class Palette(CommandPalette):
    def _action_command_list(self, action: str) -> None:
        """A key for a list that has no room, or none yet (ssh brings several keys at once), is for nothing: Textual
        would fail of it."""
        with contextlib.suppress(KeyError):
            super()._action_command_list(action)


class Doings(Provider):
    """What can be done on the screen below, to what its cursor is on."""

    async def discover(self) -> Hits:
        for title, words, run in self._found():
            yield DiscoveryHit(Text(title), run, text=title, help=words)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for title, words, run in self._found():
            score = max(matcher.match(title), 0.9 * matcher.match(words))
            if score > 0:
                yield Hit(score, Text(title), run, text=title, help=words)

    def _found(self) -> Iterator[tuple[str, str, Callable[[], Any]]]:
        """Title, what it does, and how; what makes sense now comes first. A dialog below has no commands: it waits for
        its own answer."""
        screen = self.screen
        if not isinstance(screen, View):
            return
        offered = {action.binding.action for action in screen.offered()}
        for line in sorted(screen.key_lines(), key=lambda line: line.bindings[0][1].action not in offered):
            if line.is_spoken_of:
                node, binding = line.bindings[0]
                title = f"{line.label}  ({' '.join(line.keys)})"
                yield title, line.words, partial(self.app.run_action, binding.action, node)
