"""Schedules against a plain model: any walk of clocks, restarts, rivals, operators and changed files.

The real parts are the supervisor's service and the SQLite store, twice: two hosts on one file. The model knows no cron
library and no SQL: it looks at a clock on the wall, minute by minute or second by second. After each step, what fired
must be what the model says, in its order, and nothing twice. A failure prints the walk as a program.

HOLDFAST_TEST_SCHEDULES=n plays n walks of 50 steps (200 are 10,000 steps).
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import itertools
import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast
from zoneinfo import ZoneInfo

from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.core.schedules.test_cron import is_shown
from tests.integration.supervisor.timetable import Board
from tests.sampling import amount

from holdfast.base.instant import Instant
from holdfast.core.schedules.schedule import Misfire, Overlap, Schedule, ScheduleRecord
from holdfast.core.states import TaskState
from holdfast.core.tasks.requests import RequestAnswer, RequestResult
from holdfast.store.port.transaction import Host, Operation, T
from holdfast.store.sqlite.engine.store import SqliteStore
from holdfast.supervisor.context import Context, WakeUp
from holdfast.supervisor.services import reload
from holdfast.supervisor.services.schedules import ScheduleService

WALKS = int(os.environ.get("HOLDFAST_TEST_SCHEDULES", amount(6, in_all=40)))
STEPS = 50
DAY = 86400.0
NAME, REPO = "walk", "/repo"
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"]
CRONS = [
    *("* * * * * *", "*/20 * * * * *", "30 */5 * * * *", "*/10 * * * *", "0 * * * *", "5 */2 * * *"),
    *("30 2 * * *", "15,45 1-3 * * *", "0 0 * * 1", "0 12 30 12 *"),
]
# Where clocks are set in these zones (UTC).
CHANGES = [
    *("2026-03-29T01:00", "2026-10-25T01:00", "2027-03-14T07:00", "2027-11-07T06:00"),
    *("2026-04-04T15:00", "2026-10-03T15:30", "2011-12-30T10:00"),
]
TALLY: Counter[str] = Counter()
if "HOLDFAST_TEST_SCHEDULES" in os.environ:
    atexit.register(lambda: print(f"schedules: {dict(TALLY)}", file=sys.__stderr__))
EARLIEST, LATEST = datetime(2005, 1, 1, tzinfo=UTC).timestamp(), datetime(2060, 1, 1, tzinfo=UTC).timestamp()


# -- when it should fire, by looking at clocks -----------------------------------------------------------------------


@functools.lru_cache(maxsize=100_000)
def wall(zone: str, moment: int) -> datetime:
    return datetime.fromtimestamp(moment, ZoneInfo(zone)).replace(tzinfo=None)


def backwards(cron: str, zone: str, moment: float) -> Iterator[int]:
    """Occurrences until a moment, the latest first."""
    fields = cron.split()
    by_the_day = len(fields) == 5 and not fields[0].startswith("*") and not fields[1].startswith("*")
    if by_the_day:
        yield from daily_backwards(cron, zone, int(moment))
        return
    step = 1 if len(fields) == 6 else 60
    for candidate in itertools.count(int(moment) // step * step, -step):
        if is_shown(cron, wall(zone, candidate)):
            yield candidate


def daily_backwards(cron: str, zone: str, moment: int) -> Iterator[int]:
    """Every time of day that it names is one moment of that day: the first at which a clock shows it, or is beyond."""
    day = wall(zone, moment).date() + timedelta(days=2)
    last: int | None = None
    while True:
        found = {first_shown(zone, n) for n in times(cron, day)} if is_day(cron, day) else set()
        for candidate in sorted(found, reverse=True):
            if candidate <= moment and (last is None or candidate < last):
                last = candidate
                yield candidate
        day -= timedelta(days=1)


@functools.cache
def minutes(cron: str) -> list[tuple[int, int]]:
    every = " ".join([*cron.split()[:2], "* * *"])
    day = datetime(2026, 1, 1)  # noqa: DTZ001 - on a wall
    return [(n // 60, n % 60) for n in range(1440) if is_shown(every, day + timedelta(minutes=n))]


def times(cron: str, day: date) -> list[datetime]:
    return [datetime(day.year, day.month, day.day, hour, minute) for hour, minute in minutes(cron)]  # noqa: DTZ001 - on a wall


@functools.lru_cache(maxsize=100_000)
def is_day(cron: str, day: date) -> bool:
    anytime = " ".join(["*", "*", *cron.split()[2:]])
    return is_shown(anytime, datetime(day.year, day.month, day.day))  # noqa: DTZ001 - on a wall


@functools.lru_cache(maxsize=100_000)
def first_shown(zone: str, shown: datetime) -> int:
    found = int(shown.replace(tzinfo=ZoneInfo(zone), fold=0).timestamp())
    if wall(zone, found) == shown:
        return found
    candidate = found - 2 * 86400  # leapt over: the first minute that is beyond it
    while wall(zone, candidate) < shown:
        candidate += 1800
    candidate -= 1800
    while wall(zone, candidate) < shown:
        candidate += 60
    return candidate


# -- the model -------------------------------------------------------------------------------------------------------


@dataclass
class Model:
    schedule: Schedule
    cursor: float
    word: bool | None = None
    by_hand: bool = False  # somebody has fired it
    going: int = 0  # tasks that have not ended: one by the clock, and any number by hand
    waiting: list[float] = field(default_factory=list)
    fired: list[float] = field(default_factory=list)
    decided: set[float] = field(default_factory=set)  # those that have a row, and do not wait
    old: set[float] = field(default_factory=set)  # those that had one
    failures: int = 0
    tried: float | None = None

    @property
    def enabled(self) -> bool:
        return self.schedule.enabled if self.word is None else self.word

    @property
    def busy(self) -> bool:
        return self.going > 0

    def begin(self, now: float) -> None:
        self.cursor = now
        self.decided |= set(self.waiting)
        self.waiting.clear()
        self.failures, self.tried = 0, None

    def rewrite(self, schedule: Schedule, now: float) -> None:
        before, was = self.schedule, self.enabled
        if schedule == before:
            return
        self.schedule = schedule
        if before.enabled != schedule.enabled:
            self.word = None
        self.failures, self.tried = 0, None
        if (before.cron, before.zone) != (schedule.cron, schedule.zone) or was != self.enabled:
            self.begin(now)

    def is_done_with(self, moment: float) -> bool:
        if moment in self.decided or moment in self.waiting or moment in self.old:
            return True
        before = [one for one in self.old if one < moment]
        after = [one for one in self.old if one > moment]
        return bool(before and after and min(after) - max(before) <= DAY)

    def look(self, now: float, *, refused: bool) -> None:
        if not self.enabled:
            return
        self.cursor = min(self.cursor, now)
        came: list[float] = []
        for moment in backwards(self.schedule.cron, self.schedule.zone, now):
            if moment <= self.cursor or len(came) == self.schedule.most + 1:
                break
            came.append(float(moment))
        if came:
            self.cursor = came[0]
            self.take_in(came, now)
        self.go_on(now, refused=refused)

    def at_most(self) -> int:
        if self.schedule.misfire is not Misfire.ALL or self.schedule.overlap is Overlap.REPLACE:
            return 1
        return self.schedule.most

    def take_in(self, came: list[float], now: float) -> None:
        count = self.at_most()
        if self.schedule.misfire is Misfire.SKIP and now - came[0] > 60:
            return
        new = [moment for moment in reversed(came[:count]) if not self.is_done_with(moment)]
        if self.busy and self.schedule.overlap is Overlap.SKIP:
            surplus = self.waiting[:-count]
            self.decided |= set(new) | set(surplus)
            self.waiting = [moment for moment in self.waiting if moment not in surplus]
            return
        pending = sorted([*self.waiting, *new])
        self.waiting = pending[-count:]
        self.decided |= set(pending[:-count])

    def go_on(self, now: float, *, refused: bool) -> None:
        if self.busy or not self.waiting:
            return
        wait = min(300.0, 2.0 * 2.0 ** min(self.failures - 1, 10))
        if self.tried is not None and self.tried <= now < self.tried + wait:
            return
        count = self.at_most()
        self.decided |= set(self.waiting[:-count])
        self.waiting = self.waiting[-count:]
        if refused:
            self.failures += 1
            self.tried = now
            return
        moment = self.waiting.pop(0)
        self.fired.append(moment)
        self.decided.add(moment)
        self.going, self.failures, self.tried = self.going + 1, 0, None


# -- the walk --------------------------------------------------------------------------------------------------------


class StoreWriter:
    """A host's way to the store; others come in between, at every await."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    async def write(self, operation: Operation[T], operation_id: str | None = None) -> T:
        await asyncio.sleep(0)
        done = self._store.write(operation, operation_id)
        await asyncio.sleep(0)
        return done

    def close(self) -> None:
        return


