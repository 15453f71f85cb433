"""The service that reads the schedule files and adds a task for every occurrence that is due.

Everything that a fire needs (settings, the agent, the base) is computed before its transaction. The transaction admits
the occurrence, moves the cursor and adds the task, and awaits nothing. So a fire happens once or not at all, whatever
is cancelled or killed. A fire that did not happen is still due at the next look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from holdfast.base.dataclass import dataclass
from holdfast.base.errors import HoldfastError, NotFound, Unavailable
from holdfast.base.instant import Instant
from holdfast.core.model import Level, Repo, RequestKind, Task
from holdfast.core.schedules.due import (
    DueOccurrences,
    ScheduleStep,
    admit,
    find_due,
    next_look_at_schedule,
    next_schedule_step,
    refused_fire_delay,
    skips_new,
)
from holdfast.core.schedules.schedule import Overlap, Schedule, ScheduleRecord
from holdfast.store.port.schedules import file_alert
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.log import log_error
from holdfast.supervisor.ports import ReadSchedules, ScheduleSource
from holdfast.supervisor.service import Service, seconds_until
from holdfast.supervisor.services.reload import FileStillness

PREPARE_WAIT = 0.2  # seconds that the loop waits for a fire's preparation; a longer one is finished in the background
KEPT = 1000  # occurrences of a schedule that have a row each; older ones are stored as ranges
_NEVER = object()
Accept = Callable[[Transaction], Task]
Prepared = tuple[Accept | None, str | None]  # what adds the task, or why it cannot be added


@dataclass(frozen=True, slots=True)
class NothingDue:
    """A record that nothing is due for a schedule.

    The record is valid until the schedule changes or the clock reaches the next occurrence.
    """

    record: ScheduleRecord
    since: float  # wall time
    until: float | None  # None: the schedule is never due again

    def holds(self, record: ScheduleRecord, now: Instant) -> bool:
        return self.since <= now.wall and (self.until is None or now.wall < self.until) and record == self.record


@dataclass(frozen=True, slots=True)
class PreparingFire:
    """A fire whose preparation takes long, for example git on a disk that hangs."""

    record: ScheduleRecord
    found: DueOccurrences | None
    prepared: asyncio.Task[Prepared]


class ScheduleService(Service):
    def __init__(self, context: Context) -> None:
        self._context = context
        self._seen: object = _NEVER
        self._stillness = FileStillness()
        self._told: list[Schedule] = []  # schedules with an unexpected error, which was logged
        self._decided: dict[str, int] = {}  # occurrences decided per schedule, since its rows were last counted
        self._quiet: dict[str, NothingDue] = {}  # by schedule: checked often, computed rarely
        self._under_way: dict[str, PreparingFire] = {}  # by schedule
        self._due: float | None = None  # wall time of the next occurrence or retry

    async def next_wake(self) -> float:
        return seconds_until(self._due, self._context.clock())

    async def tick(self) -> None:
        timetables = self._context.ports.schedule_files
        if timetables is None:
            return
        repos, records = await self._context.writer.write(lambda tx: (tx.workspaces.repos(), tx.schedules.all()))
        if await self._read_files(timetables, repos):
            records = await self._context.writer.write(lambda tx: tx.schedules.all())
        if self._seen is _NEVER:
            return  # The stored schedules may be out of date: nothing fires before the files are read.
        self._due = None
        for key in self._under_way.keys() - {record.schedule.key for record in records if record.enabled}:
            self._under_way.pop(key).prepared.cancel()  # the schedule is gone or disabled
        for record in records:
            if record.enabled:
                await self._serve_logged(timetables, record)

    async def _serve_logged(self, timetables: ScheduleSource, record: ScheduleRecord) -> None:
        """Serve one schedule. An error in it (its time zone is gone from this machine, for example) is logged and does
        not delay other schedules."""
        try:
            await self._serve(timetables, record)
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001 - logged once, and tried again at the next look
            if record.schedule not in self._told:
                self._told.append(record.schedule)
                log_error(f"schedule '{record.schedule.name}' of {record.file}: ", error)

    @property
    def tasks(self) -> list[asyncio.Task[Prepared]]:
        return [each.prepared for each in self._under_way.values()]

    @property
    def busy(self) -> bool:
        return bool(self._under_way)

    def owed(self, tx: Transaction) -> int:
        """Count the occurrences that wait only for this supervisor. They keep an idle supervisor running."""
        return 0 if self._context.ports.schedule_files is None else tx.schedules.owed()

    # -- the files -----------------------------------------------------------------------------------------------

    async def _read_files(self, timetables: ScheduleSource, repos: Sequence[Repo]) -> bool:
        """Read the schedule files if they changed. Return True if they were read.

        A file with mistakes changes nothing: its previous schedules stay in force, and one alert has the reason.
        """
        stamp = timetables.stamp(repos), tuple(repo.path for repo in repos)
        if stamp == self._seen or not self._has_settled(stamp):
            return False
        try:
            found = timetables.read(repos)
        except Exception as error:  # noqa: BLE001 - logged once per change: what was read before stays in force
            log_error("the schedules could not be read, so the previous ones stay in force: ", error)
            self._seen = stamp
            return False
        try:
            await self._context.writer.write(lambda tx: self._record_files(tx, found))
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001 - likewise: all other services must continue
            log_error("the schedules could not be recorded, so the previous ones stay in force: ", error)
        self._seen = stamp
        return True

    def _has_settled(self, stamp: object) -> bool:
        loop = asyncio.get_running_loop()
        left = self._stillness.left(stamp, loop.time())
        if left > 0:
            loop.call_later(left, self._context.bell.ring)
        return left <= 0

    def _record_files(self, tx: Transaction, found: ReadSchedules) -> None:
        now = self._context.clock()
        tx.hosts.require_active(self._context.host_id)  # an earlier incarnation may have read older files
        named = {*found.schedules, *found.problems, *found.absent}
        for file in (file for file in tx.schedules.files() if file not in named):
            tx.schedules.enrol(file, (), now)  # its repository is no longer registered
        for file, schedules in found.schedules.items():
            tx.schedules.enrol(file, schedules, now)
            if file not in found.problems:
                tx.events.close_alert(file_alert(file), "holdfast", now)
        for file, problem in found.problems.items():
            message = f"The schedules in {file} are not used in their current form: {problem}."
            remedy = (
                "Fix this. Until then, the file has no schedules."
                if file in found.schedules
                else "Fix this. Until then, its previous schedules stay in force."
            )
            tx.events.raise_alert(file_alert(file), message, remedy, now, level=Level.WARNING)

    # -- the clock -----------------------------------------------------------------------------------------------

    async def _serve(self, timetables: ScheduleSource, record: ScheduleRecord) -> None:
        if (under_way := self._under_way.get(record.schedule.key)) is not None:
            if under_way.record == record and not under_way.prepared.done():
                return  # the bell rings when it is done
            del self._under_way[record.schedule.key]
            if under_way.record == record:
                await self._conclude(record, under_way.found, under_way.prepared.result())
                return
            under_way.prepared.cancel()  # the schedule was changed, disabled, or fired by another process
        now = self._context.clock()
        quiet = self._quiet.get(record.schedule.key)
        if quiet is not None and quiet.holds(record, now):
            self._wake_at(quiet.until)
            return
        if now.wall < record.cursor:  # the clock was set back
            await self._context.writer.write(lambda tx: self._rewind(tx, record))
            self._wake_at(now.wall)
            return
        found = find_due(record, now)
        waiting = admit(record, found)
        if found is None and (not waiting or next_schedule_step(record, now)[0] is ScheduleStep.WAIT):
            until = next_look_at_schedule(record, now)
            self._quiet[record.schedule.key] = NothingDue(record, now.wall, until)
            self._wake_at(until)
            return
        prepared: Prepared | None = (None, None)
        if waiting and next_schedule_step(record, now)[0] is ScheduleStep.FIRE:
            prepared = await self._prepare_briefly(timetables, record, found, waiting[0])
        if prepared is not None:
            await self._conclude(record, found, prepared)

    async def _conclude(self, record: ScheduleRecord, found: DueOccurrences | None, prepared: Prepared) -> None:
        accept, trouble = prepared
        try:
            await self._context.writer.write(lambda tx: self._decide(tx, record, found, accept, trouble))
        except Unavailable:
            raise  # the store failed, not the schedule
        except HoldfastError as error:
            why = str(error)
            await self._context.writer.write(lambda tx: self._decide(tx, record, found, None, why))
        await self._count(record, 1 if found is None else len(found.occurrences))
        self._wake_at(self._context.clock().wall)  # whatever its state is now, look once more

    async def _prepare_briefly(
        self, timetables: ScheduleSource, record: ScheduleRecord, found: DueOccurrences | None, occurrence: float
    ) -> Prepared | None:
        """Prepare a fire, but wait for HASTE seconds at most. None: the preparation continues in the background, and
        the due occurrences are decided when it ends."""
        task = asyncio.ensure_future(self._prepare_fire(timetables, record, occurrence))
        try:
            await asyncio.wait([task], timeout=PREPARE_WAIT)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if task.done():
            return task.result()
        self._under_way[record.schedule.key] = PreparingFire(record, found, task)
        task.add_done_callback(lambda _done: self._context.bell.ring())
        return None

    async def _prepare_fire(self, timetables: ScheduleSource, record: ScheduleRecord, occurrence: float) -> Prepared:
        """Return the operation that adds the task, or the reason why the task cannot be added. The store is not used,
        so a locked store cannot make this fail."""
        by = f"schedule '{record.schedule.name}'"
        try:
            return await timetables.resolve_task(record.schedule, occurrence, by), None
        except HoldfastError as error:
            return None, str(error)
        except Exception as error:  # noqa: BLE001 - logged, and tried again: one schedule must not delay the others
            log_error(f"schedule '{record.schedule.name}': ", error)
            return None, f"a defect of Holdfast: {error}"

    def _decide(
        self,
        tx: Transaction,
        record: ScheduleRecord,
        found: DueOccurrences | None,
        accept: Accept | None,
        trouble: str | None,
    ) -> None:
        """Decide about the due occurrences in one transaction, if nothing changed since `record` was read. Otherwise
        the next look decides.

        Only occurrences that were due when `record` was read are decided. An occurrence that came during preparation is
        due at the next look.
        """
        now = self._context.clock()
        tx.hosts.require_active(self._context.host_id)
        if self._has_changed(tx, record):
            return
        left = self._admit(tx, record, found or DueOccurrences(occurrences=(), cursor=record.cursor), now)
        if not left:
            return
        step, why = next_schedule_step(record, now)
        if step is ScheduleStep.REPLACE or (found is not None and self._replacement_failed(tx, record)):
            self._replace(tx, record, why, now)
        if step is not ScheduleStep.FIRE:
            return
        if trouble is not None:
            tx.schedules.refused(record, trouble, now.wall + refused_fire_delay(record.failures), now)
        elif accept is not None and left[0] == admit(record, found)[0]:
            task = accept(tx)
            tx.schedules.fire(record, left[0], task.id, now)
        # Otherwise nothing was prepared for this occurrence: its time came just now, or another one was decided first.
        # The next look handles it.

    def _replace(self, tx: Transaction, record: ScheduleRecord, why: str, now: Instant) -> None:
        assert record.last_task is not None  # it has not ended
        by = f"schedule '{record.schedule.name}'"
        tx.requests.ask(RequestKind.CANCEL, record.last_task, by, f"the next one is due, and {why}", {}, now)
        tx.schedules.replacing(record, record.last_task)
        self._context.bell.ring()

    def _replacement_failed(self, tx: Transaction, record: ScheduleRecord) -> bool:
        """True if a request to end the last task failed because the task was frozen. Then the next occurrence asks
        again."""
        if not record.is_busy or record.schedule.overlap is not Overlap.REPLACE or record.replacing != record.last_task:
            return False
        return all(request.task_id != record.last_task for request in tx.requests.pending())

    def _admit(self, tx: Transaction, record: ScheduleRecord, found: DueOccurrences, now: Instant) -> tuple[float, ...]:
        """Admit the occurrences that were found due. Return those that wait now."""
        skips = skips_new(record)
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
        tx.hosts.require_active(self._context.host_id)
        if now.wall < record.cursor and not self._has_changed(tx, record):
            tx.schedules.rewind(record, now)

    def _has_changed(self, tx: Transaction, record: ScheduleRecord) -> bool:
        try:
            return tx.schedules.get(record.schedule.key) != record
        except NotFound:
            return True

    async def _count(self, record: ScheduleRecord, decided: int) -> None:
        """Count the decided occurrences, and prune rows now and then.

        Skipped occurrences count too, because the task before them may wait for an operator for weeks.
        """
        key = record.schedule.key
        count = self._decided.get(key, KEPT) + decided  # so the first decision of a supervisor prunes
        self._decided[key] = count % KEPT
        if count >= KEPT:
            await self._context.writer.write(lambda tx: tx.schedules.merge_old_occurrences(key, KEPT))

    def _wake_at(self, moment: float | None) -> None:
        if moment is not None:
            self._due = moment if self._due is None else min(self._due, moment)
