"""The prompt that an agent got in a run: the task's own, a continuation, or a hand-over."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from holdfast.api.queries import Queries
from holdfast.base.errors import NotFound, UsageError
from holdfast.base.files import open_log_file

if TYPE_CHECKING:
    from holdfast.api.tasks.models import PromptRow

MOST = 4 << 20  # bytes; a prompt has one MiB at most, and the text around it is small


def read_prompt(queries: Queries, task_id: str, number: int | None) -> PromptRow:
    """Return the prompt that a run's agent got."""
    task = queries.task(task_id)
    runs = [run for run in task["runs"] if number in (None, run["number"])]
    if number is not None and not runs:
        raise NotFound(f"Task {task_id} has no run {number}; it had {len(task['runs'])}.")
    if not runs:
        return {"id": task_id, "run": None, "prompt": task["prompt"]}
    directory = queries.run_directory(runs[-1]["id"])
    kept = _read_kept(os.path.join(directory, "prompt"))
    if kept is None and not os.path.isdir(directory):
        raise NotFound(
            f"The prompt of run {runs[-1]['number']} of task {task_id} is gone: the setting `retention.runs` decides "
            f"how long it is kept. The task's own prompt is in `holdfast show {task_id}`."
        )
    return {"id": task_id, "run": runs[-1]["number"], "prompt": task["prompt"] if kept is None else kept}


def refuse_without_prompt(number: int | None) -> None:
    if number is not None:
        raise UsageError("--run chooses the run whose prompt is shown, so give --prompt too.")


def _read_kept(path: str) -> str | None:
    try:
        fd = open_log_file(path)
    except OSError:
        return None
    with open(fd, "rb") as file:
        return file.read(MOST).decode(errors="replace")
