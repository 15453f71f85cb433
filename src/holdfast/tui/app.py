"""`holdfast top`: the screens, the feed that keeps them up to date, and the runner of actions."""

from __future__ import annotations

import contextlib
import os
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text
from textual import events
from textual.app import App
from textual.binding import Binding, BindingType
from textual.command import Provider
from textual.css.query import NoMatches
from textual.dom import DOMNode
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message
from textual.worker import Worker, WorkerState

from holdfast.api.fleet.status import VitalsReader
from holdfast.base.text import one_line
from holdfast.tui import colours
from holdfast.tui.actions.palette import ActionProvider, Palette
from holdfast.tui.actions.runner import ActionRunner
from holdfast.tui.feed import Failure, Feed, Trouble, Watch
from holdfast.tui.screens.alerts import AlertsView
from holdfast.tui.screens.fleet import FleetView
from holdfast.tui.screens.schedules import SchedulesView
from holdfast.tui.screens.workers import WorkersView
from holdfast.tui.screens.workspaces import WorkspacesView
from holdfast.tui.terminal import Leaving
from holdfast.tui.widgets.alert_banner import Attention, Banner
from holdfast.tui.widgets.dialogs import Refusal
from holdfast.tui.widgets.key_bar import LONGEST, SHOWN_FOR, MessageLine
from holdfast.tui.widgets.screen import View
from holdfast.tui.widgets.status import EVERY, Status
from holdfast.tui.widgets.tabs import Tabs

if TYPE_CHECKING:
    from holdfast.api.fleet.models import VitalsRow

LOOK_FOR_TERMINAL = 5.0  # seconds
VIEWS: dict[str, type[View]] = {
    "fleet": FleetView,
    "workers": WorkersView,
    "alerts": AlertsView,
    "schedules": SchedulesView,
    "workspaces": WorkspacesView,
}


