"""What can be seen of one run from outside: its output, its heartbeat, and what its agent said so far.

What was read is kept beside the run (`reading.json`), so that the next supervisor reads on instead of from the start.
Lost, torn or tampered with it costs time, never truth: then everything is read again.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from holdfast.base import clock, faults
from holdfast.core.agents.events import Stream
from holdfast.core.health.signs import MOST_WORDS, SignReader, Talk, printable
from holdfast.core.runs.liveness import Identity
from holdfast.processes.observe.output_reader import OutputReader
from holdfast.processes.run_dir import CHANNEL

STATE = "reading.json"
LARGEST_STATE = 1 << 18
_OUTPUT = ("out.log", "err.log")
_CHANNEL = (f"{CHANNEL}/heartbeat", f"{CHANNEL}/reports")
Stamp = tuple[int, int]  # size and time of the last change
NOTHING: Stamp = (0, 0)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look found to be new."""

    output: bool = False
    channel: bool = False
    behind: bool = False  # there is more to read than one look reads


class RunView:
    """All moments are CLOCK_MONOTONIC. `signs` is the adapter's, or None where it reads no events."""

    def __init__(self, path: str, signs: SignReader | None, started_at: float) -> None:
        self.path = path
        self.started_at = started_at
        self.output_at: float | None = None
        self.channel_at: float | None = None
        self.talk = Talk()
        self.told = ""  # the condition that was told of and is not over; kept for the next supervisor
        self._signs = signs
        self._readers = self._reading_from({})
        self._stamps: dict[str, Stamp] = {}
        self._behind = True  # nothing was read yet
        self._errors_said = True  # a log that is read but says nothing (cleaning up, …) is no sign of an agent's life
        self._looked_at = started_at
        self._slept = 0.0  # what the machine may have slept since the time of a file that nobody saw being written
        self._saved: tuple[object, ...] = ()

    def look(self, now: float) -> Seen:
        """Stat what may have changed, and read on."""
        wall = clock.file_time()
        output_at, errors_at = (self._newest((name,), now, wall) for name in _OUTPUT)
        channel_at = self._newest(_CHANNEL, now, wall)
        self._errors_said = Stream.ERR not in self._readers
        if output_at is not None or errors_at is not None or self._behind:
            self._behind = self._read_on(now)
        if errors_at is not None and (self._errors_said or self._behind):
            output_at = errors_at if output_at is None else max(output_at, errors_at)
        self._looked_at, self._slept = now, 0.0
        if output_at is not None:
            self.output_at = output_at
        if channel_at is not None:
            self.channel_at = channel_at
        return Seen(output=output_at is not None, channel=channel_at is not None, behind=self._behind)

    def leader_ended(self) -> bool:
        return os.path.exists(os.path.join(self.path, "exit.json"))

    def _newest(self, names: tuple[str, ...], now: float, wall: float) -> float | None:
        """When the newest change happened that we had not seen. Its wall time tells, within what the clocks allow."""
        newest: float | None = None
        for name in names:
            stamp = self._stamp(name)
            if stamp == self._stamps.get(name, NOTHING):
                continue
            before = self._stamps.get(name, NOTHING)
            self._stamps[name] = stamp
            if name in _OUTPUT and stamp[0] <= before[0]:
                continue  # it did not grow: the keeper freed its middle, or it was cut off
            at = min(now, max(self._looked_at, now - (wall - stamp[1] / 1e9) + self._slept))
            newest = at if newest is None else max(newest, at)
        return newest

    def _stamp(self, name: str) -> Stamp:
        try:
            found = os.stat(os.path.join(self.path, name), follow_symlinks=False)
        except OSError:
            return NOTHING
        return found.st_size, found.st_mtime_ns

    def _read_on(self, now: float) -> bool:
        """Errors after the output: trouble that they tell of stands until the agent is heard to go on later."""
        behind = [reader.read_on(partial(self._hear, stream, now)) for stream, reader in self._readers.items()]
        return any(behind)

    def _hear(self, stream: Stream, now: float, line: str) -> None:
        if self._signs is None:
            return
        try:
            heard = self._signs.signs(line, stream)
        except Exception:  # noqa: BLE001 - foreign output met a fault of ours: the line is not understood, that is all
            return
        for sign in heard:
            self.talk.hear(sign, now, self._looked_at)
            self._errors_said |= stream is Stream.ERR

    def _reading_from(self, offsets: Mapping[Stream, int]) -> dict[Stream, OutputReader]:
        """A reader for each log that is read at all, in the order of reading."""
        if self._signs is None:
            return {}
        streams = (Stream.OUT, Stream.ERR) if self._signs.reads_errors else (Stream.OUT,)
        return {s: OutputReader(os.path.join(self.path, f"{s}.log"), offsets.get(s, 0)) for s in streams}

    # -- for the next supervisor -----------------------------------------------------------------------------------

    def take_over(self, now: float) -> None:
        """Go on where an earlier supervisor stopped. The silence began when the output's time says, not now."""
        for name in (*_OUTPUT, *_CHANNEL):
            self._stamps.pop(name, None)
        self._looked_at, self._slept = self.started_at, _slept()
        kept = self._kept()
        if kept is None:
            return
        with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError, OverflowError):
            self._restore(kept, now)

    def _restore(self, kept: Mapping[str, Any], now: float) -> None:
        talk = Talk.load(kept["talk"])
        # who wrote no second offset read no errors: they are still to be read
        offsets = {Stream.OUT: int(kept["offset"]), Stream.ERR: int(kept.get("errors_offset", 0))}
        moments = [float(kept[name]) for name in ("started_at", "looked_at")]
        moments += [float(kept[name]) for name in ("output_at", "channel_at") if kept[name] is not None]
        within = [0 <= offset <= self._stamp(f"{stream}.log")[0] for stream, offset in offsets.items()]
        if not all(within) or not all(math.isfinite(at) and 0 <= at <= now for at in moments):
            raise ValueError("not what we wrote")
        stamps = {str(name): (int(stamp[0]), int(stamp[1])) for name, stamp in kept["stamps"].items()}
        self.talk, self.told = talk, printable(str(kept["told"]), MOST_WORDS)
        self.started_at, self._looked_at = moments[0], moments[1]
        self.output_at = None if kept["output_at"] is None else float(kept["output_at"])
        self.channel_at = None if kept["channel_at"] is None else float(kept["channel_at"])
        self._stamps, self._slept = stamps, 0.0
        self._readers = self._reading_from(offsets)

    def _kept(self) -> dict[str, Any] | None:
        kept = read_state(self.path)
        return kept if kept is not None and kept.get("boot_id") == clock.boot_id() else None

    def save(self) -> None:
        """Nothing to fsync: after a power cut the run is over, and a torn file is read as none."""
        read, talk = self._offsets(), self.talk
        state = (*read.values(), self.output_at, self.channel_at, self.told, talk.steps, len(talk.tools))
        if state == self._saved:
            return
        path = os.path.join(self.path, STATE)
        faults.effect("reading.save")
        # the agent can write here too: neither a link nor a pipe in its place may lead us astray or hold us up
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with open(os.open(f"{path}.new", flags, 0o600), "w", encoding="utf-8") as file:
            json.dump(self._dump(), file)
        os.rename(f"{path}.new", path)
        faults.passed("reading.saved")
        self._saved = state

    def _offsets(self) -> dict[str, int]:
        at = {stream: reader.offset for stream, reader in self._readers.items()}
        return {"offset": at.get(Stream.OUT, 0), "errors_offset": at.get(Stream.ERR, 0)}

    def _dump(self) -> dict[str, Any]:
        return {
            "boot_id": clock.boot_id(),
            **self._offsets(),
            "started_at": self.started_at,
            "looked_at": self._looked_at,
            "output_at": self.output_at,
            "channel_at": self.channel_at,
            "told": self.told,
            "stamps": self._stamps,
            "talk": self.talk.dump(),
        }


def started_moment(agent: Identity, now: float) -> float:
    """When a process started, by CLOCK_MONOTONIC (later than true if the machine slept before)."""
    age = clock.boottime() - agent.start_ticks / os.sysconf("SC_CLK_TCK")
    return now - max(0.0, age - _slept())


def _slept() -> float:
    """Since boot. Nobody knows how much of it was lately: the doubt is to the agent's good."""
    return max(0.0, clock.boottime() - clock.monotonic())


def read_state(path: str) -> dict[str, Any] | None:
    """The kept state of a run directory, or None without a valid one."""
    try:
        with open(os.open(os.path.join(path, STATE), os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as file:
            kept = json.loads(file.read(LARGEST_STATE))
    except (OSError, ValueError, RecursionError):
        return None
    return kept if isinstance(kept, dict) else None
