"""What all screens have: the line about the supervisor on top, the critical alert below it, the keys at the bottom."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Footer

from holdfast.interfaces.tui.actions import ACTIONS, about
from holdfast.interfaces.tui.banner import Banner
from holdfast.interfaces.tui.dialogs import Help
from holdfast.interfaces.tui.feed import Watch
from holdfast.interfaces.tui.status import Status

if TYPE_CHECKING:
    from holdfast.interfaces.tui.app import Top

Row = dict[str, Any]


class View(Screen[None]):
    """Base of every screen. A subclass says what it is about, what it reads, and what its cursor is on."""

    ABOUT: ClassVar[str] = ""  # the subject of its actions
    NAME: ClassVar[str] = ""  # in help, palette and header
    BINDINGS: ClassVar[list[BindingType]] = [Binding("question_mark", "keys", "Help", key_display="?")]

    def __init_subclass__(cls, **more: Any) -> None:
        """The keys of its actions, before its own."""
        cls.BINDINGS = [*(action.binding for action in about(cls.ABOUT)), *cls.__dict__.get("BINDINGS", ())]
        super().__init_subclass__(**more)

    def __init__(self) -> None:
        super().__init__()
        self._watches = tuple(self.watches())

    @property
    def top(self) -> Top:
        from holdfast.interfaces.tui.app import Top

        return cast(Top, self.app)

    def compose(self) -> ComposeResult:
        yield Status()
        yield Banner()
        yield from self.body()
        yield Footer(compact=True, show_command_palette=False)

    def body(self) -> ComposeResult:
        raise NotImplementedError

    def watches(self) -> Iterable[Watch]:
        """What is read while this screen is on top."""
        return ()

    def subject(self) -> Row | None:
        """What its actions are done to."""
        return None

    def on_mount(self) -> None:
        self.top.show_frame()

    def on_screen_resume(self) -> None:
        self.top.feed.attach(self._watches)
        self.top.show_frame()

    def on_screen_suspend(self) -> None:
        self.top.feed.detach(self._watches)

    def on_unmount(self) -> None:
        self.top.feed.detach(self._watches)

    def action_act(self, name: str) -> None:
        subject = self.subject()
        if subject is None:
            self.notify("There is nothing under the cursor.", severity="warning")
        else:
            self.top.act(ACTIONS[name], subject)

    def action_keys(self) -> None:
        keys: dict[str, str] = {}
        for _node, binding, _enabled, tooltip in self.active_bindings.values():
            key = self.app.get_key_display(binding)
            keys.setdefault(key, binding.tooltip or tooltip or binding.description)
        self.app.push_screen(Help(f"Keys: {self.NAME}", keys.items()))
