"""The command `logs`: an agent's output as events for people, as JSON, or byte for byte."""

from __future__ import annotations

import argparse
import os
import sys
import time
from codecs import getincrementaldecoder
from typing import TYPE_CHECKING, Protocol

from holdfast.api.queries import Queries
from holdfast.base.errors import NotFound, UsageError
from holdfast.base.files import data_blocks, open_log_file
from holdfast.base.home import home_directory
from holdfast.cli.output.options import add_task_id
from holdfast.cli.output.render import clean_text, number, one_line, paint, print_json
from holdfast.config.known_secrets import register_supervisor_secrets
from holdfast.secrets.redact import RedactedStream

if TYPE_CHECKING:
    from holdfast.api.tasks.models import RunRow, TaskDetails

LOOK_EVERY = 0.1
OVER = ("completed", "failed", "cancelled")


def configure_logs(parser: argparse.ArgumentParser) -> None:
    add_task_id(parser)
    parser.add_argument("--follow", "-f", action="store_true", help="follow the output until the task ends")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--run", type=number(1), metavar="N", help="the task's N-th run (default: the last one)")
    which.add_argument("--all", action="store_true", help="every run of the task, in order")
    parser.add_argument("--member", metavar="NAME", help="only the runs of this member of a parallel stage")
    parser.add_argument("--err", action="store_true", help="raw standard error instead of standard output")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--raw", action="store_true", help="the agent's output, byte for byte and unfiltered")
    how.add_argument("--json", action="store_true", help="one event per line (stable, documented)")


def run_logs(arguments: argparse.Namespace) -> int:
    if arguments.json and arguments.err:
        raise UsageError("--json has the events of both streams already; --err shows standard error as it is.")
    queries = Queries(home_directory())
    task_id = queries.resolve(arguments.id)
    shown: Printer | None = None
    while True:
        task = _with_member_runs(queries.task(task_id), arguments.member)
        run = _pick_run(task, arguments.run, shown, from_first=arguments.all)
        if run is None and not arguments.follow:
            raise NotFound(f"Task {task_id} has no run yet; see `holdfast why {task_id}`.")
        is_over = not arguments.follow or task["state"] in OVER
        if run is not None:
            if shown is None or shown.run_id != run["id"]:
                if shown is not None:
                    shown.go_on(final=True)  # print the end of the earlier run before the next run's output
                _print_run_notice(task, run, arguments, is_first=shown is None)
                _refuse_gone(queries, task, run, arguments)
                shown = _printer(queries, task, run, arguments)
            has_next = arguments.run is None and run["id"] != task["runs"][-1]["id"]
            shown.go_on(final=is_over and not has_next)
            if has_next:
                continue
        if is_over:
            return 0
        time.sleep(LOOK_EVERY)


def _print_run_notice(task: TaskDetails, run: RunRow, arguments: argparse.Namespace, *, is_first: bool) -> None:
    """Print which run's output follows, if the user may have meant another run."""
    if not is_first or arguments.all:
        told = [one_line(message["text"], 120) for message in task["messages"] if message["run"] == run["number"]]
        print_notice(f"run {run['number']} of task {task['id']}{', told: ' if told else ''}{' / '.join(told)}:")
    elif len(task["runs"]) > 1 and arguments.run is None and not arguments.json:
        of = f"run {run['number']} of {task['runs'][-1]['number']}"
        print_notice(f"{of}; every run: `holdfast logs {task['id']} --all`")


def print_notice(text: str) -> None:
    """Print a line of Holdfast on standard error, because it is not part of the agent's output."""
    sys.stdout.flush()
    print(paint(f"[{text}]", "dim", sys.stderr), file=sys.stderr, flush=True)


class Printer(Protocol):
    """A printer of one run's output as it grows."""

    run_id: str

    def go_on(self, *, final: bool) -> None: ...


def _printer(queries: Queries, task: TaskDetails, run: RunRow, arguments: argparse.Namespace) -> Printer:
    directory = queries.run_directory(run["id"])
    if not arguments.json and (arguments.raw or arguments.err or not _has_events(run["agent"] or task["agent"])):
        path = os.path.join(directory, "err.log" if arguments.err else "out.log")
        return BytePrinter(run["id"], path, raw=arguments.raw)
    return EventPrinter(queries, task, run, as_json=arguments.json, follows=arguments.follow)


def _has_events(agent: str) -> bool:
    from holdfast.api.tasks.transcript import has_event_output

    return has_event_output(agent)


