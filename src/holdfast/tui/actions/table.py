"""The table of actions. Each action is one api command on one subject.

Help, key line, palette and docs are made of this table. handlers.py has the functions that ask and act. runner.py runs
them. The same meaning has the same key on every screen: p pauses or stops, u continues, r restarts, a approves or
acknowledges, x removes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from textual.binding import Binding

from holdfast.base.dataclass import dataclass
from holdfast.tui.actions import forms, handlers
from holdfast.tui.actions.forms import FormSpec
from holdfast.tui.actions.handlers import ActionResult

Row = dict[str, Any]
ANYWHERE = "anywhere"  # the subject of actions on the whole home: they work on every screen, on any row


def _always(_row: Row) -> bool:
    return True


@dataclass(frozen=True)
class Action:
    """One row of the table: a key, its words, and the functions behind it."""

    name: str
    key: str
    label: str  # in the line of keys
    help: str  # in `?`, in the palette and in docs/reference/top.md; no brackets, which Textual reads as markup
    about: frozenset[str]  # the subjects: task, worker, alert, schedule, workspace, or ANYWHERE
    do: Callable[[str, Row], ActionResult]  # home, subject
    question: Callable[[str, Row], str | None] | None = None  # returns the question to ask first, or None
    form: Callable[[str, Sequence[Row]], FormSpec] | None = None  # its values are passed on with the subject
    many: bool = False  # works on marked rows, one by one, after one question
    in_terminal: bool = False  # needs the terminal (a shell): the app hands it over
    when: Callable[[Row], bool] = _always  # true: the line of keys has this action. Its key always acts or is refused

    @property
    def binding(self) -> Binding:
        # With priority, the form takes every letter typed after the key, however fast the user types.
        has_form = self.form is not None
        return Binding(self.key, f"act('{self.name}')", self.label, tooltip=self.help, priority=has_form)


def _about(*subjects: str) -> frozenset[str]:
    return frozenset(subjects)


def _task_is(*states: str) -> Callable[[Row], bool]:
    """Return a predicate: the row is a task in one of the states, or the workspace of such a task."""
    return lambda row: row.get("task_state", row.get("state")) in states


def _has_ended(row: Row) -> bool:
    return row.get("task_state", row.get("state")) in ("completed", "failed", "cancelled")


def _awaits_approval(row: Row) -> bool:
    return row.get("state") == "paused" and row.get("pause_reason") == "approval"


def _takes_messages(row: Row) -> bool:
    return not _awaits_approval(row)


def _has_unmerged_branch(row: Row) -> bool:
    return _has_ended(row) and bool(row.get("branch")) and not row.get("merged_into")


def _has_workspace(*states: str) -> Callable[[Row], bool]:
    """Return a predicate: the workspace of the row is in one of the states. The row is a task or a workspace."""

    def has(row: Row) -> bool:
        if "task_state" in row:
            return row.get("task") is not None and row["state"] in states
        found = row.get("workspace")
        return (found["state"] if isinstance(found, dict) else found) in states

    return has


def _worker_is(*states: str) -> Callable[[Row], bool]:
    return lambda row: row.get("state") in states


def _can_be_restarted(row: Row) -> bool:
    return row.get("task") is not None or str(row.get("key", "")).startswith(
        ("crash:worker:", "account:", "provider:", "mass-death")
    )


_TASKS = (
    Action(
        "approve", "a", "Approve", "approve the result of the task's last stage",
        _about("task"), handlers.approve, when=_awaits_approval, many=True,
    ),
    Action(
        "changes", "A", "Changes", "send the work back to its builder, with your text",
        _about("task"), handlers.ask_changes, form=forms.changes_form,
        when=_awaits_approval,
    ),
    Action(
        "pause", "p", "Pause", "end the task's agent for now, but keep its workspace and session",
        _about("task"), handlers.pause, when=_task_is("queued", "running"), many=True,
    ),
    Action(
        "resume", "u", "Resume", "let a paused task continue now",
        _about("task"), handlers.resume, when=_task_is("paused"), many=True,
    ),
    Action(
        "cancel", "c", "Cancel", "end the task; its work is saved",
        _about("task"), handlers.cancel, question=handlers.confirm_cancel, when=_task_is("queued", "running", "paused"),
        many=True,
    ),
    Action(
        "retry", "r", "Retry", "queue an ended task again, from where it stopped",
        _about("task"), handlers.retry, when=_task_is("failed", "cancelled"), many=True,
    ),
    Action(
        "send", "T", "Send", "send a message, which the task's agent gets at the end of its turn",
        _about("task"), handlers.send, form=forms.message_form, when=_takes_messages, many=True,
    ),
    Action(
        "retry_fresh", "R", "Retry fresh", "queue an ended task again, from its base",
        _about("task"), handlers.retry_fresh, question=handlers.confirm_retry_fresh,
        when=_task_is("failed", "cancelled"), many=True,
    ),
    Action(
        "merge", "m", "Merge", "merge the task's work into the branch that the task started from",
        _about("task", "workspace"), handlers.merge, question=handlers.confirm_merge, when=_has_unmerged_branch,
        many=True,
    ),
    Action(
        "pr", "P", "Pull request", "push the task's branch, and open a pull request with `gh`",
        _about("task"), handlers.open_pull_request, question=handlers.confirm_pull_request, in_terminal=True,
        when=_has_unmerged_branch,
    ),
    Action(
        "shell", "w", "Shell", "open a shell in the task's workspace, which is kept while the shell is open",
        _about("task", "workspace"), handlers.shell, question=handlers.check_shell, in_terminal=True,
        when=_has_workspace("ready", "preserved"),
    ),
    Action(
        "clean", "x", "Clean", "drop the task's preserved workspace, after it is salvaged",
        _about("task", "workspace"), handlers.clean, question=handlers.confirm_clean, when=_has_workspace("preserved"),
        many=True,
    ),
    Action(
        "keep", "K", "Keep", "keep the task's workspace until you drop it",
        _about("task", "workspace"), handlers.keep, when=_has_workspace("intended", "ready", "preserved"),
        many=True,
    ),
)  # fmt: skip
_WORKERS = (
    Action(
        "restart", "r", "Restart", "restart a stopped or benched worker, and clear its crash count",
        _about("worker"), handlers.restart_worker, when=_worker_is("stopped", "benched", "stopping"),
    ),
    Action(
        "stop", "p", "Stop", "let the worker finish its task, then take no more",
        _about("worker"), handlers.stop_worker, question=handlers.confirm_stop_worker,
        when=_worker_is("working", "waiting", "benched", "new"),
    ),
    Action(
        "start", "u", "Start", "let a stopped worker take tasks again",
        _about("worker"), handlers.start_worker, when=_worker_is("stopped", "stopping"),
    ),
    Action(
        "stop_now", "c", "Stop now", "stop the worker at once; its task stays queued",
        _about("worker"), handlers.stop_worker_now, question=handlers.confirm_stop_worker_now,
        when=_worker_is("working", "stopping"),
    ),
)  # fmt: skip
_ALERTS = (
    Action(
        "ack", "a", "Acknowledge", "mark the alert as seen",
        _about("alert"), handlers.ack, when=lambda row: row.get("acked_at") is None,
    ),
    Action(
        "ack_all", "A", "Acknowledge all", "acknowledge every open alert",
        _about("alert"), handlers.ack_all, question=handlers.confirm_ack_all,
    ),
    Action(
        "mend", "r", "Restart", "carry out the remedy: restart the worker or task, open the account, end the hold",
        _about("alert"), handlers.restart_cause, when=_can_be_restarted,
    ),
)  # fmt: skip
_SCHEDULES = (
    Action(
        "fire", "f", "Fire", "queue the schedule's task now, out of turn",
        _about("schedule"), handlers.fire, question=handlers.confirm_fire,
    ),
    Action(
        "disable", "p", "Disable", "stop the schedule from firing, whatever its file says",
        _about("schedule"), handlers.disable, when=lambda row: bool(row.get("enabled", True)),
    ),
    Action(
        "enable", "u", "Enable", "let the schedule fire again, from now on",
        _about("schedule"), handlers.enable, when=lambda row: not row.get("enabled", False),
    ),
)  # fmt: skip
_EVERYWHERE = (
    Action(
        "add", "+", "New task", "add a task: its prompt, agent, gate and permission",
        _about(ANYWHERE), handlers.add_task, form=forms.new_task_form,
    ),
    Action(
        "up", "U", "Start a supervisor", "start a supervisor in the background, if none is running",
        _about(ANYWHERE), handlers.start_supervisor, when=lambda _row: False,
    ),
    Action(
        "release", "L", "Release", "release all holds (`holdfast dispatch` lists them)",
        _about(ANYWHERE), handlers.release, when=lambda _row: False,
    ),
)  # fmt: skip
ACTIONS: dict[str, Action] = {
    action.name: action for action in (*_TASKS, *_WORKERS, *_ALERTS, *_SCHEDULES, *_EVERYWHERE)
}


def about(subject: str) -> list[Action]:
    """Return the actions for the subject, and the actions for the whole home."""
    return [action for action in ACTIONS.values() if {subject, ANYWHERE} & action.about]
