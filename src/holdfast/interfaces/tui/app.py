"""`holdfast top`: the screens, the feed that keeps them true, and the one place where actions are carried out."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.worker import Worker, WorkerFailed, WorkerState

from holdfast.errors import HoldfastError
from holdfast.interfaces.tui import colours
from holdfast.interfaces.tui.actions import Action
from holdfast.interfaces.tui.banner import Banner, read_critical
from holdfast.interfaces.tui.dialogs import Asking, Dialog, Question, Refusal
from holdfast.interfaces.tui.feed import Feed, Trouble, Watch
from holdfast.interfaces.tui.frame import View
from holdfast.interfaces.tui.leaving import Leaving
from holdfast.interfaces.tui.status import EVERY, Status, read_status
from holdfast.interfaces.tui.views.alerts import AlertsView
from holdfast.interfaces.tui.views.fleet import FleetView
from holdfast.interfaces.tui.views.schedules import SchedulesView
from holdfast.interfaces.tui.views.task import TaskView
from holdfast.interfaces.tui.views.workers import WorkersView
from holdfast.interfaces.tui.views.workspaces import WorkspacesView

Row = dict[str, Any]
LOOK_FOR_TERMINAL = 5.0  # seconds
VIEWS: dict[str, type[View]] = {
    "fleet": FleetView,
    "workers": WorkersView,
    "alerts": AlertsView,
    "schedules": SchedulesView,
    "workspaces": WorkspacesView,
}


class Top(App[None]):
    TITLE = "holdfast"
    CSS = colours.CSS
    ENABLE_COMMAND_PALETTE = True
    MODES: ClassVar[dict[str, Any]] = dict(VIEWS)
    DEFAULT_MODE = "fleet"
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(str(number), f"switch_mode('{name}')", name.capitalize(), show=False, tooltip=f"the {name} screen")
            for number, name in enumerate(VIEWS, 1)
        ),
        Binding("q", "quit", "Quit", priority=False),
        Binding("ctrl+c", "interrupt", "Quit", show=False, priority=True, tooltip="leave, from everywhere"),
        Binding("ctrl+z", "suspend_process", "Stop", show=False, priority=True, tooltip="to the shell; `fg` returns"),
        Binding("ctrl+l", "redraw", "Redraw", show=False, tooltip="draw the screen anew"),
    ]

    class Read(Message):
        """The feed has read what a watch asks for."""

        def __init__(self, watch: Watch, value: Any) -> None:
            super().__init__()
            self.watch, self.value = watch, value

    class Told(Message):
        """The store cannot be read, or can be again."""

        def __init__(self, trouble: Trouble | None) -> None:
            super().__init__()
            self.trouble = trouble

    def __init__(self, home: str, *, bell: bool = False) -> None:
        few = colours.are_few()
        super().__init__(ansi_color=True if few else None)
        if few:
            self.theme = colours.FEW
        self.home, self.rings = home, bell
        self.leaving = Leaving(lambda code: self.exit(return_code=code))
        self.status: Row | None = None
        self.critical: list[Row] = []
        self.trouble: Trouble | None = None
        self._rung: set[int] = set()  # alerts that the bell was rung for: once per episode
        self.feed = Feed(
            home,
            lambda watch, value: self._pass_on(self.Read(watch, value)),
            lambda trouble: self._pass_on(self.Told(trouble)),
        )

    def _pass_on(self, message: Message) -> None:
        """From the feed's thread; Textual's post_message is made for that."""
        self.post_message(message)

    def on_load(self) -> None:
        self.leaving.attach()

    def on_mount(self) -> None:
        self.feed.attach(
            (
                Watch("status", read_status, self._seen_status, every=EVERY),
                Watch("critical", read_critical, self._seen_critical),
            )
        )
        self.feed.start()
        self.app_resume_signal.subscribe(self, lambda _app: self.action_redraw())  # after Ctrl+Z and `fg`
        if not self.is_headless:
            self.set_interval(LOOK_FOR_TERMINAL, self._look_for_terminal)

    def _look_for_terminal(self) -> None:
        """Gone without a signal (`nohup`, a session of its own): nobody is there to show anything to."""
        if not self.leaving.has_terminal():
            self.leaving.leave(1)

    def action_redraw(self) -> None:
        self.refresh(layout=True)

    def action_interrupt(self) -> None:
        self.exit(return_code=130)

    def on_unmount(self) -> None:
        self.feed.stop()

    # -- what the feed brings ------------------------------------------------------------------------------------------

    def on_top_read(self, message: Read) -> None:
        message.watch.in_hand = False
        if self.feed.has(message.watch):  # its screen may be gone meanwhile
            message.watch.deliver(message.value)

    def on_top_told(self, message: Told) -> None:
        self.trouble = message.trouble
        self.show_frame()

    def _seen_status(self, status: Row) -> None:
        self.status = status
        self.show_frame()

    def _seen_critical(self, alerts: list[Row]) -> None:
        self.critical = alerts
        new = {alert["id"] for alert in alerts} - self._rung
        self._rung |= new
        if new and self.rings:
            self.bell()
        self.show_frame()

    def show_frame(self) -> None:
        """On whatever screen is there, those below a dialog included."""
        for screen in self.screen_stack:
            for status in screen.query(Status):
                status.show(self.status, self.trouble.words if self.trouble else None)
            for banner in screen.query(Banner):
                banner.show(self.critical)

    # -- going places --------------------------------------------------------------------------------------------------

    def open_task(self, task_id: str) -> None:
        self.push_screen(TaskView(task_id))

    # -- actions -------------------------------------------------------------------------------------------------------

    def act(self, action: Action, subject: Row) -> None:
        """Ask where it has to be asked, then carry it out in a thread: no key waits for a store."""
        self.run_worker(self._act(action, subject), group="actions", exit_on_error=True)

    async def _act(self, action: Action, subject: Row) -> None:
        if action.question is not None and await self._answer(Question(action.question(subject))) is None:
            return
        if action.asks:
            answer = await self._answer(Asking(action.asks))
            if answer is None:
                return
            subject = {**subject, "answer": answer}
        try:
            if action.in_terminal:
                with self.suspend():
                    told = action.do(self.home, subject)
            else:
                told = await self.run_worker(
                    partial(action.do, self.home, subject), thread=True, exit_on_error=False
                ).wait()
        except (HoldfastError, WorkerFailed) as error:
            self._refuse(action, error)
            return
        self.feed.look()
        if told:
            self.notify(told, markup=False)

    def _refuse(self, action: Action, error: Exception) -> None:
        reason = error.error if isinstance(error, WorkerFailed) else error
        if not isinstance(reason, HoldfastError):
            raise reason
        self.push_screen(Refusal(f"{action.label}: {reason}"))

    async def _answer(self, dialog: Dialog) -> str | None:
        return await self.push_screen_wait(dialog)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        if event.state is WorkerState.SUCCESS:
            self.feed.look()