def _refuse_gone(queries: Queries, task: TaskDetails, run: RunRow, arguments: argparse.Namespace) -> None:
    path = os.path.join(queries.run_directory(run["id"]), "err.log" if arguments.err else "out.log")
    if not arguments.follow and not os.path.exists(path) and run["state"] == "settled":
        why = (
            f"The output of run {run['number']} of task {task['id']} is gone: the setting `retention.runs` says "
            "how long it is kept."
        )
        if not arguments.all:
            raise NotFound(why)
        print_notice(why)


def _with_member_runs(task: TaskDetails, member: str | None) -> TaskDetails:
    """Return the task as if only this member had runs."""
    if member is None:
        return task
    names = {run["member"] for run in task["runs"] if run["member"]}
    if task["stage"] is not None:
        names.update(task["stage"]["members"])
    if member not in names:
        known = f"it has {', '.join(sorted(names))}" if names else "none of its stages had members so far"
        raise NotFound(f"Task {task['id']} has no member '{member}': {known}.")
    only = task.copy()
    only["runs"] = [run for run in task["runs"] if run["member"] == member]
    return only


def _pick_run(
    task: TaskDetails, number: int | None, shown: Printer | None, *, from_first: bool = False
) -> RunRow | None:
    """Return the run that was asked for by its number. Without a number, return the run after the shown one, or else
    the last, or the first. No run is left out."""
    runs = task["runs"]
    if number is None:
        ids = [run["id"] for run in runs]
        if shown is not None and shown.run_id in ids[:-1]:
            return runs[ids.index(shown.run_id) + 1]
        return runs[0 if from_first and shown is None else -1] if runs else None
    for run in runs:
        if run["number"] == number:
            return run
    raise NotFound(f"Task {task['id']} has no run {number}; it had {len(runs)}.")


class EventPrinter:
    """The agent's output and actions, event by event."""

    def __init__(self, queries: Queries, task: TaskDetails, run: RunRow, *, as_json: bool, follows: bool) -> None:
        from holdfast.api.tasks.transcript import Transcript
        from holdfast.cli.output.agent_events import Teller

        self.run_id = str(run["id"])
        self._transcript = Transcript(
            queries.run_directory(self.run_id), run["agent"] or task["agent"], run, task.get("time_zone")
        )
        self._teller = None if as_json else Teller(sys.stdout.write)
        self._follows = follows
        self._has_caught_up = False  # True: what comes from now on is new, and its time is known

    def go_on(self, *, final: bool) -> None:
        for event in self._transcript.go_on(final=final):
            if self._teller is None:
                print_json(event)
            else:
                self._teller.tell(event, time.monotonic() if self._has_caught_up else None)
        if self._teller is not None:
            self._teller.end() if final else self._teller.catch_up()
        self._has_caught_up = self._follows
        sys.stdout.flush()


class BytePrinter:
    """A printer of a growing file as it is. Characters and escape sequences stay whole across two reads."""

    def __init__(self, run_id: str, path: str, *, raw: bool) -> None:
        self.run_id = run_id
        self._path = path
        self._raw = raw
        self._position = 0
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._held = ""  # the beginning of a line whose end was not written yet
        self._flow = RedactedStream()
        if not raw:
            register_supervisor_secrets(os.path.dirname(os.path.dirname(os.path.dirname(path))))

    def go_on(self, *, final: bool) -> None:
        try:
            fd = open_log_file(self._path)
        except FileNotFoundError:
            return
        try:
            for offset, block in data_blocks(fd, self._position):
                missing, self._position = offset - self._position, offset + len(block)
                self._write(block, missing)
        finally:
            os.close(fd)
        if final and not self._raw:
            self._put(self._decoder.decode(b"", final=True), rest=True)
        sys.stdout.flush()

    def _write(self, block: bytes, missing: int) -> None:
        if self._raw:
            if missing:
                print_notice(f"{missing} bytes are not kept")
            sys.stdout.flush()
            sys.stdout.buffer.write(block)
            return
        if missing:
            self._put(f"\n[{missing} bytes are not kept]\n")
        self._put(self._decoder.decode(block))

    def _put(self, text: str, *, rest: bool = False) -> None:
        self._held += text
        cut = len(self._held) if rest else self._held.rfind("\n") + 1
        sys.stdout.write(self._flow.add(clean_text(self._held[:cut])))
        if rest:
            sys.stdout.write(self._flow.end())
        self._held = self._held[cut:]
