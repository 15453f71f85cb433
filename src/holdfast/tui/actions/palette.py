"""The palette (Ctrl+P), in which the user finds an action by its words. It has the same bindings and actions as the
keys."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from rich.text import Text
from textual.command import CommandPalette, DiscoveryHit, Hit, Hits, Provider

from holdfast.tui.widgets.screen import View


class Palette(CommandPalette):
    """Textual's palette, which here does not fail on keys that arrive before its list is drawn."""

    def _action_command_list(self, action: str) -> None:
        """Ignore a key for a list that is not drawn yet: Textual would fail. Over ssh several keys arrive at once."""
        with contextlib.suppress(KeyError):
            super()._action_command_list(action)


class ActionProvider(Provider):
    """The commands of the palette: all actions of the screen below it, on the row under the cursor."""

    async def discover(self) -> Hits:
        for title, text, run in self._find():
            yield DiscoveryHit(Text(title), run, text=title, help=text)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for title, text, run in self._find():
            score = max(matcher.match(title), 0.9 * matcher.match(text))
            if score > 0:
                yield Hit(score, Text(title), run, text=title, help=text)

    def _find(self) -> Iterator[tuple[str, str, Callable[[], Any]]]:
        """Yield title, help and function of each action. Actions that make sense now come first.

        A dialog has no commands.
        """
        screen = self.screen
        if not isinstance(screen, View):
            return
        offered = {action.binding.action for action in screen.offered()}
        for line in sorted(screen.key_lines(), key=lambda line: line.bindings[0][1].action not in offered):
            if line.is_spoken_of:
                node, binding = line.bindings[0]
                title = f"{line.label}  ({' '.join(line.keys)})"
                yield title, line.words, partial(self.app.run_action, binding.action, node)