class Top(App[None]):
    """The Textual app of `holdfast top`."""

    TITLE = "holdfast"
    ENABLE_COMMAND_PALETTE = True
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {ActionProvider}
    CSS = colours.CSS + "CommandPalette SearchIcon { display: none; }"  # an emoji, which not every terminal has
    MODES: ClassVar[dict[str, Any]] = dict(VIEWS)
    DEFAULT_MODE = "fleet"
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(str(number), f"go('{name}')", name.capitalize(), show=False, tooltip=f"the {name} screen")
            for number, name in enumerate(VIEWS, 1)
        ),
        Binding("q", "quit", "Quit", priority=False, tooltip="leave; running tasks are not affected"),
        Binding("ctrl+c", "interrupt", "Quit", show=False, priority=True, tooltip="leave, from everywhere"),
        Binding("ctrl+z", "suspend_process", "Stop", show=False, priority=True, tooltip="to the shell; `fg` returns"),
        Binding("M", "mouse", "Mouse", show=False, tooltip="switch between mouse control and text selection"),
        Binding("ctrl+l", "redraw", "Redraw", show=False, tooltip="redraw the screen"),
    ]

    class Read(Message):
        """The message that the feed has read the value of a watch."""

        def __init__(self, watch: Watch, value: Any) -> None:
            super().__init__()
            self.watch, self.value = watch, value

    class FormReady(Message):
        """The message that a form can take keys, or that the user left a line to type into."""

    class Told(Message):
        """The message that the store cannot be read, or can be read again (`trouble` is None)."""

        def __init__(self, trouble: Trouble | None) -> None:
            super().__init__()
            self.trouble = trouble

    def __init__(self, home: str, *, bell: bool = False) -> None:
        few = colours.has_few_colours()
        super().__init__(ansi_color=True if few else None)
        if few:
            self.theme = colours.FEW
        self.animation_level = "none"  # nothing here needs sixty frames a second, least of all over ssh
        self.home = home
        self.leaving = Leaving(lambda code: self.exit(return_code=code))
        self.status: VitalsRow | None = None
        self.attention = Attention(home, ring=(lambda: self.bell()) if bell else None, changed=self.show_frame)
        self.trouble: Trouble | None = None
        self.feed = Feed(
            home,
            lambda watch, value: self._pass_on(self.Read(watch, value)),
            lambda trouble: self._pass_on(self.Told(trouble)),
        )
        self.actions = ActionRunner(self)
        self.messages: deque[str] = deque(maxlen=50)  # the newest at the end
        self._message_until = 0.0
        self.drafts: dict[str, dict[str, str]] = {}  # what was typed into forms that were left, by their titles
        self._held: deque[events.Event] | None = None

    # -- keys that are typed before a form is drawn --------------------------------------------------------------------

    def hold_keys(self) -> None:
        """Keep the keys that are typed from now on for the form that is about to open: they are not commands."""
        if self._held is None:
            self._held = deque()

    def drop_held_keys(self) -> None:
        self._held = None

    async def on_top_form_ready(self, _message: FormReady) -> None:
        held, self._held = self._held, None
        for event in held or ():
            await self.on_event(event)  # one of them may hold those behind it

    async def on_event(self, event: events.Event) -> None:
        is_typed = isinstance(event, (events.Key, events.Paste)) and not event.is_forwarded
        if self._held is None or not is_typed or getattr(event, "key", "") in ("ctrl+c", "ctrl+z"):
            await super().on_event(event)
        else:
            self._held.append(event)

    def _pass_on(self, message: Message) -> None:
        """Post a message from the feed's thread. Textual's post_message is safe in threads."""
        self.post_message(message)

    def on_load(self) -> None:
        self.leaving.attach()

    def on_mount(self) -> None:
        self.feed.attach(
            (
                Watch("status", VitalsReader(self.home).read, self._seen_status, every=EVERY),
                self.attention.watch,
            )
        )
        self.feed.start()
        self.set_interval(EVERY, self.show_frame)  # ages change, and a locked store sends no message
        self.app_resume_signal.subscribe(self, lambda _app: self.action_redraw())  # after Ctrl+Z and `fg`
        if not self.is_headless:
            self.set_interval(LOOK_FOR_TERMINAL, self._look_for_terminal)

    def _look_for_terminal(self) -> None:
        """Leave if the terminal is gone. Under `nohup` or in a separate session no signal is sent for that."""
        if not self.leaving.has_terminal():
            self.leaving.leave(1)

    def action_command_palette(self) -> None:
        """Open the palette over a screen, not over a dialog, which has no commands.

        Textual's own palette has a fixed id. Opening it again while the last one is still being removed would fail.
        """
        if isinstance(self.screen, View):
            self.push_screen(Palette())

    def clear_selection(self) -> None:
        """Clear the selection of text, if a screen is shown yet.

        From Python 3.12 on Textual starts tasks eagerly, so the first screen's input field is mounted, and calls this,
        before that screen is on the stack.
        """
        if self.screen_stack:
            super().clear_selection()

    def action_redraw(self) -> None:
        self.refresh(layout=True)

    def action_mouse(self) -> None:
        """Leave the mouse to the terminal, so that it selects text as everywhere, or take the mouse back."""
        driver = self._driver
        if not isinstance(driver, LinuxDriver):
            return
        if driver._mouse:
            driver._disable_mouse_support()
            driver._mouse = False  # so it stays off after a shell or Ctrl+Z
            self.show_message("The mouse now selects text. Press M to control `top` with it again.")
        else:
            driver._mouse = True
            driver._enable_mouse_support()
            self.show_message("The mouse controls `top` again.")

    def action_interrupt(self) -> None:
        self.exit(return_code=130)

    def on_unmount(self) -> None:
        self.feed.stop()

    # -- messages of the feed ------------------------------------------------------------------------------------------

    def on_top_read(self, message: Read) -> None:
        watch, value = message.watch, message.value
        watch.in_hand = False
        if not self.screen_stack or not _is_attached(watch):
            return
        with contextlib.suppress(NoMatches):  # the screen of this watch is just being removed
            if not isinstance(value, Failure):
                watch.deliver(value)
            elif watch.fail is not None:
                watch.fail(value.words)
        if isinstance(self.screen, View):
            self.screen.show_keys()

    def on_top_told(self, message: Told) -> None:
        self.trouble = message.trouble
        self.show_frame()

    def _seen_status(self, status: VitalsRow) -> None:
        self.status = status
        self.show_frame()

    def show_frame(self) -> None:
        """Draw status, banner and tabs of every open screen, even of screens below a dialog."""
        for screen in self.screen_stack:
            for status in screen.query(Status):
                status.show(self.status, self.trouble, self.feed.waits_for())
            for banner in screen.query(Banner):
                banner.show(self.attention.now)
            for line in screen.query(MessageLine):
                line.show(self.messages[-1] if time.monotonic() < self._message_until else "")
            for tabs in screen.query(Tabs):
                tabs.show(self.current_mode, None if self.status is None else self.status["alerts"])

    # -- navigation ----------------------------------------------------------------------------------------------------

    def action_go(self, name: str) -> None:
        """Go to a screen as the user left it, with the task that was open there. If that screen is shown already, go to
        its list."""
        if name != self.current_mode:
            self.switch_mode(name)
            return
        while len(self.screen_stack) > 1 and isinstance(self.screen, View):
            self.pop_screen()

    def open_task(self, task_id: str, page: str = "output") -> None:
        from holdfast.tui.screens.task.screen import TaskView  # the first frame does not wait for this import

        self.push_screen(TaskView(task_id, page))

    async def action_switch_mode(self, mode: str) -> None:
        """Go to the list of the mode, and close the task that is open above the list."""
        await super().action_switch_mode(mode)
        while len(self.screen_stack) > 1 and isinstance(self.screen, View):
            self.pop_screen()

    # -- results of actions --------------------------------------------------------------------------------------------

    def show_message(self, message: str) -> None:
        """Show the result of an action, for some seconds or until the next one."""
        self.messages.append(one_line(message, LONGEST))
        self._message_until = time.monotonic() + SHOWN_FOR
        self.show_frame()

    def notify(self, message: str, **_more: Any) -> None:
        """Show the message in its line. Textual's toasts would cover the list."""
        self.show_message(message)

    def refuse(self, what: str, why: str, *, is_unchanged: bool = True) -> None:
        """Show why an action was refused, until the user closes the dialog."""
        self.push_screen(Refusal(f"{what}: {why}", is_unchanged=is_unchanged))

    def action_press(self, key: str) -> None:
        """Press the key that was clicked in the line of keys."""
        self.simulate_key({"+": "plus"}.get(key, key))

    def _fatal_error(self) -> None:
        """Print a short message. Textual would print every variable, including prompts and paths."""
        if os.environ.get("HOLDFAST_DEBUG"):
            super()._fatal_error()
            return
        self._exit_renderables.append(Text(describe_fatal_error(self._exception)))
        self._close_messages_no_wait()

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        if event.state is WorkerState.SUCCESS:
            self.feed.look()


def _is_attached(watch: Watch) -> bool:
    """True if the screen of the watch still exists. A screen below another screen exists too."""
    owner = getattr(watch.deliver, "__self__", None)
    return not isinstance(owner, DOMNode) or owner.is_attached


def describe_fatal_error(error: BaseException | None) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1] if error is not None and error.__traceback__ else None
    where = f" at {os.path.basename(place.filename)}:{place.lineno}" if place is not None else ""
    return (
        f"holdfast: the screen ended because of a defect in Holdfast{where} ({type(error).__name__}: "
        f"{one_line(error, 300)}). "
        "Running tasks are not affected. Start `holdfast top` again, above all after an upgrade. If it happens again, "
        "HOLDFAST_DEBUG=1 shows more."
    )
