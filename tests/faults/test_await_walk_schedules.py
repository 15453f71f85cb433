"""The fire path of schedules, cancelled at every await: at most one task per occurrence, and none is lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import tempfile
from types import SimpleNamespace
from typing import cast

import pytest
from tests.faults.stage import Work
from tests.harness.await_walker import Ended, walk
from tests.integration.supervisor.timetable import Board

from holdfast.base.instant import Instant
from holdfast.core.schedules.schedule import Overlap, Schedule
from holdfast.core.tasks.requests import RequestAnswer, RequestResult
from holdfast.store.port.transaction import Host, Transaction, Writer
from holdfast.store.sqlite.engine.group_commit import GroupWriter
from holdfast.store.sqlite.engine.store import SqliteStore
from holdfast.supervisor.context import Context, WakeUp
from holdfast.supervisor.services import reload
from holdfast.supervisor.services.schedules import ScheduleService

BEGIN = 1_800_000_000.0
SECONDS = 2


class Ticking:
    """A home with a schedule of every second, a clock that only the walk moves, and one supervisor after the other."""

    def __init__(self, overlap: Overlap) -> None:
        self.home = tempfile.mkdtemp(prefix="holdfast-ticking-", dir="/dev/shm")
        self.now = Instant(wall=BEGIN, boottime=1.0, boot_id="boot")
        self.schedule = Schedule(name="tick", repo="/repo", cron="* * * * * *", overlap=overlap)
        with contextlib.closing(SqliteStore(self.home)) as store:
            repo = store.write(lambda tx: tx.workspaces.register_repo("/repo", "/repo/.git", self.now))
            host = Host(id="host", boot_id="boot", pid=1, start_ticks=1, version="0", agents=1)
            store.write(lambda tx: tx.hosts.open(host, 30.0, self.now))
            store.write(lambda tx: tx.schedules.enrol("/config.toml", [self.schedule], self.now))
        self.board = Board(repo, lambda: self.now)
        self.board.write(self.schedule)

    async def live(self) -> None:
        """A supervisor that looks at this second, then sees the others come."""
        with contextlib.ExitStack() as closing:
            writer = GroupWriter(self.home)
            closing.callback(writer.close)
            context = SimpleNamespace(
                host_id="host",
                ports=SimpleNamespace(schedule_files=self.board),
                writer=writer,
                clock=lambda: self.now,
                bell=WakeUp(),
            )
            service = ScheduleService(cast("Context", context))
            await self.look(service, writer)
            while self.now.wall < BEGIN + SECONDS:
                self.now = self.now._replace(wall=self.now.wall + 1, boottime=self.now.boottime + 1)
                await self.look(service, writer)

    async def look(self, service: ScheduleService, writer: Writer) -> None:
        """What replaces another one waits for its end; else each task ends before the next one is due."""
        for _ in range(2):
            await service.tick()
            if self.schedule.overlap is Overlap.REPLACE:
                await writer.write(self.carry_out)
        if self.schedule.overlap is Overlap.SKIP:
            await writer.write(self.end_last)

    def carry_out(self, tx: Transaction) -> None:
        for request in tx.requests.pending():
            self.end_last(tx)
            tx.requests.answer(request.id, RequestAnswer(RequestResult.CANCELLED), self.now)

    def end_last(self, tx: Transaction) -> None:
        for record in tx.schedules.all():
            if record.is_busy and record.last_task is not None:
                tx.tasks.cancel_waiting(record.last_task, "ada", "", self.now)

    def fires(self) -> tuple[list[float], int]:
        """And how many tasks there are."""
        with contextlib.closing(SqliteStore(self.home)) as store:
            events = store.view("events", after=0, task=None, limit=1000)
            fires = [json.loads(row["data"])["fire_time"] for row in events if row["kind"] == "schedule.fired"]
            return fires, len(store.view("tasks"))


@pytest.mark.parametrize("overlap", [Overlap.SKIP, Overlap.REPLACE])
def test_every_second_is_fired_once_whoever_is_cancelled(overlap: Overlap, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-CRON-02: the second at which its supervisor is cancelled is fired by that one or by the next."""
    monkeypatch.setattr(reload, "SETTLE", 0.0)
    current: list[Ticking] = []

    def make() -> Work:
        current[:] = [Ticking(overlap)]
        return current[0].live()

    def check(_ended: Ended[None]) -> None:
        [ticking] = current
        seen = ticking.now.wall
        try:
            with contextlib.closing(SqliteStore(ticking.home)) as store:
                store.write(ticking.end_last if overlap is Overlap.SKIP else ticking.carry_out)
            asyncio.run(ticking.live())  # the next supervisor
            came = [BEGIN + number for number in range(1, SECONDS + 1)]
            assert ticking.fires() == (came, len(came)), f"cancelled at second {seen - BEGIN:.0f}"
        finally:
            shutil.rmtree(ticking.home, ignore_errors=True)

    assert len(walk(make, check, most=10).cases) >= 5
