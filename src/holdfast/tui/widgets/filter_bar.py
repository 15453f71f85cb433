"""A line to type a filter into: opened by `/`, it narrows a list with every letter. Enter keeps it, Escape drops it."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Input


class FilterBar(Input, can_focus=False):  # only while it is open: a screen must not begin with its keys typed here
    DEFAULT_CSS = """
    FilterBar { display: none; height: 1; border: none; padding: 0; background: $boost; }
    FilterBar.-shown { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "drop", "No filter", show=False),
        Binding("down", "leave", "To the list", show=False),
    ]

    class Filtered(Message):
        """What is typed has changed."""

        def __init__(self, words: str) -> None:
            super().__init__()
            self.words = words

    class Left(Message):
        """The keys belong to the list again."""

    def __init__(self) -> None:
        super().__init__(
            placeholder="words that have to be there; !word: must not", compact=True, select_on_focus=False
        )

    def open(self) -> None:
        """At once, and by a key that comes before all others: what is typed behind it belongs here, however fast it
        comes. On the list the same letters would pause or end something."""
        if self.screen.focused is self:
            self._forward_event(events.Key("slash", "/"))  # behind what was typed before it
            return
        self.add_class("-shown")
        self.can_focus = True
        self.screen.set_focus(self)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Filtered(event.value.strip()))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_leave()

    def action_leave(self) -> None:
        self.set_class(bool(self.value.strip()), "-shown")
        self.can_focus = False
        self.post_message(self.Left())

    def action_drop(self) -> None:
        self.value = ""
        self.action_leave()