schedules = st.builds(
    Schedule,
    name=st.just(NAME),
    repo=st.just(REPO),
    cron=st.sampled_from(CRONS),
    zone=st.sampled_from(ZONES),
    overlap=st.sampled_from(list(Overlap)),
    misfire=st.sampled_from(list(Misfire)),
    most=st.integers(1, 3),
    enabled=st.sampled_from([True, True, True, False]),
)
spans = st.sampled_from([0.25, 1.0, 1.0, 7.5, 59.0, 61.0, 599.75, 3600.0, 43200.0, DAY, 8 * DAY, 400 * DAY])
jumps = st.sampled_from([1.0, 30.0, 3600.0, 5400.0, DAY, 40 * DAY, 3 * 365 * DAY])


class Walk(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.home = tempfile.mkdtemp(prefix="holdfast-schedules-", dir=memory)
        self.settle, reload.SETTLE = reload.SETTLE, 0.0  # files are finished as soon as they are seen
        self.runner = asyncio.Runner()
        self.now = Instant(wall=datetime(2026, 10, 24, 23, 0, tzinfo=UTC).timestamp(), boottime=1.0, boot_id="boot")
        self.stores = [SqliteStore(self.home) for _ in range(2)]
        repo = self.stores[0].write(lambda tx: tx.workspaces.register_repo(REPO, f"{REPO}/.git", self.now))
        host = Host(id="host", boot_id="boot", pid=1, start_ticks=1, version="0", agents=1)
        self.stores[0].write(lambda tx: tx.hosts.open(host, 30.0, self.now))
        self.board = Board(repo, lambda: self.now)
        self.hosts: list[ScheduleService] = []
        self.seen = 0
        self.steps = self.reads_ready_issues = self.skips = 0
        self.fires: list[float] = []
        self.of_task: dict[str, float] = {}
        self.start()

    def start(self) -> None:
        self.hosts = [
            ScheduleService(
                cast(
                    "Context",
                    SimpleNamespace(
                        host_id="host",
                        ports=SimpleNamespace(schedule_files=self.board),
                        writer=StoreWriter(store),
                        clock=lambda: self.now,
                        bell=WakeUp(),
                    ),
                )
            )
            for store in self.stores
        ]

    def teardown(self) -> None:
        TALLY.update(walks=1, steps=self.steps, looks=self.reads_ready_issues, fires=len(self.fires), skips=self.skips)
        reload.SETTLE = self.settle
        self.runner.close()
        for store in self.stores:
            store.close()
        shutil.rmtree(self.home, ignore_errors=True)

    @initialize(schedule=schedules)
    def enrol(self, schedule: Schedule) -> None:
        self.board.write(schedule)
        self.model = Model(schedule=schedule, cursor=self.now.wall)
        self.look()

    # -- looking -----------------------------------------------------------------------------------------------------

    def run(self, work: Awaitable[object]) -> None:
        async def go() -> None:
            await work

        self.runner.run(go())

    def look(self, host: int = 0) -> None:
        for _ in range(3):
            self.run(self.hosts[host].tick())
        self.reads_ready_issues += 1
        self.model.look(self.now.wall, refused=self.board.refuses is not None)
        self.compare()

    def record(self) -> ScheduleRecord:
        return self.stores[0].write(lambda tx: tx.schedules.get(self.model.schedule.key))

    def compare(self) -> None:
        for row in self.stores[0].view("events", after=self.seen, task=None, limit=100_000):
            self.seen = row["seq"]
            self.skips += row["kind"] == "schedule.skipped"
            if row["kind"] == "schedule.fired" and json.loads(row["data"])["scheduled"]:
                self.fires.append(json.loads(row["data"])["fire_time"])
                self.of_task[row["task"]] = self.fires[-1]
        assert self.fires == self.model.fired, "fires are the occurrences that are due under the policy"
        assert len(set(self.fires)) == len(self.fires) == len(self.of_task), "never more than one per occurrence"
        record = self.record()
        assert record.enabled == self.model.enabled
        assert list(record.waiting) == self.model.waiting
        assert record.is_busy == self.model.busy
        if self.model.enabled:
            assert record.cursor == self.model.cursor

    @invariant()
    def counted(self) -> None:
        self.steps += 1

    # -- what happens ------------------------------------------------------------------------------------------------

    def set_clock(self, moment: float, *, passed: float = 0.0) -> None:
        moment = min(max(moment, EARLIEST), LATEST)
        self.now = self.now._replace(wall=moment, boottime=self.now.boottime + passed)

    @rule(seconds=spans, host=st.integers(0, 1), ends=st.booleans())
    def time_passes(self, seconds: float, host: int, ends: bool) -> None:
        if ends:
            self.end_last_task()
        self.set_clock(self.now.wall + seconds, passed=seconds)
        self.look(host)

    @rule(times=st.integers(2, 5), end=st.booleans())
    def the_next_few_come_on_time(self, times: int, end: bool) -> None:
        """A supervisor looks at the moment that it was told to."""
        for _ in range(times):
            if end:
                self.end_last_task()
            due = self.hosts[0]._due
            if due is not None and due > self.now.wall and due < LATEST:
                event("on time")
                self.set_clock(due, passed=due - self.now.wall)
            self.look()

    @rule(seconds=jumps, back=st.booleans())
    def the_clock_is_set(self, seconds: float, back: bool) -> None:
        event("clock set")
        self.set_clock(self.now.wall + (-seconds if back else seconds))
        self.look()

    @rule(
        change=st.sampled_from(CHANGES), seconds=st.sampled_from([-7300, -3700, -1900, -61, -1, 0, 1, 61, 1900, 3700])
    )
    def it_is_a_day_on_which_clocks_are_set(self, change: str, seconds: int) -> None:
        self.set_clock(datetime.fromisoformat(change).replace(tzinfo=UTC).timestamp() + seconds)
        self.look()

    @rule(number=st.sampled_from([1, 1, 1, 2, 3, 7]))
    def a_moment_is_lived_through_again(self, number: int) -> None:
        """The clock is set back to just before an occurrence that had its task; nothing is in the way of another."""
        if not self.fires:
            return
        event("lived again")
        moment = self.fires[-min(number, len(self.fires))]
        self.board.refuses = None
        self.an_operator_has_a_word(enable=True)
        for at in (moment - 0.5, moment + 0.25):
            self.end_last_task()
            self.set_clock(at)
            self.look()

    @rule()
    def restart(self) -> None:
        event("restart")
        self.start()
        self.look()

    @rule(seconds=spans, awaits=st.integers(0, 12), restarts=st.booleans(), ends=st.booleans())
    def a_look_is_cancelled(self, seconds: float, awaits: int, restarts: bool, ends: bool) -> None:
        """At any await; whether that look had decided or not, the next one finds what is right."""
        if ends:
            self.end_last_task()
        self.set_clock(self.now.wall + seconds, passed=seconds)

        async def cancelled() -> None:
            look = asyncio.ensure_future(self.hosts[0].tick())
            for _ in range(awaits):
                await asyncio.sleep(0)
            look.cancel()
            await asyncio.wait([look])

        self.run(cancelled())
        if restarts:
            self.start()
        self.look()

    @rule(seconds=spans, ends=st.booleans(), order=st.lists(st.booleans(), max_size=8))
    def two_hosts_look_at_once(self, seconds: float, ends: bool, order: list[bool]) -> None:
        """Both see the same, and both want to fire: one of them does."""
        event("race")
        if ends:
            self.end_last_task()
        self.set_clock(self.now.wall + seconds, passed=seconds)

        async def late(host: ScheduleService, turns: int) -> None:
            for _ in range(turns):
                await asyncio.sleep(0)
            await host.tick()

        async def race() -> None:
            await asyncio.gather(late(self.hosts[0], sum(order)), late(self.hosts[1], len(order) - sum(order)))

        self.run(race())
        self.look()

    @rule(enable=st.sampled_from([True, True, False]))
    def an_operator_has_a_word(self, enable: bool) -> None:
        store, key = self.stores[0], self.model.schedule.key
        word = (lambda tx: tx.schedules.enable(key, "ada", self.now)) if enable else None
        store.write(word or (lambda tx: tx.schedules.disable(key, "ada", self.now)))
        was, self.model.word = self.model.enabled, enable
        if was != enable:
            self.model.begin(self.now.wall)
        self.look()

    @rule(schedule=schedules)
    def the_file_changes(self, schedule: Schedule) -> None:
        self.board.write(schedule)
        self.model.rewrite(schedule, self.now.wall)
        self.look()

    @rule(cron=st.sampled_from(CRONS), zone=st.sampled_from(ZONES))
    def the_time_changes(self, cron: str, zone: str) -> None:
        self.the_file_changes(replace(self.model.schedule, cron=cron, zone=zone, enabled=True))

    @rule(spoilt=st.booleans())
    def the_file_is_spoilt_or_mended(self, spoilt: bool) -> None:
        self.board.write(self.model.schedule, problem="line 1: what?" if spoilt else None)
        self.look()

    @rule()
    def its_last_task_ends(self) -> None:
        self.end_last_task()
        self.look()

    def end_last_task(self) -> None:
        record = self.record()
        if record.is_busy and record.last_task is not None:
            task = record.last_task
            self.stores[1].write(lambda tx: tx.tasks.cancel_waiting(task, "ada", "", self.now))
            self.model.going -= 1

    @rule()
    def requests_are_carried_out(self) -> None:
        """Whoever replaces asks once per task, and nobody else asks."""
        pending = self.stores[0].write(lambda tx: tx.requests.pending())
        asked = [request.task_id for request in pending]
        assert len(set(asked)) == len(asked) or self.model.by_hand, "asked once; beside others, maybe once more"
        done = RequestAnswer(RequestResult.CANCELLED)
        for request in pending:
            self.stores[0].write(lambda tx, request=request: tx.requests.answer(request.id, done, self.now))  # type: ignore[misc]  # a default
        for task in set(asked):
            if self.stores[0].write(lambda tx, task=task: tx.tasks.get(task).state) is TaskState.QUEUED:  # type: ignore[misc]  # a default
                event("replaced")
                self.stores[1].write(lambda tx, task=task: tx.tasks.cancel_waiting(task, "ada", "", self.now))  # type: ignore[misc]  # a default
                self.model.going -= 1
        self.look()

    @rule()
    def somebody_fires_by_hand(self) -> None:
        if self.board.refuses is not None:
            return
        accept = self.runner.run(self.board.resolve_task(self.model.schedule, 0.0, "ada"))
        key = self.model.schedule.key
        self.stores[1].write(lambda tx: tx.schedules.fire_by_hand(key, accept(tx).id, "ada", self.now))
        self.model.going, self.model.failures, self.model.tried = self.model.going + 1, 0, None
        self.model.by_hand = True
        self.look()

    @rule(refuses=st.sampled_from([False, False, True]))
    def tasks_can_be_made_or_not(self, refuses: bool) -> None:
        self.board.refuses = "no such agent" if refuses else None
        self.look()

    @rule(keep=st.integers(0, 3))
    def old_occurrences_are_forgotten(self, keep: int) -> None:
        key = self.model.schedule.key
        self.stores[0].write(lambda tx: tx.schedules.merge_old_occurrences(key, keep))
        # rows of fires by hand count among those that are kept; so look at what is left
        left = {float(moment) for moment in self.rows_left()}
        self.model.old |= self.model.decided - left
        self.model.decided &= left
        self.look()

    def rows_left(self) -> list[float]:
        found = self.stores[0]._connection.execute(
            "SELECT fire_time FROM occurrences WHERE repo = ? AND name = ? AND hand = 0", (REPO, NAME)
        )
        return [row[0] for row in found]


def _settings() -> Any:
    return settings(
        max_examples=WALKS,
        stateful_step_count=STEPS,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )


TestSchedules = Walk.TestCase
TestSchedules.settings = _settings()
