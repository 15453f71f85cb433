"""Questions before something that destroys, texts that an action needs, refusals with their remedy, and help."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static


class Dialog(ModalScreen[str | None]):
    """A box in the middle. It answers with a text, or with None when it was left by Escape."""

    DEFAULT_CSS = """
    Dialog { align: center middle; }
    Dialog > VerticalScroll {
        width: 90%; max-width: 100; height: auto; max-height: 90%; padding: 0 1; border: round $primary;
        background: $surface;
    }
    Dialog.-refusal > VerticalScroll { border: round $error; }
    Dialog Static { height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Back")]

    def action_leave(self) -> None:
        self.dismiss(None)


class Question(Dialog):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer", "Yes"),
        Binding("n,escape", "leave", "No"),
    ]

    def __init__(self, words: str) -> None:
        super().__init__()
        self.words = words

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(Text(self.words))
            yield Static(Text("y: yes   n: no", style="bold"))

    def action_answer(self) -> None:
        self.dismiss("yes")


class Asking(Dialog):
    """For a text; an empty one is an answer too."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self.words = words

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(Text(self.words))
            yield Input()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)


class Refusal(Dialog):
    """Stays until it is read: what was refused, why, and the next command."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,q", "leave", "Close")]

    def __init__(self, words: str) -> None:
        super().__init__(classes="-refusal")
        self.words = words

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(Text(self.words))
            yield Static(Text("Nothing was changed.   Esc: close", style="bold"))


class Help(Dialog):
    """Made of the bindings that hold where it was asked for."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q", "leave", "Close")]

    def __init__(self, title: str, keys: Iterable[tuple[str, str]]) -> None:
        super().__init__()
        self.title_words, self.keys = title, list(keys)

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(Text(self.title_words, style="bold"))
            for key, words in self.keys:
                yield Static(Text.assemble((f"{key:>12}  ", "bold"), words))
