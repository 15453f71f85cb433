"""`holdfast top`: the screens, the feed that keeps them true, and the one place where actions are carried out."""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from rich.text import Text
from textual.app import App, SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.command import Provider
from textual.css.query import NoMatches
from textual.dom import DOMNode
from textual.message import Message
from textual.worker import Worker, WorkerState

from holdfast.api.fleet.status import Vitals
from holdfast.base.errors import HoldfastError, Refused, Unavailable
from holdfast.base.text import one_line
from holdfast.tui import colours
from holdfast.tui.actions.background import Answers, Errands
from holdfast.tui.actions.handlers import Asked, task_of
from holdfast.tui.actions.handlers import Told as WhatToTell
from holdfast.tui.actions.palette import Doings, Palette
from holdfast.tui.actions.table import Action
from holdfast.tui.feed import Failure, Feed, Trouble, Watch
from holdfast.tui.screens.alerts import AlertsView
from holdfast.tui.screens.fleet import FleetView
from holdfast.tui.screens.schedules import SchedulesView
from holdfast.tui.screens.workers import WorkersView
from holdfast.tui.screens.workspaces import WorkspacesView
from holdfast.tui.terminal import Leaving
from holdfast.tui.widgets.alert_banner import Attention, Banner
from holdfast.tui.widgets.dialogs import Asking, Question, Refusal
from holdfast.tui.widgets.screen import View
from holdfast.tui.widgets.status import EVERY, Status
from holdfast.tui.widgets.tabs import Tabs

if TYPE_CHECKING:
    from holdfast.api.fleet.models import VitalsRow
    from holdfast.api.tasks.models import JsonObject

LOOK_FOR_TERMINAL = 5.0  # seconds
T = TypeVar("T")
VIEWS: dict[str, type[View]] = {
    "fleet": FleetView,
    "workers": WorkersView,
    "alerts": AlertsView,
    "schedules": SchedulesView,
    "workspaces": WorkspacesView,
}


