"""The base of all screens: the status line on top, the banner below it, the tabs, and the keys at the bottom."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.css.query import NoMatches
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widgets import Input

from holdfast.base.text import clean_text, one_line
from holdfast.tui.actions.table import ACTIONS, ANYWHERE, Action, about
from holdfast.tui.feed import Watch
from holdfast.tui.widgets import key_bar
from holdfast.tui.widgets.alert_banner import Banner
from holdfast.tui.widgets.dialogs import CopyChoice, CopyQuestion, Help
from holdfast.tui.widgets.grid import Grid
from holdfast.tui.widgets.key_bar import MessageLine
from holdfast.tui.widgets.status import Status
from holdfast.tui.widgets.tabs import Tabs

if TYPE_CHECKING:
    from holdfast.tui.app import Top

_HIDDEN_ACTIONS = {  # Textual's own actions, which do nothing here and are not listed in help
    *(
        "scroll_left",
        "scroll_right",
        "page_left",
        "page_right",
        "scroll_up",
        "scroll_down",
        "scroll_home",
        "scroll_end",
    ),
    *("app.focus_next", "app.focus_previous", "screen.copy_text"),
}
DIFF = Binding("d", "diff", "Diff", tooltip="what the task changed so far")
# Subjects that have a task. A screen with a diff page of its own binds that key itself.
_WITH_TASK = {"task", "worker", "alert", "workspace"}


@dataclass
class KeyHelp:
    """The help about one action: its keys, its words and its bindings."""

    label: str
    words: str
    group: str
    keys: list[str] = field(default_factory=list)
    bindings: list[tuple[DOMNode, Binding]] = field(default_factory=list)
    is_spoken_of: bool = True  # True: the palette lists the action. Moving the cursor is not listed

    @property
    def text(self) -> str:
        return f"{self.label}: {self.words}" if self.words else self.label


class View(Screen[None]):
    """Base of every screen. A subclass defines its subject (`ABOUT`), its watches, and the row with the cursor."""

    ABOUT: ClassVar[str] = ""  # the subject of its actions
    NAME: ClassVar[str] = ""  # in help, palette and header
    DEFAULT_CSS = """
    View.-roomy > Tabs { display: block; }
    """
    VERTICAL_BREAKPOINTS = [(0, "-short"), (18, "-tall"), (20, "-roomy")]  # noqa: RUF012 - as Textual declares it
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "keys", "Help", key_display="?", tooltip="what every key does here"),
        Binding("C", "copy", "Copy", show=False, tooltip="copy the id, the branch, the prompt or a line"),
    ]

    def __init_subclass__(cls, **more: Any) -> None:
        """Put the keys of the screen's actions in front of its own keys."""
        own = cls.__dict__.get("BINDINGS", ())
        has_diff = cls.ABOUT in _WITH_TASK and not any(isinstance(key, Binding) and key.key == DIFF.key for key in own)
        cls.BINDINGS = [*(action.binding for action in about(cls.ABOUT)), *((DIFF,) if has_diff else ()), *own]
        super().__init_subclass__(**more)

    def __init__(self) -> None:
        super().__init__()
        self._watches = tuple(self.watches())

    @property
    def top(self) -> Top:
        from holdfast.tui.app import Top

        return cast(Top, self.app)

    def compose(self) -> ComposeResult:
        yield Status()
        yield Banner()
        yield Tabs(tuple(self.top.MODES))
        yield from self.body()
        yield MessageLine()
        yield key_bar.KeyLine()

    def body(self) -> ComposeResult:
        raise NotImplementedError

    def watches(self) -> Iterable[Watch]:
        """Return the watches that are read while this screen is on top."""
        return ()

    def subject(self) -> Any:
        """Return the row that actions are about, a read model of any kind. None means that there is no row."""
        return None

    def on_mount(self) -> None:
        self.bindings_updated_signal.subscribe(self, lambda _screen: self.show_keys())
        self.top.show_frame()

    def on_screen_resume(self) -> None:
        self.top.feed.attach(self._watches)
        self.top.show_frame()
        self.show_keys()

    def on_screen_suspend(self) -> None:
        self.top.feed.detach(self._watches)

    def on_unmount(self) -> None:
        self.top.feed.detach(self._watches)

    # -- keys ----------------------------------------------------------------------------------------------------------

    def on_grid_moved(self, _message: Grid.Moved) -> None:
        self.show_keys()

    def show_keys(self) -> None:
        """Show the keys that fit the current state of the row with the cursor."""
        try:
            line, offered = self.query_one(key_bar.KeyLine), self.offered()
        except NoMatches:  # the screen is not composed yet, or is being removed
            return
        more = key_bar.list_other_keys(self.active_bindings.values())
        if self._task_under_cursor() is None:
            more = [key for key in more if key[0] != DIFF.key]
        line.show((*((action.key, action.key, action.label) for action in offered), *more))

    def marked(self) -> Sequence[Any]:
        """Return the marked rows. An action that works on many rows takes them in place of the row with the cursor."""
        return ()

    def unmark(self) -> None:
        """Drop the marks: an action was carried out on the marked rows."""

    def offered(self) -> list[Action]:
        """Return the actions that make sense for the row with the cursor, or for one of the marked rows.

        Other keys work too, and show a refusal.
        """
        row, marked = self.subject(), self.marked()
        rows = marked or ([] if row is None else [row])
        return [
            action
            for action in about(self.ABOUT)
            if (any(action.when(row) for row in rows) and (action.many or not marked))
            or (ANYWHERE in action.about and action.when({}))
        ]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return False while the user types into a line of this screen: a letter is not a command then."""
        return not (action == "act" and isinstance(self.focused, Input))

    def action_act(self, name: str) -> None:
        action, subject, marked = ACTIONS[name], self.subject(), self.marked()
        if marked and action.many:
            self.top.actions.act(action, marked, self.unmark)
        elif ANYWHERE in action.about:
            self.top.actions.act(action, [subject or {}])
        elif subject is None:
            self.notify("There is nothing under the cursor.", severity="warning")
        else:
            self.top.actions.act(action, [subject])

    def action_diff(self) -> None:
        task_id = self._task_under_cursor()
        if task_id is None:
            self.notify("There is no task under the cursor.", severity="warning")
        else:
            self.top.open_task(task_id, "diff")

    def copies(self) -> list[CopyChoice]:
        """Return what can be copied here: its key, its name, and its text."""
        row = self.subject() or {}
        workspace = row.get("workspace")
        path = workspace.get("path") if isinstance(workspace, dict) else row.get("path")
        found = {"i": ("id", row.get("id", row.get("name"))), "b": ("branch", row.get("branch"))}
        found |= {"t": ("task", row.get("task")), "w": ("workspace", path), "p": ("prompt", row.get("prompt"))}
        return [(key, name, str(text)) for key, (name, text) in found.items() if text]

    def action_copy(self) -> None:
        def copy(key: str | None) -> None:
            for choice, name, text in offered:
                if choice == key:
                    self.app.copy_to_clipboard(clean_text(text))
                    self.notify(f"Copied the {name}, where the terminal allows it (OSC 52): {one_line(text, 80)}")

        offered = self.copies()
        if offered:
            self.app.push_screen(CopyQuestion(offered), copy)
        else:
            self.notify("There is nothing to copy here.")

    def _task_under_cursor(self) -> str | None:
        row = self.subject() or {}
        return cast("str | None", row["task"] if "task" in row else row.get("id"))

    def key_lines(self) -> list[KeyHelp]:
        """Return everything that keys do on this screen, in the order of help. `?` and the palette show this."""
        found: dict[str, KeyHelp] = {}
        for node, binding, enabled, tooltip in self.active_bindings.values():
            if binding.system or not enabled or binding.action in _HIDDEN_ACTIONS:
                continue
            line = found.get(binding.action)
            if line is None:
                what = binding.tooltip or tooltip
                line = KeyHelp(label=binding.description, words=what, group=self._group_of(node, binding))
                line.is_spoken_of = (bool(what) or binding.show) and binding.action != "command_palette"
                found[binding.action] = line
            line.keys.append(self.app.get_key_display(binding))
            line.bindings.append((node, binding))
        return list(found.values())

    def _group_of(self, node: DOMNode, binding: Binding) -> str:
        if key_bar.is_action(binding.action):
            action = ACTIONS[binding.action.split("'")[1]]
            return "Everywhere" if ANYWHERE in action.about else f"This {self.ABOUT}"
        return "Everywhere" if isinstance(node, App) or binding.key == key_bar.HELP[0] else "This screen"

    def action_keys(self) -> None:
        lines = self.key_lines()
        groups = [
            (group, [(" ".join(line.keys), line.text) for line in lines if line.group == group])
            for group in dict.fromkeys((f"This {self.ABOUT}", "This screen", *(line.group for line in lines)))
        ]
        self.app.push_screen(Help(f"Keys: {self.NAME}", [(name, keys) for name, keys in groups if keys]))
