"""The service that detects changes of the wall clock, emits an event, and records each jump.

All code that deletes old data gets ages from this service. Ages are measured in elapsed time, whatever the clock was
set to.
"""

from __future__ import annotations

import json
import os

from holdfast.base import faults
from holdfast.base.instant import Instant
from holdfast.base.units import show_duration
from holdfast.core.cleanup.clock_jumps import OFF_AT_MOST, ClockHistory, history_from_json, history_to_json
from holdfast.core.model import Event, Level
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.log import log_line
from holdfast.supervisor.service import Service

NAME = "clock.json"  # in the home
EVERY = 3600.0  # seconds between two records of what the clocks show


class ClockService(Service):
    def __init__(self, context: Context) -> None:
        self._context = context
        self._passing = _read_history(context.home)

    def wall_time_ago(self, age: float, now: Instant) -> float:
        passing = self._passing
        return now.wall - age if passing is None else passing.after(now).wall_time_ago(age, now)

    def shown(self, since: float, now: Instant) -> float:
        passing = self._passing
        return now.wall if passing is None else passing.after(now).shown(since, now)

    async def tick(self) -> None:
        now, before = self._context.clock(), self._passing
        by = 0.0 if before is None else before.jump_since_reading(now)
        if by:
            is_same_boot = before is not None and before.seen.boot_id == now.boot_id
            await self._context.writer.write(lambda tx: _record_jump(tx, by, now, is_same_boot=is_same_boot))
        if before is None or by or now.boot_id != before.seen.boot_id or now.since(before.seen) > EVERY:
            self._passing = ClockHistory(now) if before is None else before.after(now)
            _write_history(self._context.home, self._passing)


def record_restore(home: str, made_at: float, now: Instant, *, from_backup: bool) -> None:
    """Record the restore of a backup that was made at `made_at`, before it is copied back.

    Everything in the backup keeps the age that it had then. Otherwise it would be deleted at once. `from_backup`: the
    clock record comes from the backup too, so the time since then is counted here.
    """
    passing = _read_history(home)
    if passing is None:
        passing = ClockHistory(now)
    elif not from_backup:
        passing = passing.after(now)
    _write_history(home, passing.restored(made_at, now))


def _record_jump(tx: Transaction, by: float, now: Instant, *, is_same_boot: bool) -> None:
    """Emit the event, and restart timers after the clock was set back. All of this may be repeated: if the supervisor
    is killed before the jump is recorded, the next one detects it again."""
    tx.events.emit(_clock_moved_event(by, is_same_boot=is_same_boot), now)
    if by < 0:
        tx.preserved.restart_expiry_timers(now)
        tx.workspaces.make_cleanups_due()


def _clock_moved_event(by: float, *, is_same_boot: bool) -> Event:
    forward = by > 0
    what = f"The clock was set {'forward' if forward else 'back'} by {show_duration(abs(by))}"
    if forward and not is_same_boot:  # no clock of the machine counted while it was off
        what += f", or no supervisor ran for {show_duration(OFF_AT_MOST)} and that long"
    message = f"{what}. " + (
        "Tasks whose wait is over by this clock start now. Nothing is deleted too early."
        if forward
        else "Waits that were set when the clock was ahead end now. No schedule fires twice for the same time."
    )
    return Event(kind="clock.moved", level=Level.WARNING, component="clock", message=message, data={"by": round(by, 3)})


def _read_history(home: str) -> ClockHistory | None:
    """Return the recorded clock state. None if it cannot be read: then no jumps are known."""
    try:
        with open(os.path.join(home, NAME), encoding="utf-8") as file:
            return history_from_json(json.load(file))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _write_history(home: str, passing: ClockHistory) -> None:
    """Write the clock state.

    A failure is only logged: on a full disk, the next supervisor reports the same jump again.
    """
    path = os.path.join(home, NAME)
    try:
        faults.effect("clock.note")
        fd = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with open(fd, "w", encoding="utf-8") as file:
            json.dump(history_to_json(passing), file)
        faults.effect("clock.keep")
        os.replace(f"{path}.new", path)
    except OSError as trouble:
        log_line(f"holdfast: the state of the clock could not be saved: {trouble}")
