"""The filter bar: a line to type a filter or a search into. `/` opens it, and every letter narrows the list.

Enter keeps the filter, Escape drops it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Input

if TYPE_CHECKING:
    from holdfast.tui.app import Top


class FilterBar(Input, can_focus=False):  # focusable only while open: a new screen must not type its keys in here
    DEFAULT_CSS = """
    FilterBar { display: none; height: 1; border: none; padding: 0; background: $boost; }
    FilterBar.-shown { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "drop", "No filter", show=False),
        Binding("down", "leave", "To the list", show=False),
    ]

    class Filtered(Message):
        """The message that the text of the filter has changed."""

        def __init__(self, words: str) -> None:
            super().__init__()
            self.words = words

    class Left(Message):
        """The message that the user left the filter bar: keys go to the list again."""

    def __init__(self, placeholder: str = "words that have to be there; !word: must not") -> None:
        super().__init__(placeholder=placeholder, compact=True, select_on_focus=False)

    def open(self) -> None:
        """Open the bar and take the focus at once.

        The binding of `/` has priority, so every letter typed after `/` arrives here, however fast the user types.
        On the list the same letters would pause or end a task.
        """
        if self.screen.focused is self:
            # The bar is open already: this slash is part of the filter. Queued, it comes after the letters before it.
            self._forward_event(events.Key("slash", "/"))
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


class SearchBar(FilterBar):
    """A filter bar over a text. Keys that come in one packet with Enter or Escape are for the text, and are held until
    the bar is left. In a list they would act on a row before the filter is in force."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "finish", "Keep", show=False, priority=True),
        Binding("escape", "finish(True)", "Drop", show=False, priority=True),
    ]

    class Finished(Message):
        """The message that Enter or Escape was pressed. It comes after the letters that were typed before."""

        def __init__(self, *, is_dropped: bool) -> None:
            super().__init__()
            self.is_dropped = is_dropped

    def action_finish(self, is_dropped: bool = False) -> None:
        cast("Top", self.app).hold_keys()
        self.post_message(self.Finished(is_dropped=is_dropped))

    async def on_search_bar_finished(self, event: Finished) -> None:
        event.stop()
        if event.is_dropped:
            self.action_drop()
        else:
            await self.action_submit()
