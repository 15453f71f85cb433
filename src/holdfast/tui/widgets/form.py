"""A form: fields to type into, before an action is carried out. Errors are shown in the form, which then stays open.

A long field takes several lines, so Enter does not end it: a text that is pasted line by line is not sent half. What
was typed into a form that the user left is there again when the same form is opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input, Static, TextArea

from holdfast.tui.actions.forms import FormSpec
from holdfast.tui.widgets.dialogs import Dialog, make_text

if TYPE_CHECKING:
    from holdfast.tui.app import Top


class Form(Dialog):
    """A form as a dialog. `submit` gets the values by the names of their fields. `describe` returns the words for an
    error.

    `submission` is the running or finished call of `submit`, or None if the user left the form without it.
    """

    AUTO_FOCUS = ".field"
    DEFAULT_CSS = """
    Form .label { text-style: dim; }
    Form #problem { display: none; text-style: bold; color: $text-error; }
    Form #problem.-shown { display: block; }
    Form .field { border: none; padding: 0; width: 100%; background: $boost; }
    Form TextArea.field { height: auto; min-height: 3; max-height: 8; }
    Form .field:focus { background: $panel; }
    Form .field:ansi { text-style: underline; }
    """
    # With priority, a key takes effect before the letter that follows it.
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+d", "submit", "Done", priority=True),
        Binding("tab", "app.focus_next", "Next field", priority=True),
        Binding("shift+tab", "app.focus_previous", "Field before", priority=True),
        Binding("escape", "leave", "Leave", priority=True),
    ]

    def __init__(
        self, spec: FormSpec, submit: Callable[[dict[str, str]], Awaitable[Any]], describe: Callable[[Exception], str]
    ) -> None:
        super().__init__()
        self.spec, self._submit, self._describe = spec, submit, describe
        self.words = "\n".join((spec.title, *(field.label for field in spec.fields)))
        self.keys = f"Ctrl+D: {spec.verb}   {'Tab: next   ' if len(spec.fields) > 1 else ''}Esc: leave"
        self.submission: asyncio.Task[Any] | None = None
        self._is_left = self._is_sent = False

    @property
    def _top(self) -> Top:
        return cast("Top", self.app)

    def body(self) -> ComposeResult:
        yield Static(make_text(self.spec.title, "bold"))
        yield Static(id="problem", markup=False)
        draft = self._top.drafts.get(self.spec.title, {})
        for field in self.spec.fields:
            yield Static(make_text(field.label), classes="label")
            value = draft.get(field.name, field.value)
            if field.is_long:
                made = TextArea(value, id=field.name, classes="field", compact=True, highlight_cursor_line=False)
                made.move_cursor(made.document.end)
                yield made
            else:
                yield Input(value, id=field.name, classes="field", compact=True, select_on_focus=False)

    def on_mount(self) -> None:
        super().on_mount()
        self._top.post_message(self._top.FormReady())

    def _collect(self, then: Callable[[dict[str, str]], None]) -> None:
        """Call `then` with the values of all fields, after every field has taken the letters typed so far."""
        fields, values = sorted(self.query(".field"), key=lambda field: field is not self.focused), dict[str, str]()

        def take(at: int) -> None:
            if at == len(fields):
                then(values)
            else:
                fields[at].call_later(taken, at)

        def taken(at: int) -> None:
            field = fields[at]
            values[str(field.id)] = field.text if isinstance(field, TextArea) else cast(Input, field).value
            take(at + 1)

        take(0)

    # -- leaving and sending -------------------------------------------------------------------------------------------

    def on_input_submitted(self, _event: Input.Submitted) -> None:
        self.action_submit()

    def action_leave(self) -> None:
        self._collect(self._leave)

    def _leave(self, values: dict[str, str]) -> None:
        if self._is_left:
            return
        if self.submission is None:
            self._top.drafts[self.spec.title] = values
        self._is_left = True
        self.dismiss(None)

    def on_screen_resume(self) -> None:
        if self._is_sent and not self._is_left:  # another dialog was above this form when its action was done
            self._leave({})

    def action_submit(self) -> None:
        self._collect(self._begin)

    def _begin(self, values: dict[str, str]) -> None:
        if self.submission is None:
            self.say("…")
            self.submission = asyncio.create_task(self._send(values))

    async def _send(self, values: dict[str, str]) -> Any:
        """Return the result of `submit`. An error is shown here, or raised if the user has left the form."""
        self._top.drafts[self.spec.title] = values
        try:
            result = await self._submit(values)
        except Exception as error:
            if self._is_left:
                raise
            self.submission = None
            self.say(self._describe(error))
            return ""
        self._top.drafts.pop(self.spec.title, None)
        self._is_sent = True
        if self.is_current:
            self._leave({})
        return result

    def say(self, words: str) -> None:
        """Show the words above the fields."""
        problem = self.query_one("#problem", Static)
        problem.set_class(bool(words), "-shown")
        problem.update(make_text(words))
        problem.scroll_visible(animate=False)
