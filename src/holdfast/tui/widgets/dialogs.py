"""Dialogs: questions before a destructive action, refusals with their remedy, and help.

The text of a dialog may quote anything: a prompt, a path, output of git. It is cleaned, cut, and never read as markup.
Critical alerts stay visible above a dialog.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from rich.table import Table
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from holdfast.base.text import clean_text, one_line
from holdfast.tui.widgets.alert_banner import Banner

if TYPE_CHECKING:
    from holdfast.tui.app import Top

LONGEST = 8000  # characters of a dialog's text: a megabyte of git output is of no use on a screen


def make_text(words: str, style: str = "") -> Text:
    flat = clean_text(words).expandtabs(4)
    return Text(flat if len(flat) <= LONGEST else flat[:LONGEST] + " …", style=style)


class Dialog(ModalScreen[str | None]):
    """A box in the middle of the screen. Its result is a text, or None if the user pressed Escape."""

    DEFAULT_CSS = """
    Dialog { align: center middle; }
    Dialog > VerticalScroll {
        width: 100%; max-width: 100; height: auto; max-height: 100%; padding: 0 1; border: round $primary;
        background: $surface; border-subtitle-align: left; border-subtitle-style: bold; border-subtitle-color: $text;
    }
    Dialog.-refusal > VerticalScroll { border: round $error; }
    Dialog Static { height: auto; }
    Dialog > Banner { dock: top; margin: 1 0 0 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Back")]
    keys = ""  # the keys that answer; shown on the frame, where they stay visible however long the text is

    def compose(self) -> ComposeResult:
        yield Banner()
        with VerticalScroll() as box:
            box.border_subtitle = self.keys
            yield from self.body()

    def body(self) -> ComposeResult:
        raise NotImplementedError

    def on_mount(self) -> None:
        cast("Top", self.app).show_frame()  # shows an alert that is open already

    def action_leave(self) -> None:
        self.dismiss(None)


class Question(Dialog):
    """A question with yes or no. Only `y` means yes: one key too many must not destroy anything."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer", "Yes"),
        Binding("n,escape", "leave", "No"),
    ]
    keys = "y: yes   n: no"

    def __init__(self, words: str) -> None:
        super().__init__()
        self.words = words

    def body(self) -> ComposeResult:
        yield Static(make_text(self.words))

    def action_answer(self) -> None:
        self.dismiss("yes")


CopyChoice = tuple[str, str, str]  # a key, the name of a text, the text


class CopyQuestion(Dialog):
    """The question which text to copy. Its result is the key of the text."""

    keys = "a letter copies   Esc: leave"

    def __init__(self, choices: Sequence[CopyChoice]) -> None:
        super().__init__()
        self.choices = choices

    def body(self) -> ComposeResult:
        lines = [f"{key}  {name:<9}  {one_line(text, 60)}" for key, name, text in self.choices]
        yield Static(make_text("\n".join(("Copy:", *lines))))

    def on_key(self, event: events.Key) -> None:
        if any(event.key == key for key, _name, _text in self.choices):
            event.stop()
            self.dismiss(event.key)


class Refusal(Dialog):
    """A refusal: what was refused, why, and the next command. It stays until the user closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,q", "leave", "Close")]

    def __init__(self, words: str, *, is_unchanged: bool = True) -> None:
        super().__init__(classes="-refusal")
        self.words = words
        says_so = "nothing was changed" in words.lower()
        self.keys = "Esc: close" if says_so or not is_unchanged else "Nothing was changed.   Esc: close"

    def body(self) -> ComposeResult:
        yield Static(make_text(self.words))


Keys = Sequence[tuple[str, str]]  # keys, and what they do


class Help(Dialog):
    """The help dialog: the bindings of the screen that it was opened on, in groups."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q,enter", "leave", "Close")]

    def __init__(self, title: str, groups: Sequence[tuple[str, Keys]]) -> None:
        super().__init__()
        self.title_words, self.groups = title, groups

    def body(self) -> ComposeResult:
        yield Static(Text(f"{self.title_words}   (↑ ↓ scroll, Esc closes)", style="bold"))
        for name, lines in self.groups:
            yield Static(Text(name, style="bold underline"))
            table = Table.grid(padding=(0, 1, 0, 0))
            table.add_column(justify="right", style="bold", min_width=8, no_wrap=True)
            table.add_column()
            for keys, words in lines:
                table.add_row(Text(keys), Text(words))
            yield Static(table)
