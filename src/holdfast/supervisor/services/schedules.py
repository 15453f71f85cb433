"""Work that comes by the clock: reads the files with schedules, and gives every occurrence that is due its task.

Whatever a fire needs (settings, the agent, the base) is computed before its transaction; in it, the occurrence is let
in, the cursor moves, the task is added, and nothing is awaited. So a fire is made once or not at all, whoever is
cancelled or killed, and what was not made is still due at the next look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from holdfast.base.errors import HoldfastError, NotFound, Unavailable
from holdfast.base.instant import Instant
from holdfast.core.model import Level, Repo, RequestKind, Task
from holdfast.core.schedules.due import Due, Step, back_off, due, leaves_out, let_in, next_moment, next_step
from holdfast.core.schedules.schedule import Overlap, Schedule, ScheduleRecord
from holdfast.store.port.schedules import file_alert
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.log import say_trouble
from holdfast.supervisor.ports import Timetable, Timetables
from holdfast.supervisor.service import Service, seconds_until
from holdfast.supervisor.services.reload import Stillness

HASTE = 0.2  # seconds that everything else waits for what a fire needs; whatever takes longer is finished beside it
KEPT = 1000  # occurrences of a schedule that have a row each; older ones are remembered by the stretch
_NEVER = object()
Accept = Callable[[Transaction], Task]
Prepared = tuple[Accept | None, str | None]  # what adds the task; or why it cannot be added


@dataclass(frozen=True, slots=True)
class Quiet:
    """That nothing was to be done for a schedule: it holds while neither it nor the clock says otherwise."""

    record: ScheduleRecord
    since: float  # wall time
    until: float | None  # None: it is never due again

    def holds(self, record: ScheduleRecord, now: Instant) -> bool:
        return self.since <= now.wall and (self.until is None or now.wall < self.until) and record == self.record


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A fire whose preparation takes its time: git on a disk that hangs."""

    record: ScheduleRecord
    found: Due | None
    prepared: asyncio.Task[Prepared]