class Top(App[None]):
    TITLE = "holdfast"
    ENABLE_COMMAND_PALETTE = True
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {Doings}
    CSS = colours.CSS + "CommandPalette SearchIcon { display: none; }"  # an emoji, which not every terminal has
    MODES: ClassVar[dict[str, Any]] = dict(VIEWS)
    DEFAULT_MODE = "fleet"
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(str(number), f"go('{name}')", name.capitalize(), show=False, tooltip=f"the {name} screen")
            for number, name in enumerate(VIEWS, 1)
        ),
        Binding("q", "quit", "Quit", priority=False, tooltip="leave; nothing that runs is touched"),
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
        self.animation_level = "none"  # nothing here needs sixty pictures a second, least of all over ssh
        self.home = home
        self.leaving = Leaving(lambda code: self.exit(return_code=code))
        self.status: VitalsRow | None = None
        self.attention = Attention(home, ring=(lambda: self.bell()) if bell else None, changed=self.show_frame)
        self.trouble: Trouble | None = None
        self.errands = Errands()
        self.feed = Feed(
            home,
            lambda watch, value: self._pass_on(self.Read(watch, value)),
            lambda trouble: self._pass_on(self.Told(trouble)),
        )
        self.answers = Answers(self.feed, self.tell, lambda what, words: self.refuse(what, words, False))
        self._in_hand: set[tuple[str, str]] = set()  # actions under way, by name and subject

    def _pass_on(self, message: Message) -> None:
        """From the feed's thread; Textual's post_message is made for that."""
        self.post_message(message)

    def on_load(self) -> None:
        self.leaving.attach()

    def on_mount(self) -> None:
        self.feed.attach(
            (
                Watch("status", Vitals(self.home).read, self._seen_status, every=EVERY),
                self.attention.watch,
            )
        )
        self.feed.start()
        self.set_interval(EVERY, self.show_frame)  # times tick, and a locked store says nothing
        self.app_resume_signal.subscribe(self, lambda _app: self.action_redraw())  # after Ctrl+Z and `fg`
        if not self.is_headless:
            self.set_interval(LOOK_FOR_TERMINAL, self._look_for_terminal)

    def _look_for_terminal(self) -> None:
        """Gone without a signal (`nohup`, a session of its own): nobody is there to show anything to."""
        if not self.leaving.has_terminal():
            self.leaving.leave(1)

    def action_command_palette(self) -> None:
        """Over a screen alone: a dialog has no commands. (Textual's own has a name that there may be once only, also
        while the last one is being taken away.)"""
        if isinstance(self.screen, View):
            self.push_screen(Palette())

    def action_redraw(self) -> None:
        self.refresh(layout=True)

    def action_interrupt(self) -> None:
        self.exit(return_code=130)

    def on_unmount(self) -> None:
        self.feed.stop()

    # -- what the feed brings ------------------------------------------------------------------------------------------

    def on_top_read(self, message: Read) -> None:
        watch, value = message.watch, message.value
        watch.in_hand = False
        if not self.screen_stack or not _is_there(watch):
            return
        with contextlib.suppress(NoMatches):  # its screen is being taken apart at this moment
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
        """On whatever screen is there, those below a dialog included."""
        for screen in self.screen_stack:
            for status in screen.query(Status):
                status.show(self.status, self.trouble, self.feed.waits_for())
            for banner in screen.query(Banner):
                banner.show(self.attention.now)
            for tabs in screen.query(Tabs):
                tabs.show(self.current_mode, None if self.status is None else self.status["alerts"])

    # -- going places --------------------------------------------------------------------------------------------------

    def action_go(self, name: str) -> None:
        """To a screen as it was left, a task that was open there included; from there again to the list below that."""
        if name != self.current_mode:
            self.switch_mode(name)
            return
        while len(self.screen_stack) > 1 and isinstance(self.screen, View):
            self.pop_screen()

    def open_task(self, task_id: str, page: str = "output") -> None:
        from holdfast.tui.screens.task.screen import TaskView  # the first picture does not wait for it

        self.push_screen(TaskView(task_id, page))

    async def action_switch_mode(self, mode: str) -> None:
        """A digit means its list, also where a task that was opened from it lies on top."""
        await super().action_switch_mode(mode)
        while len(self.screen_stack) > 1 and isinstance(self.screen, View):
            self.pop_screen()

    # -- actions -------------------------------------------------------------------------------------------------------

    def act(self, action: Action, subject: JsonObject) -> None:
        """Ask where it has to be asked, then carry it out in a thread: no key waits for a store. A key that is pressed
        twice does it once."""
        which = (action.name, str(subject.get("id", subject.get("name"))))
        if which not in self._in_hand:
            self._in_hand.add(which)
            self.run_worker(self._act(action, subject, which), group="actions", exit_on_error=True)

    async def _act(self, action: Action, subject: JsonObject, which: tuple[str, str]) -> None:
        try:
            told = await self._carry_out(action, subject)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told, and the screen stays
            self.refuse(action.label, *_words_of(error))
            return
        finally:
            self._in_hand.discard(which)
        self.feed.look()
        if isinstance(told, Asked):
            self.answers.wait_for(told)
        if told:
            self.tell(told.words if isinstance(told, Asked) else told)

    async def _carry_out(self, action: Action, subject: JsonObject) -> WhatToTell:
        """Carry out an action. Return what to tell afterwards; nothing if the answer was no."""
        if action.question is not None:
            words = await self._apart(action, partial(action.question, self.home, subject))
            if words is not None and await self.push_screen_wait(Question(words)) is None:
                return ""
        if action.asks:
            answer = await self.push_screen_wait(Asking(action.asks))
            if answer is None:
                return ""
            subject = {**subject, "answer": answer}
        if action.in_terminal:
            return self._in_terminal(action, subject)
        return await self._apart(action, partial(action.do, self.home, subject))

    async def _apart(self, action: Action, do: Callable[[], T]) -> T:
        return await self.errands.run(do, lambda: self.tell(f"{action.label}: not done yet; it goes on by itself."))

    def _in_terminal(self, action: Action, subject: JsonObject) -> WhatToTell:
        """Whatever happens in between, the terminal is taken back: Textual leaves it if its block raises."""
        told: WhatToTell | Exception
        try:
            with self.suspend():
                try:
                    told = action.do(self.home, subject)
                except Exception as error:  # noqa: BLE001 - raised again when the terminal is ours
                    told = error
        except SuspendNotSupported:
            raise Refused(
                f"This terminal cannot be handed over. In another one: `holdfast {action.name} {task_of(subject)}`."
            ) from None
        if isinstance(told, Exception):
            raise told
        return told

    def tell(self, words: str) -> None:
        self.notify(one_line(words, 600), markup=False)

    def refuse(self, what: str, words: str, is_unchanged: bool = True) -> None:
        self.push_screen(Refusal(f"{what}: {words}", is_unchanged=is_unchanged))

    def action_press(self, key: str) -> None:
        """A click on the line of keys."""
        self.simulate_key(key)

    def _fatal_error(self) -> None:
        """Textual would print some hundred lines, with what every variable held: prompts and paths among them."""
        if os.environ.get("HOLDFAST_DEBUG"):
            super()._fatal_error()
            return
        self._exit_renderables.append(Text(fatal_words(self._exception)))
        self._close_messages_no_wait()

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        if event.state is WorkerState.SUCCESS:
            self.feed.look()


def _is_there(watch: Watch) -> bool:
    """Whether its screen is not gone meanwhile. One that lies below another gets it too: what a reader has handed over
    once it does not read again."""
    owner = getattr(watch.deliver, "__self__", None)
    return not isinstance(owner, DOMNode) or owner.is_attached


def _words_of(error: Exception) -> tuple[str, bool]:
    """Return what happened, and whether that means that nothing was changed."""
    if isinstance(error, HoldfastError):
        return str(error), not isinstance(error, Unavailable)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return (
            f"{where}{error.strerror or error}. Nothing that was acknowledged is lost. Put that right, try again.",
            False,
        )
    return f"a mistake of Holdfast ({type(error).__name__}: {error}). `holdfast events` says what was done.", False


def fatal_words(error: BaseException | None) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1] if error is not None and error.__traceback__ else None
    where = f" at {os.path.basename(place.filename)}:{place.lineno}" if place is not None else ""
    return (
        f"holdfast: the screen ended by a mistake of Holdfast{where} ({type(error).__name__}: {one_line(error, 300)}). "
        "What runs is not touched. Start `holdfast top` again, above all after an upgrade; with HOLDFAST_DEBUG=1 it "
        "tells more if that comes again."
    )
