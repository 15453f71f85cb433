"""Helpers and locks, cancelled at every await: no process lives on, no lock stays."""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess

from tests.faults.conftest import assert_free, assert_no_process
from tests.fleet import Fleet, wait_until
from tests.harness.await_walker import Ended, walk

from holdfast.processes.children import Children
from holdfast.processes.helpers import HelperLock, HelperRunner
from holdfast.workspaces.git.repo_lock import hold_file_lock


def test_no_helper_outlives_its_caller(fleet: Fleet) -> None:
    """Its whole group is killed and reaped before the caller hears of the cancellation."""
    fleet.home.mkdir()
    children, lock = Children(), HelperLock(str(fleet.home))
    lock.take()
    runner = HelperRunner(children, lock)
    script = "sleep 30 & (sleep 30; true) & sleep 0.02"

    async def run() -> tuple[int, bytes, bytes]:
        try:
            return await runner(["sh", "-c", script], cwd="/", env=fleet.env, timeout=20, stdin=b"given")
        finally:
            assert children._known == {}

    def check(_ended: Ended[tuple[int, bytes, bytes]]) -> None:
        assert_no_process(fleet)

    try:
        found = walk(run, check, second=True)
    finally:
        os.close(lock.fd)
    assert len(found.cases) >= 4


TIDY = "trap 'rm -f held; exit 1' TERM; touch held; sleep 30 & wait"  # as git with its lock files


def test_a_cancelled_helper_may_remove_its_lock_files(fleet: Fleet) -> None:
    """Found by the walk of salvages: a git that is killed at once leaves `….lock` behind, for ever in the way."""
    runner, held = HelperRunner(Children()), fleet.root / "held"

    async def until_it_holds() -> None:
        running = asyncio.create_task(runner(["sh", "-c", TIDY], cwd=str(fleet.root), env=fleet.env, timeout=20))
        while not held.exists():  # noqa: ASYNC110 - a file rings no bell
            await asyncio.sleep(0.005)
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(until_it_holds())
    assert not held.exists()
    assert_no_process(fleet)


def test_helpers_of_a_dead_supervisor_may_remove_their_lock_files(fleet: Fleet) -> None:
    fleet.home.mkdir()
    theirs, held = HelperLock(str(fleet.home)), fleet.root / "held"
    theirs.take()
    helper = subprocess.Popen(["sh", "-c", TIDY], cwd=fleet.root, env=fleet.env, pass_fds=(theirs.fd,))
    os.close(theirs.fd)
    wait_until(held.exists, "the helper holds its lock file")
    ours = HelperLock(str(fleet.home))
    ours.take()
    os.close(ours.fd)
    helper.wait(timeout=60)
    assert not held.exists()


def test_a_helper_that_is_late_is_gone_when_it_is_cancelled_too(fleet: Fleet) -> None:
    runner = HelperRunner(Children())

    async def with_deadline() -> int:
        return (await runner(["sleep", "30"], cwd="/", env=fleet.env, timeout=0.01))[0]

    def check(ended: Ended[int]) -> None:
        assert_no_process(fleet)
        assert ended.value == 124 or ended.how == "cancelled"

    walk(with_deadline, check, second=True)


def test_a_lock_is_let_go_by_its_holder_and_by_those_who_wait(fleet: Fleet) -> None:
    path = fleet.root / "some.lock"

    async def hold_for_a_moment() -> None:
        other = os.open(path, os.O_RDWR | os.O_CREAT)
        fcntl.flock(other, fcntl.LOCK_EX)
        timer = asyncio.get_running_loop().call_later(0.02, fcntl.flock, other, fcntl.LOCK_UN)
        try:
            async with hold_file_lock(str(path)):
                await asyncio.sleep(0.001)
        finally:
            timer.cancel()
            os.close(other)

    def check(_ended: Ended[None]) -> None:
        assert_free(path)

    found = walk(hold_for_a_moment, check, second=True)
    assert found.awaits >= 2  # it waited for its turn, then it held


def test_two_that_want_one_lock_never_hold_it_together(fleet: Fleet) -> None:
    """Whichever of the two is cancelled, and wherever: the other one gets it, alone."""
    path, holding, met = fleet.root / "some.lock", [0], [False]

    async def hold() -> None:
        async with hold_file_lock(str(path)):
            holding[0] += 1
            met[0] = met[0] or holding[0] > 1
            try:
                await asyncio.sleep(0.002)
            finally:
                holding[0] -= 1

    async def both() -> None:
        pair = [asyncio.create_task(hold()) for _ in range(2)]
        try:
            await asyncio.gather(*pair)
        finally:
            for one in pair:
                one.cancel()
            await asyncio.wait(pair)

    def check(_ended: Ended[None]) -> None:
        assert not met[0]
        assert holding == [0]
        assert_free(path)

    walk(both, check, children=True)
