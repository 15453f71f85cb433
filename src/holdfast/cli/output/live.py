"""Live output of `run`: the agent's events as lines, and a status line at the bottom of a terminal."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

from holdfast.api.colours import STATE_COLOURS
from holdfast.api.format import duration
from holdfast.api.queries import Queries
from holdfast.cli.output.render import is_fancy, one_line
from holdfast.config.known_secrets import redact_agent_text

if TYPE_CHECKING:  # imported only when events are read, because some agents write none
    from holdfast.api.tasks.models import JsonObject
    from holdfast.api.tasks.transcript import Transcript
    from holdfast.cli.output.agent_events import Teller

TAIL = 4096


class LiveEvents:
    """The agent's events as lines on standard error. An agent without events prints nothing here."""

    def __init__(self, queries: Queries, task_id: str, agent: str) -> None:
        from holdfast.api.tasks.transcript import has_event_output

        self._queries = queries
        self._task_id = task_id
        self._agent = agent
        self._speaks = has_event_output(agent)
        self._terminal = sys.stderr  # the stream before the status line wraps it
        self._number = 0
        self._transcript: Transcript | None = None
        self._teller: Teller | None = None
        self._line = ""  # the beginning of a line whose end has not been written yet

    @property
    def last(self) -> str | None:
        """The newest line. None if the agent writes plain text, which is then read from its output file."""
        return (self._teller.last_line if self._teller is not None else "") if self._speaks else None

    def go_on(self, *, final: bool = False) -> None:
        if not self._speaks:
            return
        for run in self._queries.view("runs", id=self._task_id):
            if self._transcript is None or run["number"] > self._number:
                self._finish()
                self._begin(run)
        self._read(final=final)

    def _begin(self, run: JsonObject) -> None:
        from holdfast.api.tasks.transcript import Transcript
        from holdfast.cli.output.agent_events import Teller

        self._number = run["number"]
        zone = self._queries.task(self._task_id)["time_zone"]
        self._transcript = Transcript(
            self._queries.run_directory(run["id"]),
            self._agent,
            {"id": run["id"], "number": run["number"], "ended_at": run["ended_at"]},
            zone,
        )
        self._teller = Teller(self._write, self._terminal)

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


class StatusLine:
    """The status line at the bottom of the terminal, as a context manager. `update` is cheap: call it often."""

    def __init__(self, queries: Queries, task_id: str, words: LiveEvents) -> None:
        self._queries = queries
        self._task_id = task_id
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

    def update(self, state: str) -> None:
        if self._status is None:
            return
        from rich.text import Text

        text = Text.assemble(
            (state, STATE_COLOURS.get(state, "")),
            f" {duration(time.monotonic() - self._began)}  ",
            (self._last_words() if self._words.last is None else one_line(self._words.last, 80), "dim"),
        )
        self._status.update(text)

    def _last_words(self) -> str:
        """Return the newest line in the output of the newest run."""
        runs = self._queries.task(self._task_id)["runs"]
        if not runs:
            return ""
        directory = self._queries.run_directory(runs[-1]["id"])
        try:
            with open(os.path.join(directory, "out.log"), "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - TAIL))
                lines = file.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        last = next((line for line in reversed(lines) if line.strip()), "")
        return one_line(redact_agent_text(last, os.path.dirname(os.path.dirname(directory))), 80)
