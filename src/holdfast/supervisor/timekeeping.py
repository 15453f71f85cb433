"""Sees that the wall clock was set, tells it, and remembers it for whoever deletes what is old (core/passing.py)."""

from __future__ import annotations

import json
import os

from holdfast import faults
from holdfast.core.model import Event, Instant, Level
from holdfast.core.passing import Passing, as_json, of_json
from holdfast.store.port import Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.saying import say
from holdfast.units import show_duration

NAME = "clock.json"  # in the home
EVERY = 3600.0  # seconds between two notes of what the clocks show


class Timekeeping:
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
            await self._context.writer.write(lambda tx: _moved(tx, by, now))
        if before is None or by or now.boot_id != before.seen.boot_id or now.since(before.seen) > EVERY:
            self._passing = Passing(now) if before is None else before.after(now)
            _keep(self._context.home, self._passing)


def _moved(tx: Transaction, by: float, now: Instant) -> None:
    """Killed before it is noted that this was seen, we see it again: each of these may be done twice."""
    tx.events.emit(_told(by, now), now)
    if by < 0:
        tx.keeps.expire_from_now(now)
        tx.workspaces.retry_at_once()


def _told(by: float, now: Instant) -> Event:
    forward = by > 0
    message = f"The clock was set {'forward' if forward else 'back'} by {show_duration(abs(by))}. " + (
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
