"""Live output of `run`: the agent's events as lines, and a status line at the bottom of a terminal."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from holdfast.api.colours import STATE_COLOURS
from holdfast.api.format import duration
from holdfast.api.queries import Queries
from holdfast.base.stored_json import load_stored_json
from holdfast.cli.output.render import clean_text, is_fancy, one_line, paint, paint_level

if TYPE_CHECKING:  # imported only when an agent writes
    from holdfast.api.home.models import EventRow
    from holdfast.api.tasks.models import JsonObject, TaskStateRow
    from holdfast.api.tasks.transcript import Transcript
    from holdfast.cli.output.agent_events import Teller

_CLAIMED = ("task.claimed", "task.adopted")
_STATES = ("task.requeued", "task.stage", "task.resumed", "task.approved", "task.frozen", "gate.started")
_LAST = ("task.paused", "task.completed", "task.failed", "task.cancelled")
_UNTOLD = ("agent.terminated", "run.ended")  # the state that follows has the same reason


class LiveEvents:
    """A printer of the agent's words and tools, or of the output of a plain command, as lines on standard error."""

    def __init__(self, queries: Queries, task_id: str) -> None:
        self._queries = queries
        self._task_id = task_id
        self._terminal = sys.stderr  # the stream before the status line wraps it
        self._number = 0
        self._transcript: Transcript | None = None
        self._teller: Teller | None = None
        self._line = ""  # the beginning of a line whose end has not been written yet

    @property
    def last(self) -> str:
        """The newest line."""
        return self._teller.last_line if self._teller is not None else ""

    def go_on(self, *, final: bool = False) -> None:
        for run in self._queries.view("runs", id=self._task_id):
            if self._transcript is None or run["number"] > self._number:
                self._finish()
                self._begin(run)
        self._read(final=final)

    def _begin(self, run: JsonObject) -> None:
        from holdfast.api.tasks.transcript import Transcript, has_event_output
        from holdfast.cli.output.agent_events import Teller

        self._number = run["number"]
        task = self._queries.task(self._task_id)
        agent = run["agent"] or task["agent"]
        is_plain = not has_event_output(agent)
        self._transcript = Transcript(
            self._queries.run_directory(run["id"]),
            agent,
            {"id": run["id"], "number": run["number"], "ended_at": run["ended_at"]},
            task["time_zone"],
            with_errors=is_plain,
        )
        self._teller = Teller(self._write, self._terminal, plain=is_plain, hints=False)

    def finish(self, run_id: str | None) -> None:
        """Print the rest of a run that has ended, if it is the run that is shown."""
        if self._transcript is not None and self._transcript.run_id == run_id:
            self._finish()

    def _finish(self) -> None:
        self._read(final=True)

    def _read(self, *, final: bool) -> None:
        if self._transcript is None or self._teller is None:
            return
        for event in self._transcript.go_on(final=final):
            self._teller.tell(event, time.monotonic())
        self._teller.end() if final else self._teller.catch_up()

    def _write(self, text: str) -> None:
        """Print only whole lines, because other code writes to the terminal too."""
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            print(f"  | {line}", file=sys.stderr)


class StatePrinter:
    """A printer of the states and warnings of a task, as lines on standard error. `verbose`: every event.

    The last state is held back, because the end of `run` describes it in more detail.
    """

    def __init__(self, task_id: str, *, verbose: bool) -> None:
        self._prefix = f"Task {task_id} "
        self._verbose = verbose
        self._held = ""

    def tell(self, event: EventRow) -> None:
        at = paint(time.strftime("%H:%M:%S", time.localtime(event["at"])), "dim", sys.stderr)
        message = clean_text(event["message"])
        if self._verbose:
            self._print(f"  {at} {paint_level(event['kind'], event['level'], sys.stderr)} {message}")
        elif event["kind"] in _CLAIMED:
            self._print(f"  {at} {paint('running', STATE_COLOURS.get('running', ''), sys.stderr)}")
        elif event["kind"] in _LAST:
            self.flush()
            self._held = f"  {at} {message.removeprefix(self._prefix)}"
        elif event["kind"] in _STATES or (event["level"] in ("warning", "critical") and event["kind"] not in _UNTOLD):
            self._print(f"  {at} {message.removeprefix(self._prefix)}")

    def flush(self) -> None:
        """Print the state that is held back."""
        held, self._held = self._held, ""
        if held:
            print(held, file=sys.stderr)

    def _print(self, line: str) -> None:
        self.flush()
        print(line, file=sys.stderr)


class StatusLine:
    """The status line at the bottom of the terminal, as a context manager. `update` is cheap: call it often."""

    def __init__(self, words: LiveEvents) -> None:
        self._words = words
        self._began = time.monotonic()
        self._status: Any = None

    def __enter__(self) -> StatusLine:
        if is_fancy(sys.stderr):
            from rich.console import Console

            self._status = Console(stderr=True).status("queued", spinner="dots", refresh_per_second=8)
            self._status.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._status is not None:
            self._status.stop()

    def update(self, task: TaskStateRow) -> None:
        """Show the state of the task, and the newest line of its agent or the gate that runs."""
        if self._status is None:
            return
        from rich.text import Text

        text = Text.assemble(
            (task["state"], STATE_COLOURS.get(task["state"], "")),
            f" {duration(int(time.monotonic() - self._began))}  ",
            (one_line(_gate_words(task) or self._words.last, 80), "dim"),
        )
        self._status.update(text)


def _gate_words(task: TaskStateRow) -> str:
    """Return "gate `make test`, 12s" while a gate of the task runs."""
    if not task["progress"]:
        return ""
    from holdfast.api.tasks.stages import describe_running_gate, read_running_gate

    gate = read_running_gate(task["state"], load_stored_json(task["settings"]).get("stages"), task["progress"])
    return "" if gate is None else ", ".join(describe_running_gate(gate, time.time()))
