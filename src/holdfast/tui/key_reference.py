"""The list of keys for docs/reference/top.md, made from the same bindings that the screens use."""

from __future__ import annotations

from collections.abc import Iterable

from textual.binding import Binding, BindingType

from holdfast.tui.actions.table import ACTIONS, ANYWHERE, about
from holdfast.tui.app import VIEWS, Top
from holdfast.tui.screens.task.screen import TaskView
from holdfast.tui.widgets.grid import Grid
from holdfast.tui.widgets.key_bar import is_action
from holdfast.tui.widgets.screen import View

Line = tuple[str, str, str]  # keys, label, what it does
_NAMES = {"question_mark": "?", "slash": "/", "escape": "Esc", "enter": "Enter", "up": "↑", "down": "↓"}


def list_keys() -> list[tuple[str, list[Line]]]:
    """Return title and keys of every screen, of tables, and of the keys that work everywhere."""
    found = []
    for number, (name, view) in enumerate(VIEWS.items(), 1):
        found.append((f"{number}: {name}", _keys_of_screen(view)))
    found.append(("A task", _keys_of_screen(TaskView)))
    found.append(("Tables", _lines(Grid.BINDINGS)))
    everywhere = [action.binding for action in ACTIONS.values() if ANYWHERE in action.about]
    palette = Binding("ctrl+p", "command_palette", "Palette", tooltip="search the actions by name")
    found.append(("Everywhere", _lines([*everywhere, *View.BINDINGS, *Top.BINDINGS, palette])))
    return found


def _keys_of_screen(view: type[View]) -> list[Line]:
    mine = [action.binding for action in about(view.ABOUT) if ANYWHERE not in action.about]
    own = [binding for binding in make_bindings(view.BINDINGS) if not is_action(binding.action)]
    return _lines([*mine, *own])


def _lines(bindings: Iterable[BindingType]) -> list[Line]:
    return [
        (
            " ".join(show_key(key) for key in binding.key.split(",")),
            binding.description,
            binding.tooltip,
        )
        for binding in make_bindings(bindings)
    ]


def make_bindings(bindings: Iterable[BindingType]) -> list[Binding]:
    return [
        binding if isinstance(binding, Binding) else Binding(binding[0], binding[1], *binding[2:])
        for binding in bindings
    ]


def show_key(key: str) -> str:
    return _NAMES.get(key.strip(), key.strip())
