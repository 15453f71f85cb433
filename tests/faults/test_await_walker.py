"""The await walker itself: it finds planted bugs, says where, and lets correct code pass."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.harness.await_walker import LATE, SOON, Case, Ended, WalkFailed, walk

Make = Callable[[], Coroutine[Any, Any, Any]]


@pytest.fixture(autouse=True)
def as_if_nothing_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOLDFAST_WALK", "HOLDFAST_WALK_ALL", "HOLDFAST_WALK_MOST", "HOLDFAST_WALK_SEED"):
        monkeypatch.delenv(name, raising=False)


class Lock:
    """A resource that counts its holders."""

    def __init__(self) -> None:
        self.held = 0

    async def take(self) -> None:
        self.held += 1
        await asyncio.sleep(0)

    async def give_back(self) -> None:
        await asyncio.sleep(0)
        self.held -= 1


def nothing(_ended: Ended[Any]) -> None:
    return


def failure(make: Make, check: Callable[[Ended[Any]], None] = nothing, **options: Any) -> str:
    with pytest.raises(WalkFailed) as caught:
        walk(make, check, **options)
    return str(caught.value)


# -- correct code ------------------------------------------------------------------------------------------------------


async def correct() -> str:
    read_end, write_end = os.pipe()
    try:
        await asyncio.sleep(0)
        async with asyncio.timeout(5):
            await asyncio.to_thread(os.write, write_end, b"x")
        child = asyncio.create_task(asyncio.sleep(0))
        try:
            await child
        finally:
            child.cancel()
            await asyncio.wait([child])
    finally:
        os.close(read_end)
        os.close(write_end)
    return "done"


def test_correct_code_passes_and_every_await_is_cancelled_in_both_modes() -> None:
    seen: list[Ended[str]] = []

    async def two_awaits() -> str:
        await asyncio.sleep(0.001)
        await asyncio.sleep(0.001)
        return "done"

    found = walk(two_awaits, seen.append)
    assert [str(case) for case in found.cases] == ["0:soon", "1:soon", "2:soon", "0:late", "1:late", "2:late"]
    assert [ended.how for ended in seen if ended.delivered] == ["cancelled"] * 6
    assert seen[0].value == "done"  # first it was left alone
    places = [ended.where.rpartition(" > ")[0].rpartition(":")[2] for ended in seen if ended.delivered]
    assert places[0] == places[3] == ""
    assert int(places[2]) == int(places[1]) + 1  # the line of the second await


def test_threads_children_and_second_cancellations_of_correct_code_pass() -> None:
    async def waits_for_its_thread() -> None:
        work = asyncio.ensure_future(asyncio.to_thread(time.sleep, 0.001))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            while not work.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([work])
            raise

    found = walk(waits_for_its_thread, nothing, second=True)
    assert any(case.j == 1 for case in found.cases)


# -- planted bugs ------------------------------------------------------------------------------------------------------


def test_a_resource_that_leaks_between_taking_it_and_try() -> None:
    lock = Lock()

    async def leaky() -> None:
        await lock.take()  # a cancellation in here is before the `try`
        try:
            await asyncio.sleep(0)
        finally:
            lock.held -= 1

    def check(_ended: Ended[None]) -> None:
        assert lock.held == 0, "still held"

    text = failure(leaky, check)
    assert "AssertionError: still held" in text
    assert "Lock.take:" in text
    assert "leaky:" in text
    assert "replay:  HOLDFAST_WALK=1:soon pytest 'tests/faults/test_await_walker.py::test_a_resource" in text


def test_a_descriptor_that_leaks() -> None:
    async def leaky() -> None:
        ends = os.pipe()
        await asyncio.sleep(0)
        for end in ends:
            os.close(end)

    text = failure(leaky)
    assert "a descriptor is left open" in text
    assert "pipe:[" in text


def test_a_swallowed_cancellation() -> None:
    async def deaf() -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        return "continued"

    assert "swallowed the cancellation and returned 'continued'" in failure(deaf)


def test_an_error_in_the_place_of_the_cancellation() -> None:
    async def wrong() -> None:
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            raise ValueError("stopped") from None

    assert "raised ValueError('stopped') instead of CancelledError" in failure(wrong)


def test_the_late_cancellation_that_wait_for_swallows() -> None:
    """Python 3.11: the inner task is done, the cancellation comes in the same tick. `asyncio.timeout` gets it right."""

    async def with_wait_for() -> str:
        await asyncio.wait_for(asyncio.sleep(0.001), timeout=5)
        return "continued"

    async def with_timeout() -> str:
        async with asyncio.timeout(5):
            await asyncio.sleep(0.001)
        return "done"

    text = failure(with_wait_for)
    assert "mode late" in text
    assert "swallowed" in text
    walk(with_timeout, nothing, second=True)


def test_a_cleanup_that_is_itself_cancellable_needs_a_second_cancellation() -> None:
    lock = Lock()

    async def fragile() -> None:
        lock.held = 1
        try:
            await asyncio.sleep(0)
        except BaseException:
            await lock.give_back()
            raise
        lock.held = 0

    def check(_ended: Ended[None]) -> None:
        assert lock.held == 0, "still held"

    walk(fragile, check, modes=(SOON,))  # once is not enough to see it
    text = failure(fragile, check, second=True)
    assert "again: " in text
    assert "Lock.give_back" in text
    assert "HOLDFAST_WALK=1:soon:1" in text


def test_a_task_that_is_left_over() -> None:
    async def careless() -> None:
        child = asyncio.create_task(asyncio.sleep(10))
        await asyncio.sleep(0)
        child.cancel()
        await asyncio.wait([child])

    assert "a task is left over" in failure(careless)


def test_a_thread_that_is_left_at_work() -> None:
    async def careless() -> None:
        await asyncio.to_thread(time.sleep, 0.5)  # long enough for a busy machine to look while it sleeps

    assert "a thread is still at work: sleep" in failure(careless)


def test_an_exception_that_nobody_saw() -> None:
    async def fails() -> None:
        raise ValueError("unseen")

    async def careless() -> None:
        child = asyncio.create_task(fails())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        with contextlib.suppress(ValueError):
            await child

    text = failure(careless)
    assert "never retrieved" in text
    assert "unseen" in text


def test_a_child_that_is_cancelled_at_its_own_awaits() -> None:
    """With `children`, the task that the coroutine made is the victim: whoever waits for it must notice."""

    async def helper() -> str:
        await asyncio.sleep(0.001)
        try:
            await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            await asyncio.sleep(0.001)
            raise
        return "result"

    async def parent() -> str:
        child = asyncio.create_task(helper())
        await asyncio.wait([child])
        return child.result()

    seen: list[str] = []

    def check(ended: Ended[str]) -> None:
        if ended.case is not None and ended.case.of_child:
            seen.append(f"{ended.case} {ended.how}")

    with pytest.raises(WalkFailed, match="a task is left over"):  # its own cancellation leaves the child behind
        walk(parent, check, children=True)

    async def better() -> str:
        child = asyncio.create_task(helper())
        try:
            return await child
        finally:
            child.cancel()
            await asyncio.wait([child])

    walk(better, check, children=True)
    assert seen[:2] == ["child.1:soon cancelled", "child.2:soon cancelled"]


def test_code_that_hangs_when_it_is_cancelled() -> None:
    async def stubborn() -> None:
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            await asyncio.Event().wait()

    text = failure(stubborn, patience=0.1)
    assert "it has not ended after 0.1 s; it waits at" in text
    assert "Event.wait:" in text


def test_a_case_in_a_process_of_its_own_is_judged_the_same() -> None:
    mine = os.getpid()

    async def leaky() -> int:
        ends = os.pipe()
        await asyncio.sleep(0)
        for end in ends:
            os.close(end)
        return os.getpid() - mine

    assert "a descriptor is left open" in failure(leaky, apart=True)

    async def dies() -> None:
        await asyncio.sleep(0)
        os._exit(3)

    assert "its process ended without an answer" in failure(dies, apart=True)


def test_an_error_in_a_thread_is_heard() -> None:
    def fail() -> None:
        raise ValueError("in a thread")

    async def careless() -> None:
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()

    assert "in a thread" in failure(careless)


# -- choosing cases ----------------------------------------------------------------------------------------------------


async def long_one() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def test_a_sample_is_the_same_for_the_same_seed_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, same = walk(long_one, nothing, most=10), walk(long_one, nothing, most=10)
    assert first.cases == same.cases
    assert len(first.cases) == 10
    assert "50 awaits, 10 cancellations (a sample, seed 1;" in capsys.readouterr().out
    monkeypatch.setenv("HOLDFAST_WALK_SEED", "2")
    assert walk(long_one, nothing, most=10).cases != first.cases
    monkeypatch.setenv("HOLDFAST_WALK_MOST", "20")
    assert len(walk(long_one, nothing, most=10).cases) == 20
    monkeypatch.setenv("HOLDFAST_WALK_ALL", "1")
    assert len(walk(long_one, nothing, most=10).cases) == 102


def test_one_case_can_be_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_WALK", "7:late")
    assert [str(case) for case in walk(long_one, nothing).cases] == ["7:late"]
    monkeypatch.setenv("HOLDFAST_WALK", "51:late")
    with pytest.raises(WalkFailed, match="ended by itself before that await"):
        walk(long_one, nothing)


@pytest.mark.parametrize("text", ["0:soon", "7:late:2", "child.3:soon", "child.3:late:1"])
def test_the_name_of_a_case_can_be_read_back(text: str) -> None:
    assert str(Case.parse(text)) == text


def test_asking_for_a_stop_in_another_way() -> None:
    """With `interrupt` the walked code may end as it likes; `check` judges."""
    stopping: list[bool] = []

    async def polite() -> str:
        stopping.clear()
        for _ in range(5):
            if stopping:
                return "stopped"
            await asyncio.sleep(0)
        return "done"

    def check(ended: Ended[str]) -> None:
        if ended.case is not None and 0 < ended.case.k < 5 and ended.delivered:
            assert ended.value == "stopped"

    found = walk(polite, check, interrupt=lambda _task: stopping.append(True), modes=(LATE,))
    assert len(found.cases) == 6