class Scheduling(Service):
    def __init__(self, context: Context) -> None:
        self._context = context
        self._seen: object = _NEVER
        self._stillness = Stillness()
        self._told: list[Schedule] = []  # those that something unforeseen is wrong with
        self._decided: dict[str, int] = {}  # occurrences by schedule, since its rows were last counted
        self._quiet: dict[str, Quiet] = {}  # by schedule: looked at often, computed with rarely
        self._under_way: dict[str, UnderWay] = {}  # by schedule
        self._due: float | None = None  # wall time of the next occurrence or retry

    async def next_wake(self) -> float:
        return seconds_until(self._due, self._context.clock())

    async def tick(self) -> None:
        timetables = self._context.ports.timetables
        if timetables is None:
            return
        repos, records = await self._context.writer.write(lambda tx: (tx.workspaces.repos(), tx.schedules.all()))
        if await self._read(timetables, repos):
            records = await self._context.writer.write(lambda tx: tx.schedules.all())
        if self._seen is _NEVER:
            return  # what was stored last may be out of date: nothing fires before the files are read
        self._due = None
        for key in self._under_way.keys() - {record.schedule.key for record in records if record.enabled}:
            self._under_way.pop(key).prepared.cancel()  # nobody wants it any more
        for record in records:
            if record.enabled:
                await self._serve_alone(timetables, record)

    async def _serve_alone(self, timetables: Timetables, record: ScheduleRecord) -> None:
        """One schedule that cannot be computed with (its zone is gone from this machine, say) holds no other up."""
        try:
            await self._serve(timetables, record)
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001 - told once, and looked at again
            if record.schedule not in self._told:
                self._told.append(record.schedule)
                say_trouble(f"schedule '{record.schedule.name}' of {record.file}: ", error)

    @property
    def tasks(self) -> list[asyncio.Task[Prepared]]:
        return [each.prepared for each in self._under_way.values()]

    @property
    def busy(self) -> bool:
        return bool(self._under_way)

    def owed(self, tx: Transaction) -> int:
        """Occurrences that wait for nothing but us: not the time to leave."""
        return 0 if self._context.ports.timetables is None else tx.schedules.owed()

    # -- the files -----------------------------------------------------------------------------------------------

    async def _read(self, timetables: Timetables, repos: Sequence[Repo]) -> bool:
        """Whether something was read. A file with mistakes changes nothing: its schedules of before hold, and one alert
        says why."""
        stamp = timetables.stamp(repos), tuple(repo.path for repo in repos)
        if stamp == self._seen or not self._has_settled(stamp):
            return False
        try:
            found = timetables.read(repos)
        except Exception as error:  # noqa: BLE001 - told once per change: what was read before holds
            say_trouble("the schedules could not be read, so those of before hold: ", error)
            self._seen = stamp
            return False
        try:
            await self._context.writer.write(lambda tx: self._take_over(tx, found))
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001 - likewise; everything else that we do must go on
            say_trouble("the schedules could not be taken over, so those of before hold: ", error)
        self._seen = stamp
        return True

    def _has_settled(self, stamp: object) -> bool:
        loop = asyncio.get_running_loop()
        left = self._stillness.left(stamp, loop.time())
        if left > 0:
            loop.call_later(left, self._context.bell.ring)
        return left <= 0

    def _take_over(self, tx: Transaction, found: Timetable) -> None:
        now = self._context.clock()
        tx.hosts.require(self._context.host_id)  # what an earlier incarnation has read may be old
        named = {*found.schedules, *found.problems, *found.absent}
        for file in (file for file in tx.schedules.files() if file not in named):
            tx.schedules.enrol(file, (), now)  # its repository is not ours any more
        for file, schedules in found.schedules.items():
            tx.schedules.enrol(file, schedules, now)
            if file not in found.problems:
                tx.events.close_alert(file_alert(file), "holdfast", now)
        for file, problem in found.problems.items():
            message = f"The schedules in {file} are not taken as they are now: {problem}."
            remedy = "It has none until then." if file in found.schedules else "Those of before hold until then."
            tx.events.raise_alert(file_alert(file), message, remedy, now, level=Level.WARNING)

    # -- the clock -----------------------------------------------------------------------------------------------

    async def _serve(self, timetables: Timetables, record: ScheduleRecord) -> None:
        if (under_way := self._under_way.get(record.schedule.key)) is not None:
            if under_way.record == record and not under_way.prepared.done():
                return  # the bell rings when it is
            del self._under_way[record.schedule.key]
            if under_way.record == record:
                await self._conclude(record, under_way.found, under_way.prepared.result())
                return
            under_way.prepared.cancel()  # it was changed, disabled, fired by somebody else
        now = self._context.clock()
        quiet = self._quiet.get(record.schedule.key)
        if quiet is not None and quiet.holds(record, now):
            self._again_at(quiet.until)
            return
        if now.wall < record.cursor:  # the clock was set back
            await self._context.writer.write(lambda tx: self._rewind(tx, record))
            self._again_at(now.wall)
            return
        found = due(record, now)
        waiting = let_in(record, found)
        if found is None and (not waiting or next_step(record, now)[0] is Step.WAIT):
            until = next_moment(record, now)
            self._quiet[record.schedule.key] = Quiet(record, now.wall, until)
            self._again_at(until)
            return
        prepared: Prepared | None = (None, None)
        if waiting and next_step(record, now)[0] is Step.FIRE:
            prepared = await self._prepared_soon(timetables, record, found, waiting[0])
        if prepared is not None:
            await self._conclude(record, found, prepared)

    async def _conclude(self, record: ScheduleRecord, found: Due | None, prepared: Prepared) -> None:
        accept, trouble = prepared
        try:
            await self._context.writer.write(lambda tx: self._decide(tx, record, found, accept, trouble))
        except Unavailable:
            raise  # the store itself: the schedule is not to blame
        except HoldfastError as error:
            why = str(error)
            await self._context.writer.write(lambda tx: self._decide(tx, record, found, None, why))
        await self._count(record, 1 if found is None else len(found.occurrences))
        self._again_at(self._context.clock().wall)  # whatever it is now, look once more

    async def _prepared_soon(
        self, timetables: Timetables, record: ScheduleRecord, found: Due | None, occurrence: float
    ) -> Prepared | None:
        """None: it is under way, and nothing else waits for it. What was found due is decided when it ends."""
        task = asyncio.ensure_future(self._prepared(timetables, record, occurrence))
        try:
            await asyncio.wait([task], timeout=HASTE)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if task.done():
            return task.result()
        self._under_way[record.schedule.key] = UnderWay(record, found, task)
        task.add_done_callback(lambda _done: self._context.bell.ring())
        return None

    async def _prepared(self, timetables: Timetables, record: ScheduleRecord, occurrence: float) -> Prepared:
        """What adds the task, or why it cannot be added. The store is not asked, so nothing of it is unavailable."""
        by = f"schedule '{record.schedule.name}'"
        try:
            return await timetables.resolve_task(record.schedule, occurrence, by), None
        except HoldfastError as error:
            return None, str(error)
        except Exception as error:  # noqa: BLE001 - told, and tried again: one schedule holds no other up
            say_trouble(f"schedule '{record.schedule.name}': ", error)
            return None, f"a fault of ours: {error}"

    def _decide(
        self,
        tx: Transaction,
        record: ScheduleRecord,
        found: Due | None,
        accept: Accept | None,
        trouble: str | None,
    ) -> None:
        """All in one transaction, if nothing is new since `record` was read; else the next look decides. What was due
        then is decided, even if another occurrence came while it was prepared: that one is due at the next look."""
        now = self._context.clock()
        tx.hosts.require(self._context.host_id)
        if self._moved_on(tx, record):
            return
        left = self._admit(tx, record, found or Due(occurrences=(), cursor=record.cursor), now)
        if not left:
            return
        step, why = next_step(record, now)
        if step is Step.REPLACE or (found is not None and self._was_refused(tx, record)):
            self._replace(tx, record, why, now)
        if step is not Step.FIRE:
            return
        if trouble is not None:
            tx.schedules.refused(record, trouble, now.wall + back_off(record.failures), now)
        elif accept is not None and left[0] == let_in(record, found)[0]:
            task = accept(tx)
            tx.schedules.fire(record, left[0], task.id, now)
        # else nothing was prepared for this one (its time came just now, or another was decided before): the next look

    def _replace(self, tx: Transaction, record: ScheduleRecord, why: str, now: Instant) -> None:
        assert record.last_task is not None  # it has not ended
        by = f"schedule '{record.schedule.name}'"
        tx.requests.ask(RequestKind.CANCEL, record.last_task, by, f"the next one is due, and {why}", {}, now)
        tx.schedules.replacing(record, record.last_task)
        self._context.bell.ring()

    def _was_refused(self, tx: Transaction, record: ScheduleRecord) -> bool:
        """Whether its last task was asked to end, and that came to nothing: it was frozen. The next one asks again."""
        if not record.is_busy or record.schedule.overlap is not Overlap.REPLACE or record.replacing != record.last_task:
            return False
        return all(request.task_id != record.last_task for request in tx.requests.pending())

    def _admit(self, tx: Transaction, record: ScheduleRecord, found: Due, now: Instant) -> tuple[float, ...]:
        """What waits then."""
        skips = leaves_out(record)
        left = tuple(tx.schedules.admit(record, () if skips else found.occurrences, found.cursor, now))
        if found.left_out:
            tx.schedules.left_out(record, found.left_out, now)
        if found.missed is not None:
            tx.schedules.missed(record, found.missed, now)
        for occurrence in found.occurrences if skips else ():
            tx.schedules.skip(record, occurrence, f"its last task {record.last_task} has not ended", now)
        return left

    def _rewind(self, tx: Transaction, record: ScheduleRecord) -> None:
        now = self._context.clock()
        tx.hosts.require(self._context.host_id)
        if now.wall < record.cursor and not self._moved_on(tx, record):
            tx.schedules.rewind(record, now)

    def _moved_on(self, tx: Transaction, record: ScheduleRecord) -> bool:
        try:
            return tx.schedules.get(record.schedule.key) != record
        except NotFound:
            return True

    async def _count(self, record: ScheduleRecord, decided: int) -> None:
        """Skipped ones too: a task that waits for an operator may last for weeks."""
        key = record.schedule.key
        count = self._decided.get(key, KEPT) + decided  # so the first one of a supervisor looks
        self._decided[key] = count % KEPT
        if count >= KEPT:
            await self._context.writer.write(lambda tx: tx.schedules.prune(key, KEPT))

    def _again_at(self, moment: float | None) -> None:
        if moment is not None:
            self._due = moment if self._due is None else min(self._due, moment)
