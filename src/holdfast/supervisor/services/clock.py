"""Sees that the wall clock was set, tells it, and remembers it for whoever deletes what is old."""

from __future__ import annotations

import json
import os

from holdfast.base import faults
from holdfast.base.instant import Instant
from holdfast.base.units import show_duration
from holdfast.core.cleanup.clock_jumps import OFF_AT_MOST, Passing, as_json, of_json
from holdfast.core.model import Event, Level
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.log import say
from holdfast.supervisor.service import Service

NAME = "clock.json"  # in the home
EVERY = 3600.0  # seconds between two notes of what the clocks show


class Timekeeping(Service):
    def __init__(self, context: Context) -> None:
        self._context = context
        self._passing = _read(context.home)

    def ago(self, age: float, now: Instant) -> float:
        passing = self._passing
        return now.wall - age if passing is None else passing.after(now).moment(age, now)

    def shown(self, since: float, now: Instant) -> float:
        passing = self._passing
        return now.wall if passing is None else passing.after(now).shown(since, now)

    async def tick(self) -> None:
        now, before = self._context.clock(), self._passing
        by = 0.0 if before is None else before.moved(now)
        if by:
            is_same_boot = before is not None and before.seen.boot_id == now.boot_id
            await self._context.writer.write(lambda tx: _moved(tx, by, now, is_same_boot=is_same_boot))
        if before is None or by or now.boot_id != before.seen.boot_id or now.since(before.seen) > EVERY:
            self._passing = Passing(now) if before is None else before.after(now)
            _keep(self._context.home, self._passing)


def note_restored(home: str, made_at: float, now: Instant, *, from_backup: bool) -> None:
    """Before a backup of `made_at` is brought back: what is in it is as old as it was then, or it would be deleted as
    soon as it is there. `from_backup`: what the clocks showed is, too, so that the time since then is counted here."""
    passing = _read(home)
    if passing is None:
        passing = Passing(now)
    elif not from_backup:
        passing = passing.after(now)
    _keep(home, passing.restored(made_at, now))


def _moved(tx: Transaction, by: float, now: Instant, *, is_same_boot: bool) -> None:
    """Killed before it is noted that this was seen, we see it again: each of these may be done twice."""
    tx.events.emit(_told(by, is_same_boot=is_same_boot), now)
    if by < 0:
        tx.keeps.expire_from_now(now)
        tx.workspaces.retry_at_once()


def _told(by: float, *, is_same_boot: bool) -> Event:
    forward = by > 0
    what = f"The clock was set {'forward' if forward else 'back'} by {show_duration(abs(by))}"
    if forward and not is_same_boot:  # no clock of the machine counted while it was off
        what += f", or no supervisor was here for {show_duration(OFF_AT_MOST)} and that long"
    message = f"{what}. " + (
        "What waits for a moment that it shows by now goes on; nothing is deleted sooner for it."
        if forward
        else "What waits for a moment that was decided in the future of this clock goes on; no schedule fires "
        "twice for the same time."
    )
    return Event(kind="clock.moved", level=Level.WARNING, component="clock", message=message, data={"by": round(by, 3)})


def _read(home: str) -> Passing | None:
    """What cannot be read was never seen: then nothing is known of leaps."""
    try:
        with open(os.path.join(home, NAME), encoding="utf-8") as file:
            return of_json(json.load(file))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _keep(home: str, passing: Passing) -> None:
    """Not worth stopping for: on a full disk, the next one is told of the same leap again."""
    path = os.path.join(home, NAME)
    try:
        faults.effect("clock.note")
        fd = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with open(fd, "w", encoding="utf-8") as file:
            json.dump(as_json(passing), file)
        faults.effect("clock.keep")
        os.replace(f"{path}.new", path)
    except OSError as trouble:
        say(f"holdfast: it was not noted what the clock shows: {trouble}")
