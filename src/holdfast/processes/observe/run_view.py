"""The view of one run from outside: its output, its heartbeat, and the signs that its agent printed so far.

The state of reading is saved in the run directory (`reading.json`), so that the next supervisor continues from there,
and so that lists of tasks show what each agent does (api/tasks/why/activity.py).
If that file is lost, incomplete or tampered with, everything is read again. That costs time, but nothing is wrong.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Mapping
from functools import partial
from typing import Any

from holdfast.base import clock, faults
from holdfast.base.dataclass import dataclass
from holdfast.base.files import open_log_file
from holdfast.core.agents.stream import Stream
from holdfast.core.health.signs import MOST_WORDS, AgentActivity, LastAct, SignReader, make_printable
from holdfast.core.runs.liveness import ProcessIdentity
from holdfast.processes.observe.output_reader import OutputReader
from holdfast.processes.run_dir import CHANNEL
from holdfast.secrets.redact import redact_text

STATE = "reading.json"
LARGEST_STATE = 1 << 18
TAIL = 8192  # bytes at the end of plain output, in which the last line is searched
_OUTPUT = ("out.log", "err.log")
_CHANNEL = (f"{CHANNEL}/heartbeat", f"{CHANNEL}/reports")
Stamp = tuple[int, int]  # size and time of the last change
NOTHING: Stamp = (0, 0)


@dataclass(frozen=True, slots=True)
class FoundChanges:
    """The kinds of change that one look found."""

    output: bool = False
    channel: bool = False
    behind: bool = False  # there is more to read than one look reads


class RunView:
    """One run as seen from outside. All times are CLOCK_MONOTONIC.

    `signs` is the adapter's reader of events, or None if the adapter does not read events.
    """

    def __init__(self, path: str, signs: SignReader | None, started_at: float) -> None:
        self.path = path
        self.started_at = started_at
        self.output_at: float | None = None
        self.channel_at: float | None = None
        self.talk = AgentActivity()
        self.told = ""  # the condition that was reported and is not over yet; kept for the next supervisor
        self._signs = signs
        self._readers = self._make_readers({})
        self._stamps: dict[str, Stamp] = {}
        self._behind = True  # because nothing was read yet
        # Error output without a sign (clean-up messages, …) does not prove that the agent lives.
        self._errors_had_signs = True
        self._looked_at = started_at
        self._slept = 0.0  # seconds the machine may have slept since a file changed that no supervisor was watching
        self._saved: tuple[object, ...] = ()

    def look(self, now: float) -> FoundChanges:
        """Stat the files that may have changed, read their new content, and return the kinds of change."""
        wall = clock.file_time()
        output_at, errors_at = (self._newest_change((name,), now, wall) for name in _OUTPUT)
        channel_at = self._newest_change(_CHANNEL, now, wall)
        self._errors_had_signs = Stream.ERR not in self._readers
        if output_at is not None or errors_at is not None or self._behind:
            self._behind = self._read_on(now)
        if errors_at is not None and (self._errors_had_signs or self._behind):
            output_at = errors_at if output_at is None else max(output_at, errors_at)
        self._looked_at, self._slept = now, 0.0
        if output_at is not None:
            self.output_at = output_at
        if channel_at is not None:
            self.channel_at = channel_at
        return FoundChanges(output=output_at is not None, channel=channel_at is not None, behind=self._behind)

    def leader_ended(self) -> bool:
        return os.path.exists(os.path.join(self.path, "exit.json"))

    def _newest_change(self, names: tuple[str, ...], now: float, wall: float) -> float | None:
        """Return when the newest unseen change happened, or None.

        The time is the file's wall time, limited to what the clocks allow: after the last look and not in the future.
        """
        newest: float | None = None
        for name in names:
            stamp = self._stamp(name)
            if stamp == self._stamps.get(name, NOTHING):
                continue
            before = self._stamps.get(name, NOTHING)
            self._stamps[name] = stamp
            if name in _OUTPUT and stamp[0] <= before[0]:
                continue  # the log did not grow: the keeper punched a hole, or the log was truncated
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
        """Read on, first the output and then the errors. True: there is more to read.

        In this order, trouble in the errors stays in effect until later output shows that the agent continues.
        """
        behind = [reader.read_on(partial(self._read_signs, stream, now)) for stream, reader in self._readers.items()]
        return any(behind)

    def _read_signs(self, stream: Stream, now: float, line: str) -> None:
        if self._signs is None:
            return
        try:
            heard = self._signs.signs(line, stream)
        except Exception:  # noqa: BLE001 - a defect of ours with foreign output: only this line is ignored
            return
        for sign in heard:
            self.talk.hear(sign, now, self._looked_at)
            self._errors_had_signs |= stream is Stream.ERR

    def _make_readers(self, offsets: Mapping[Stream, int]) -> dict[Stream, OutputReader]:
        """Return a reader for each log that is read, in the order of reading."""
        if self._signs is None:
            return {}
        streams = (Stream.OUT, Stream.ERR) if self._signs.reads_errors else (Stream.OUT,)
        return {s: OutputReader(os.path.join(self.path, f"{s}.log"), offsets.get(s, 0)) for s in streams}

    # -- for the next supervisor -----------------------------------------------------------------------------------

    def take_over(self, now: float) -> None:
        """Continue where an earlier supervisor stopped. Silence counts from the output's own time, not from now."""
        for name in (*_OUTPUT, *_CHANNEL):
            self._stamps.pop(name, None)
        self._looked_at, self._slept = self.started_at, _suspended_seconds()
        kept = self._load_saved()
        if kept is None:
            return
        with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError, OverflowError):
            self._restore(kept, now)

    def _restore(self, kept: Mapping[str, Any], now: float) -> None:
        talk = AgentActivity.load(kept["talk"])
        # A version that saved no second offset did not read the errors: they are still to be read.
        offsets = {Stream.OUT: int(kept["offset"]), Stream.ERR: int(kept.get("errors_offset", 0))}
        moments = [float(kept[name]) for name in ("started_at", "looked_at")]
        moments += [float(kept[name]) for name in ("output_at", "channel_at") if kept[name] is not None]
        within = [0 <= offset <= self._stamp(f"{stream}.log")[0] for stream, offset in offsets.items()]
        if not all(within) or not all(math.isfinite(at) and 0 <= at <= now for at in moments):
            raise ValueError("not what we wrote")
        stamps = {str(name): (int(stamp[0]), int(stamp[1])) for name, stamp in kept["stamps"].items()}
        if kept.get("does") is not None:
            text, at = kept["does"]
            talk.last_act = LastAct(make_printable(str(text), MOST_WORDS), min(float(at), now))
        self.talk, self.told = talk, make_printable(str(kept["told"]), MOST_WORDS)
        self.started_at, self._looked_at = moments[0], moments[1]
        self.output_at = None if kept["output_at"] is None else float(kept["output_at"])
        self.channel_at = None if kept["channel_at"] is None else float(kept["channel_at"])
        self._stamps, self._slept = stamps, 0.0
        self._readers = self._make_readers(offsets)

    def _load_saved(self) -> dict[str, Any] | None:
        kept = load_saved_view(self.path)
        return kept if kept is not None and kept.get("boot_id") == clock.boot_id() else None

    def save(self) -> None:
        """Save the state for the next supervisor.

        No fsync: after a power cut the run is over, and an incomplete file counts as missing.
        """
        read, talk = self._offsets(), self.talk
        state = (*read.values(), self.output_at, self.channel_at, self.told, talk.steps, len(talk.tools), talk.last_act)
        if state == self._saved:
            return
        path = os.path.join(self.path, STATE)
        faults.effect("reading.save")
        # The agent can write here too: a link in its place must not redirect us, and a pipe must not block us.
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
            "does": self._describe_act(),
        }

    def _describe_act(self) -> tuple[str, float] | None:
        """Return what the agent does now, without secrets, and since when: for people, as `ps` and `top` show it."""
        act = self.talk.last_act
        if act is not None and act.is_tool:
            return f"{'after ' if act.is_over else ''}{make_printable(redact_text(act.text), MOST_WORDS)}", act.at
        text, at = ("", None) if act is None else (act.text, act.at)
        if self._signs is None:
            text, at = self._read_tail(), self.output_at
        lines = [line for line in redact_text(text).splitlines() if line.strip()]
        return (make_printable(lines[-1].strip(), MOST_WORDS), at) if lines and at is not None else None

    def _read_tail(self) -> str:
        """Return the end of plain output, without a first line that began earlier.

        The last word is left out if it has not ended yet, because half of a secret is not recognized.
        """
        try:
            fd = open_log_file(os.path.join(self.path, "out.log"))
        except OSError:
            return ""
        try:
            start = max(0, os.fstat(fd).st_size - TAIL)
            text = os.pread(fd, TAIL, start).decode(errors="replace").replace("\r", "\n")
        finally:
            os.close(fd)
        whole = text[: max(text.rfind(blank) for blank in " \t\n") + 1]
        return whole.partition("\n")[2] if start else whole


def start_time_of(agent: ProcessIdentity, now: float) -> float:
    """Return when a process started, in CLOCK_MONOTONIC. Too late if the machine slept before the start."""
    age = clock.boottime() - agent.start_ticks / os.sysconf("SC_CLK_TCK")
    return now - max(0.0, age - _suspended_seconds())


def _suspended_seconds() -> float:
    """Return the seconds that the machine slept since boot. How much of it was recent is unknown.

    Callers count all of it in favour of the agent.
    """
    return max(0.0, clock.boottime() - clock.monotonic())


def load_saved_view(path: str) -> dict[str, Any] | None:
    """Return the saved state of a run directory, or None without a valid one."""
    try:
        with open(os.open(os.path.join(path, STATE), os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as file:
            kept = json.loads(file.read(LARGEST_STATE))
    except (OSError, ValueError, RecursionError):
        return None
    return kept if isinstance(kept, dict) else None
