"""One coroutine, run once and cancelled at one chosen suspension; then a look at what it left behind.

The mechanism of `tests.harness.await_walker`, which chooses the cases. A coroutine is wrapped in an object with `send`
and `throw`, which asyncio.Task takes as it is: every value that comes out of them is one suspension. A task factory
wraps the tasks that the coroutine makes in the same way.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import os
import pickle
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Generic, TypeVar

T = TypeVar("T")
THREAD_HEAD_START = 0.002  # a thread works a little later, so that a cancellation meets it at work, every time
FD_PATIENCE = 1.0  # other threads open files for a moment, too


class Mode(StrEnum):
    """When the cancellation arrives."""

    SOON = "soon"  # while it is suspended: what it waits for is not there yet
    LATE = "late"  # what it waits for is there, but it was not woken up yet: the tick that `wait_for` gets wrong


@dataclass(frozen=True, kw_only=True, order=True)
class Case:
    """Cancel at the k-th suspension, and once more at the j-th after that (0: only once).

    k = 0 cancels before the first step: a task that was made and never ran.
    """

    of_child: bool = False  # the task that is suspended, one that the coroutine made, instead of the coroutine itself
    k: int
    mode: Mode
    j: int = 0

    def __str__(self) -> str:
        again = f":{self.j}" if self.j else ""
        return f"{'child.' if self.of_child else ''}{self.k}:{self.mode}{again}"

    @classmethod
    def parse(cls, text: str) -> Case:
        """The other way round: `7:soon`, `7:late:2`, `child.3:soon`."""
        words = text.removeprefix("child.").split(":")
        return cls(
            of_child=text.startswith("child."),
            k=int(words[0]),
            mode=Mode(words[1]),
            j=int(words[2]) if len(words) > 2 else 0,
        )


@dataclass(kw_only=True)
class Ended(Generic[T]):
    """How one run went. `check` gets it."""

    case: Case | None  # None: it was left alone
    how: str = "hung"  # returned | cancelled | raised | hung
    value: T | None = None
    error: BaseException | None = None
    where: str = ""  # the chain of awaits at which it was cancelled: function:line > function:line
    again: str = ""  # and where the second time
    awaits: int = 0  # suspensions until the cancellation, of the coroutine and of the tasks that it made
    child_awaits: int = 0
    awaits_after: int = 0  # suspensions after it
    reached: bool = False  # there was such a suspension …
    delivered: bool = False  # … and the cancellation arrived
    delivered_again: bool = False
    cleanup_seconds: float = 0.0  # from the cancellation to the end
    left: list[str] = field(default_factory=list)  # tasks, threads, descriptors, exceptions that nobody saw


class _Stepper(Coroutine[Any, Any, T]):
    """A coroutine that tells its family about each suspension."""

    def __init__(self, inner: Coroutine[Any, Any, T], family: _Family) -> None:
        self.inner = inner
        self.task: asyncio.Task[Any] | None = None
        self._family = family

    def send(self, value: Any) -> Any:
        return self._suspended(self.inner.send(value))

    def throw(self, *error: Any) -> Any:
        return self._suspended(self.inner.throw(*error))

    def close(self) -> None:
        self.inner.close()

    def __await__(self) -> Any:
        return self.inner.__await__()

    def _suspended(self, awaited: Any) -> Any:
        self._family.suspended(self, awaited)
        return awaited


class _Family:
    """The walked coroutine and the tasks that it makes."""

    def __init__(self, ended: Ended[Any], interrupt: Callable[[asyncio.Task[Any]], object]) -> None:
        self.main: asyncio.Task[Any] | None = None
        self._ended = ended
        self._interrupt = interrupt
        self._struck_at = 0.0

    def suspended(self, stepper: _Stepper[Any], awaited: Any) -> None:
        ended, case = self._ended, self._ended.case
        task = asyncio.current_task() if stepper.task is None else stepper.task
        assert task is not None
        if ended.delivered:
            ended.awaits_after += 1
            if case is not None and case.j == ended.awaits_after:
                ended.again = chain(stepper)
                self._strike(task, awaited, case, "delivered_again")
            return
        ended.awaits += 1
        ended.child_awaits += task is not self.main
        if case is None or ended.reached or (case.of_child and task is self.main):
            return
        if case.k == (ended.child_awaits if case.of_child else ended.awaits):
            ended.reached, ended.where = True, chain(stepper)
            self._strike(task, awaited, case, "delivered")

    def _strike(self, suspended: asyncio.Task[Any], awaited: Any, case: Case, noted_as: str) -> None:
        victim = suspended if case.of_child else self.main
        assert victim is not None

        def deliver(*_done: object) -> None:
            if not victim.done():
                setattr(self._ended, noted_as, True)
                self._struck_at = self._struck_at or time.monotonic()
                self._interrupt(victim)

        if case.mode is Mode.LATE and asyncio.isfuture(awaited):
            awaited.add_done_callback(deliver)  # before the task's own: it runs first, in the same tick
        else:
            asyncio.get_running_loop().call_soon(deliver)

    def strike_before_the_first_step(self) -> None:
        assert self.main is not None
        self._ended.reached = self._ended.delivered = True
        self._ended.where = "before its first step"
        self._struck_at = time.monotonic()
        self._interrupt(self.main)

    def seconds_since_the_strike(self) -> float:
        return time.monotonic() - self._struck_at if self._struck_at else 0.0


_family: ContextVar[_Family | None] = ContextVar("walked family", default=None)


def _make_task(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T] | Generator[Any, None, T], **options: Any
) -> asyncio.Task[T]:
    """The task factory: what a walked coroutine starts belongs to its family."""
    family = _family.get()
    if family is None or not isinstance(work, Coroutine):
        return asyncio.Task(work, loop=loop, **options)
    stepper = _Stepper(work, family)
    stepper.task = asyncio.Task(stepper, loop=loop, **options)
    return stepper.task


class _Threads(ThreadPoolExecutor):
    """The loop's threads; knows what they work at."""

    def __init__(self) -> None:
        super().__init__(thread_name_prefix="walked")
        self._given: list[tuple[str, Future[Any]]] = []

    def submit(self, work: Callable[..., T], /, *arguments: Any, **named: Any) -> Future[T]:
        def later() -> T:
            time.sleep(THREAD_HEAD_START)
            return work(*arguments, **named)

        future = super().submit(later)
        inner = work.args[0] if isinstance(work, functools.partial) and work.args else work  # as to_thread hands it in
        self._given.append((getattr(inner, "__qualname__", repr(inner)), future))
        return future

    def at_work(self) -> list[str]:
        return [name for name, future in self._given if not future.done()]


