"""What keys do. Each action is one api command on one subject; help, footer and palette are made of this table.

`do` runs in a thread of its own and returns what to tell; what it refuses it raises, with the reason and the remedy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from textual.binding import Binding

from holdfast.interfaces.tui import deeds

Row = dict[str, Any]


@dataclass(frozen=True)
class Action:
    name: str
    key: str
    label: str  # in the footer
    help: str  # in `?` and in the palette
    about: frozenset[str]  # subjects that it can be done to: task, worker, alert, schedule, workspace
    do: Callable[[str, Row], str]  # home, subject
    question: Callable[[Row], str] | None = None  # asked first, where it destroys or cannot be taken back
    asks: str = ""  # a text that the action needs first; given as subject["answer"], empty if it may be
    in_terminal: bool = False  # needs the terminal for itself (a shell): the app steps aside

    @property
    def binding(self) -> Binding:
        return Binding(self.key, f"act('{self.name}')", self.label, tooltip=self.help)


def _about(*subjects: str) -> frozenset[str]:
    return frozenset(subjects)


ACTIONS: dict[str, Action] = {
    action.name: action
    for action in (
        Action("pause", "p", "Pause", "hold the task; its workspace and session stay", _about("task"), deeds.pause),
        Action("resume", "u", "Resume", "let a paused task go on now", _about("task"), deeds.resume),
        Action(
            "cancel",
            "c",
            "Cancel",
            "end the task; its work is saved",
            _about("task"),
            deeds.cancel,
            question=lambda task: f"Cancel task {task['id']}? Its agent is ended; its work is saved.",
        ),
        Action(
            "retry",
            "r",
            "Retry",
            "queue a failed or cancelled task again, where it stopped",
            _about("task"),
            deeds.retry,
        ),
        Action(
            "up",
            "U",
            "Start a supervisor",
            "start a supervisor in the background, where none is running",
            _about("home"),
            deeds.start_supervisor,
        ),
        Action("ack", "a", "Acknowledge", "say that you have seen the alert", _about("alert"), deeds.ack),
        Action(
            "restart",
            "r",
            "Restart",
            "let a stopped or benched worker work again",
            _about("worker"),
            deeds.restart_worker,
        ),
    )
}


def about(subject: str) -> list[Action]:
    return [action for action in ACTIONS.values() if subject in action.about]
