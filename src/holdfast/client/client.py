"""`holdfast.Client`: tasks from Python, with the same rules as the command line."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, Unpack, get_args, overload

from holdfast.api.commands import Commands, NewTask, pause
from holdfast.api.home.daemon import ensure_supervisor
from holdfast.api.queries import Queries, poll_events
from holdfast.api.requests import finish_request
from holdfast.api.tasks.subtasks import refuse_endless_wait, refuse_inside_run, resolve_parent
from holdfast.api.tasks.wait import watch_tasks
from holdfast.base.errors import Conflict, UsageError
from holdfast.base.home import home_directory
from holdfast.base.text import clean_text, is_text
from holdfast.client.errors import public, public_errors
from holdfast.client.models import (
    ENDED,
    Event,
    Ids,
    LogEntry,
    Merge,
    Run,
    StageResult,
    Task,
    TaskChanges,
    TaskOptions,
    TaskState,
)
from holdfast.client.watch import drive, drive_async, for_each, list_ids

if TYPE_CHECKING:
    from holdfast.api.home.models import EventRow
    from holdfast.api.tasks.changes import Given, Wanted
    from holdfast.api.tasks.models import TaskRow

STATES: tuple[str, ...] = get_args(TaskState)


class Client:
    """The tasks of one home. A client keeps nothing open, so you can use it from any thread and make as many clients as
    you like.

    An id may be shortened to its first letters. Every method raises `HoldfastError` or one of its subclasses; the text
    of an error says what happened and what to type next. A killed client stops nothing: tasks continue without it.
    """

    def __init__(self, home: str | PathLike[str] | None = None) -> None:
        """`home`: the directory of the store. Default: $HOLDFAST_HOME, else the home of your user."""
        with public_errors():
            chosen = home_directory() if home is None else os.path.abspath(os.path.expanduser(os.fspath(home)))
        self.home = chosen

    def __repr__(self) -> str:
        return f"Client(home={self.home!r})"

    # -- start -------------------------------------------------------------------------------------------------------

    @public
    def add(self, prompt: str = "", **options: Unpack[TaskOptions]) -> Task:
        """Queue a task and return it. The task is on disk when this returns, and starts when a supervisor runs."""
        commands = Commands(self.home)
        task = commands.add(self._new_task(prompt, options))
        for note in commands.notes:
            warnings.warn(clean_text(note), stacklevel=3)
        return self._read(task.id)

    @public
    def run(self, prompt: str = "", **options: Unpack[TaskOptions]) -> Task:
        """Queue a task, start a supervisor if none is running, and return the task when it is at rest (see `wait`)."""
        refuse_endless_wait(self.home, resolve_parent(self.home, options.get("parent")))
        task = self.add(prompt, **options)
        ensure_supervisor(Queries(self.home))
        return self.wait(task.id)[0]

    # -- look --------------------------------------------------------------------------------------------------------

    @public
    def tasks(
        self,
        *,
        states: TaskState | Collection[TaskState] = (),
        labels: Mapping[str, str] | None = None,
        agent: str | None = None,
        repo: str | PathLike[str] | None = None,
    ) -> list[Task]:
        """Return the tasks that match every given filter, the oldest first."""
        wanted = (states,) if isinstance(states, str) else tuple(states)
        if unknown := [state for state in wanted if state not in STATES]:
            raise UsageError(f"There is no state '{unknown[0]}'. The states are {', '.join(STATES)}.")
        there = None if repo is None else os.path.realpath(repo)

        def matches(row: TaskRow) -> bool:
            return (
                (not wanted or row["state"] in wanted)
                and (labels or {}).items() <= row["labels"].items()
                and agent in (None, row["agent"])
                and there in (None, os.path.realpath(row["repo"]))
            )

        is_living = bool(wanted) and not {"completed", "failed", "cancelled"} & set(wanted)
        rows = Queries(self.home).tasks(everything=not is_living, recent=time.time())
        return [Task._from_row(row) for row in rows if matches(row)]

    @public
    def task(self, id: str) -> Task:
        """Return one task."""
        return self._read(id)

    @public
    def runs(self, id: str) -> list[Run]:
        """Return the runs of a task, in order."""
        queries = Queries(self.home)
        return [Run._from_row(row) for row in queries.task(queries.resolve(id))["runs"]]

    @public
    def results(self, id: str) -> list[StageResult]:
        """Return the result of each stage, with the outcome of its gate. For an unfinished task, return the results so
        far."""
        from holdfast.api.tasks.results import read_results

        queries = Queries(self.home)
        return [StageResult._from_row(row) for row in read_results(queries, queries.resolve(id))["stages"]]

    @public
    def logs(self, id: str, *, run: int | None = None) -> list[LogEntry]:
        """Return what the agent printed and did in run number `run`, by default in its newest run.

        Secrets are redacted. The text is the agent's: it may have characters that control a terminal.
        """
        from holdfast.api.tasks.transcript import read_log

        queries = Queries(self.home)
        return [LogEntry._from_row(row) for row in read_log(queries, queries.resolve(id), run)]

    @public
    def diff(self, id: str, *, stat: bool = False) -> str:
        """Return what a task changed, as a patch or with `stat` as a summary. Empty: nothing."""
        from holdfast.api.work.diff import diff

        queries = Queries(self.home)
        return diff(queries, queries.resolve(id), stat=stat)

    # -- wait --------------------------------------------------------------------------------------------------------

    @public
    def wait(
        self, *ids: str | Ids, first: bool = False, timeout: float | None = None, start_supervisor: bool = True
    ) -> list[Task]:
        """Wait until the tasks are at rest, and return them in the order of `ids`.

        A task is at rest when it ended, is paused, or waits for a person. `first`: return as soon as one task is at
        rest, with all tasks that are at rest then. Raise WaitTimeout after `timeout` seconds. Without
        `start_supervisor`, tasks wait until another process starts a supervisor.
        """
        full = self._resolve(ids)
        watching = watch_tasks(self.home, full, first=first, timeout=timeout, start=start_supervisor)
        return [self._read(task_id) for task_id in next(drive(watching))]

    async def wait_async(
        self, *ids: str | Ids, first: bool = False, timeout: float | None = None, start_supervisor: bool = True
    ) -> list[Task]:
        """Wait like `wait`, and let other coroutines run meanwhile."""
        with public_errors():
            full = self._resolve(ids)
            watching = watch_tasks(self.home, full, first=first, timeout=timeout, start=start_supervisor)
        found = await anext(drive_async(watching))
        with public_errors():
            return [self._read(task_id) for task_id in found]

    def events(self, *, after: int = 0, task: str | None = None, follow: bool = False) -> Iterator[Event]:
        """Yield the events with a number above `after`, of one task or of all. `follow`: follow new events."""
        with public_errors():
            watching = self._watch_events(after, task, follow)
        for batch in drive(watching):
            yield from map(Event._from_row, batch)

    async def events_async(
        self, *, after: int = 0, task: str | None = None, follow: bool = False
    ) -> AsyncIterator[Event]:
        """Yield events like `events`, and let other coroutines run meanwhile."""
        with public_errors():
            watching = self._watch_events(after, task, follow)
        async for batch in drive_async(watching):
            for row in batch:
                yield Event._from_row(row)

    # -- act ---------------------------------------------------------------------------------------------------------
    # Each method takes one id, or a list of ids: then it returns a list, and raises PartlyDone if some were refused.

    @overload
    def cancel(self, id: str, *, why: str = "", subtasks: bool = True) -> Task: ...
    @overload
    def cancel(self, id: Ids, *, why: str = "", subtasks: bool = True) -> list[Task]: ...
    @public
    def cancel(self, id: str | Ids, *, why: str = "", subtasks: bool = True) -> Task | list[Task]:
        """End a task and its subtasks, save their work, and return the task when that is done."""
        ids = self._prepare("cancel", id, why)
        queries, commands = Queries(self.home), Commands(self.home, create=False)
        living = {task_id for task_id in ids if queries.state(task_id)["state"] not in ENDED}

        def begin(task_id: str) -> Callable[[], Task]:
            try:
                request = commands.cancel(task_id, why, subtasks=subtasks)
            except Conflict:
                if task_id in living and queries.state(task_id)["state"] == "cancelled":
                    return lambda: self._read(task_id)  # together with its parent, a moment ago
                raise
            return lambda: self._after_request(request, "cancel", task_id)

        return for_each(id, ids, begin)

    @overload
    def pause(self, id: str, *, seconds: float | None = None, why: str = "") -> Task: ...
    @overload
    def pause(self, id: Ids, *, seconds: float | None = None, why: str = "") -> list[Task]: ...
    @public
    def pause(self, id: str | Ids, *, seconds: float | None = None, why: str = "") -> Task | list[Task]:
        """End a task's agent, keep its workspace and session, and return the task when that is done.

        The task continues after `seconds`, or, without `seconds`, when somebody resumes it.
        """

        def begin(task_id: str) -> Callable[[], Task]:
            request = pause(self.home, task_id, why, seconds)
            return lambda: self._after_request(request, "pause", task_id)

        return for_each(id, self._prepare("pause", id, why), begin)

    @overload
    def resume(self, id: str, *, force: bool = False, append: str = "", **changes: Unpack[TaskChanges]) -> Task: ...
    @overload
    def resume(
        self, id: Ids, *, force: bool = False, append: str = "", **changes: Unpack[TaskChanges]
    ) -> list[Task]: ...
    @public
    def resume(
        self, id: str | Ids, *, force: bool = False, append: str = "", **changes: Unpack[TaskChanges]
    ) -> Task | list[Task]:
        """Continue a paused task. `force`: also beyond its limit of resumes. `append`: further words for its agent.

        A budget is for all runs of the task.
        """
        ids = self._prepare("resume", id, force=force, append=append or None, **changes)
        usd, tokens = changes.pop("budget_usd", None), changes.pop("budget_tokens", None)
        wanted, commands = self._wanted(changes), Commands(self.home, create=False)

        def begin(task_id: str) -> Callable[[], Task]:
            given = self._given(task_id, wanted, append)
            commands.resume(task_id, force=force, budget_usd=usd, budget_tokens=tokens, given=given)
            return lambda: self._read(task_id)

        return for_each(id, ids, begin)

    @overload
    def retry(self, id: str, *, fresh: bool = False, append: str = "", **changes: Unpack[TaskChanges]) -> Task: ...
    @overload
    def retry(
        self, id: Ids, *, fresh: bool = False, append: str = "", **changes: Unpack[TaskChanges]
    ) -> list[Task]: ...
    @public
    def retry(
        self, id: str | Ids, *, fresh: bool = False, append: str = "", **changes: Unpack[TaskChanges]
    ) -> Task | list[Task]:
        """Queue a failed or cancelled task again. `fresh`: from its base instead of where it stopped. `append`: further
        words for its agent."""
        ids = self._prepare("retry", id, fresh=fresh, append=append or None, **changes)
        wanted, commands = self._wanted(changes), Commands(self.home, create=False)

        def begin(task_id: str) -> Callable[[], Task]:
            commands.retry(task_id, fresh=fresh, given=self._given(task_id, wanted, append))
            return lambda: self._read(task_id)

        return for_each(id, ids, begin)

    @overload
    def send(self, id: str, text: str) -> Task: ...
    @overload
    def send(self, id: Ids, text: str) -> list[Task]: ...
    @public
    def send(self, id: str | Ids, text: str) -> Task | list[Task]:
        """Send a message to a task about what to do next. A task that has ended is queued again, with its branch and
        session."""
        from holdfast.api.tasks.messages import send_message

        def begin(task_id: str) -> Callable[[], Task]:
            send_message(self.home, task_id, text)
            return lambda: self._read(task_id)

        return for_each(id, self._prepare("send", id), begin)

    @overload
    def approve(self, id: str, *, changes: str | None = None, stage: str | None = None) -> Task: ...
    @overload
    def approve(self, id: Ids, *, changes: str | None = None, stage: str | None = None) -> list[Task]: ...
    @public
    def approve(self, id: str | Ids, *, changes: str | None = None, stage: str | None = None) -> Task | list[Task]:
        """Approve the stage that waits for you. `changes`: request changes instead, from its builder or `stage`."""
        from holdfast.api.tasks.stages import approve

        def begin(task_id: str) -> Callable[[], Task]:
            approve(self.home, task_id, changes, stage=stage)
            return lambda: self._read(task_id)

        return for_each(id, self._prepare("approve", id), begin)

    @overload
    def set(self, id: str, **changes: Unpack[TaskChanges]) -> Task: ...
    @overload
    def set(self, id: Ids, **changes: Unpack[TaskChanges]) -> list[Task]: ...
    @public
    def set(self, id: str | Ids, **changes: Unpack[TaskChanges]) -> Task | list[Task]:
        """Change a task that is not running."""
        from holdfast.api.tasks.changes import set_task

        ids, wanted, queries = self._prepare("set", id), self._wanted(changes), Queries(self.home)
        if wanted is None:
            raise UsageError(f"Say what to change. The changes are {', '.join(TaskChanges.__annotations__)}.")

        def begin(task_id: str) -> Callable[[], Task]:
            set_task(queries, task_id, wanted)
            return lambda: self._read(task_id)

        return for_each(id, ids, begin)

    @public
    def merge(
        self,
        id: str,
        *,
        into: str | None = None,
        no_ff: bool = False,
        squash: bool = False,
        message: str | None = None,
    ) -> Merge:
        """Merge a task's branch into the branch that it started from, or `into` another one.

        `no_ff`: make a merge commit also where a fast-forward would do. `squash`: make one commit of all changes.
        `message`: of the new commit, which is then made in any case.
        """
        from holdfast.api.work.merge import merge

        (task_id,) = self._prepare("merge", id)
        queries = Queries(self.home)
        done = merge(self.home, queries.task(task_id), into, no_ff=no_ff, squash=squash, message=message)
        return Merge(task=task_id, branch=done.source, into=done.target, commit=done.commit, how=done.how)

    # -- within ------------------------------------------------------------------------------------------------------

    def _new_task(self, prompt: str, options: TaskOptions) -> NewTask:
        given: dict[str, Any] = dict(options)
        if unknown := sorted(given.keys() - TaskOptions.__annotations__.keys()):
            known = ", ".join(sorted(TaskOptions.__annotations__))
            raise UsageError(f"There is no option '{unknown[0]}'. The options are {known}.")
        queries = Queries(self.home) if given.get("after") else None
        after = [queries.resolve(wanted) for wanted in given.pop("after", ())] if queries is not None else []
        command = tuple(map(str, given.pop("command", ())))
        if not prompt and not command and not given.get("workflow"):
            raise UsageError("The prompt is empty. Say what the agent should do: client.run('…').")
        return NewTask(
            prompt=prompt or " ".join(command),
            directory=os.path.abspath(given.pop("repo", ".")),
            command=command,
            after=after,
            parent=resolve_parent(self.home, given.pop("parent", None)),
            labels=dict(given.pop("labels", {})),
            **{key: value for key, value in given.items() if value is not None and key != "after"},
        )

    def _resolve(self, ids: Collection[str | Ids]) -> list[str]:
        words = [word for each in ids for word in list_ids(each)]
        if not words:
            raise UsageError("Say which tasks to wait for: client.wait(task.id).")
        queries = Queries(self.home)
        return [queries.resolve(word) for word in words]

    def _read(self, word: str) -> Task:
        from holdfast.api.tasks.usage import sum_usage

        queries = Queries(self.home)
        [wanted] = list_ids(word)
        row = queries.task(queries.resolve(wanted))
        used = sum_usage(row["agent"], row["runs"]) or {}
        return Task._from_details(row, used.get("tokens"), used.get("cost_usd"))

    def _watch_events(self, after: int, task: str | None, follow: bool) -> Iterator[list[EventRow] | None]:
        queries = Queries(self.home)
        return poll_events(queries, after=after, task_id=None if task is None else queries.resolve(task), follow=follow)

    def _prepare(self, command: str, id: str | Ids, why: str = "", **given: object) -> list[str]:
        """Return the full ids. Raise Refused if this process is inside a run, and the command is for people."""
        if not is_text(why):
            raise UsageError("`why` is not text (it has NUL or undecodable bytes).")
        queries = Queries(self.home)
        ids = list(dict.fromkeys(queries.resolve(word) for word in list_ids(id)))
        for task_id in ids:
            refuse_inside_run(self.home, command, {"id": task_id, **given})
        return ids

    def _wanted(self, changes: TaskChanges) -> Wanted | None:
        """Return the checked changes. None: no change was given. Raise UsageError for an unknown change."""
        from holdfast.api.tasks.changes import parse_changes

        given: dict[str, Any] = dict(changes)
        if unknown := sorted(given.keys() - TaskChanges.__annotations__.keys()):
            known = ", ".join(sorted(TaskChanges.__annotations__))
            raise UsageError(f"There is no change '{unknown[0]}'. The changes are {known}.")
        labels = {f"label.{name}": value for name, value in given.pop("labels", {}).items()}
        if "timeout" in given:
            given["timeout"] = f"{given['timeout']}s"
        pairs = [f"{key}={value}" for key, value in (given | labels).items() if value is not None]
        return parse_changes(pairs) if pairs else None

    def _given(self, task_id: str, wanted: Wanted | None, words: str) -> Given | None:
        if wanted is None and not words:
            return None
        from holdfast.api.tasks.changes import Wanted, read_given

        return read_given(Queries(self.home), task_id, wanted or Wanted(), words)

    def _after_request(self, request: int | None, kind: str, task_id: str) -> Task:
        """Return the task when the request is carried out. Raise Conflict if the supervisor refused it."""
        queries = Queries(self.home)
        if request is not None:
            finish_request(queries, request, kind, task_id)
        return self._read(task_id)