def run_case(
    work: Coroutine[Any, Any, T],
    case: Case | None,
    *,
    interrupt: Callable[[asyncio.Task[Any]], object] = asyncio.Task.cancel,
    patience: float = 30.0,
    apart: bool = False,
) -> Ended[T]:
    """Run `work` once on an event loop of its own (`apart`: in a process of its own), cancelled as `case` says."""
    if apart:
        ended_there = _in_a_process(lambda: run_case(work, case, interrupt=interrupt, patience=patience), patience)
        work.close()  # it ran over there
        return ended_there or Ended(case=case, left=["its process ended without an answer"])
    ended: Ended[T] = Ended(case=case)
    with _hearing_what_nobody_sees(ended.left), asyncio.Runner() as runner:
        runner.run(_run(work, ended, interrupt, patience))
    return ended


def _in_a_process(run: Callable[[], Ended[T]], patience: float) -> Ended[T] | None:
    """Forked: for code that owns its process (signal handlers, children of a dead one). Its value stays there."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            ended = run()
            error = None if ended.error is None else RuntimeError(repr(ended.error))
            with open(writing, "wb") as answer:
                pickle.dump(replace(ended, value=None, error=error), answer)
        finally:
            os._exit(0)  # whatever happened: nothing of the parent's may run here
    os.close(writing)
    try:
        with open(reading, "rb") as answer:
            if not select.select([answer], [], [], 2 * patience)[0]:
                os.kill(pid, signal.SIGKILL)
            text = answer.read()
    finally:
        os.waitpid(pid, 0)
    ended_there: Ended[T] | None = pickle.loads(text) if text else None
    return ended_there


async def _run(
    work: Coroutine[Any, Any, T],
    ended: Ended[T],
    interrupt: Callable[[asyncio.Task[Any]], object],
    patience: float,
) -> None:
    loop, threads = asyncio.get_running_loop(), _Threads()
    loop.set_task_factory(_make_task)
    loop.set_default_executor(threads)
    loop.set_exception_handler(lambda _loop, context: ended.left.append(_told(context)))
    before = _descriptors()
    family = _Family(ended, interrupt)
    context = copy_context()
    context.run(_family.set, family)
    stepper = _Stepper(work, family)
    stepper.task = family.main = task = loop.create_task(stepper, context=context)
    if ended.case is not None and ended.case.k == 0:
        family.strike_before_the_first_step()
    await asyncio.wait([task], timeout=patience)
    ended.cleanup_seconds = family.seconds_since_the_strike()
    ended.left += [f"a thread is still at work: {name}" for name in threads.at_work()]
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if not task.done():
        ended.left.append(f"it has not ended after {patience:g} s; it waits at {chain(stepper)}")
    else:
        _note_the_end(task, ended)
    ended.left += [f"a task is left over: {other.get_name()} at {chain(other.get_coro())}" for other in others - {task}]
    for other in others:
        other.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    others.clear()
    del task, stepper, family.main
    gc.collect()  # a task whose exception nobody saw complains when it is collected
    ended.left += [f"a descriptor is left open: {name}" for name in _opened_since(before)]


def _note_the_end(task: asyncio.Task[T], ended: Ended[T]) -> None:
    if task.cancelled():
        ended.how = "cancelled"
    elif (error := task.exception()) is not None:
        ended.how, ended.error = "raised", error
    else:
        ended.how, ended.value = "returned", task.result()


def chain(work: Any) -> str:
    """Where a suspended coroutine is: function:line, from the outermost to the innermost await."""
    found = []
    while work is not None:
        if isinstance(work, _Stepper):
            work = work.inner
        frame = getattr(work, "cr_frame", None) or getattr(work, "gi_frame", None) or getattr(work, "ag_frame", None)
        if frame is not None:
            found.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
        work = getattr(work, "cr_await", None) or getattr(work, "gi_yieldfrom", None) or getattr(work, "ag_await", None)
    return " > ".join(found)


def _descriptors() -> dict[int, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one with which we look is gone already
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    return found


def _opened_since(before: dict[int, str]) -> list[str]:
    deadline = time.monotonic() + FD_PATIENCE
    while True:
        opened = {number: name for number, name in _descriptors().items() if before.get(number) != name}
        if not opened or time.monotonic() > deadline:
            return [f"{number} → {name}" for number, name in sorted(opened.items())]
        time.sleep(0.01)


def _told(context: dict[str, Any]) -> str:
    return f"nobody saw it: {context.get('message')} {context.get('exception', '')!r}"


@contextlib.contextmanager
def _hearing_what_nobody_sees(left: list[str]) -> Iterator[None]:
    """Errors in destructors and in threads are printed and forgotten otherwise."""
    unraisable, in_thread = sys.unraisablehook, threading.excepthook
    sys.unraisablehook = lambda seen: left.append(f"nobody saw it: {seen.exc_value!r} in {seen.object!r}")
    threading.excepthook = lambda seen: left.append(f"nobody saw it: {seen.exc_value!r} in {seen.thread}")
    gc.freeze()  # what was there before is not searched again for every case
    try:
        yield
    finally:
        gc.unfreeze()
        sys.unraisablehook, threading.excepthook = unraisable, in_thread
