"""The bottom line of `run` on a terminal: state, age and the agent's latest words, live. Elsewhere: nothing."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from holdfast.api.queries import Queries
from holdfast.api.show import duration
from holdfast.interfaces.cli.render import COLOURS, is_fancy, one_line

TAIL = 4096


class BottomLine:
    """A context manager; `update` is cheap and may be called as often as one likes."""

    def __init__(self, queries: Queries, task_id: str) -> None:
        self._queries = queries
        self._task_id = task_id
        self._began = time.monotonic()
        self._status: Any = None

    def __enter__(self) -> BottomLine:
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
            (state, COLOURS.get(state, "")),
            f" {duration(time.monotonic() - self._began)}  ",
            (self._last_words(), "dim"),
        )
        self._status.update(text)

    def _last_words(self) -> str:
        """The newest line of the newest run's output."""
        runs = self._queries.task(self._task_id)["runs"]
        if not runs:
            return ""
        try:
            with open(os.path.join(self._queries.run_directory(runs[-1]["id"]), "out.log"), "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - TAIL))
                lines = file.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        return one_line(next((line for line in reversed(lines) if line.strip()), ""), 80)
