"""Why a task is where it is, in one clause: for a list. `holdfast why` says it all.

What holds the fleet up is read once (`Circumstances`); the words are made when a line is drawn, from any thread.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.api.fleet.rows import turn
from holdfast.api.format import duration

if TYPE_CHECKING:
    from holdfast.api.queries import Queries

Row = dict[str, Any]
Words = Callable[[Row], str | None]
_PLAIN = frozenset({"waiting for a free agent", "claimed"})  # reasons that say no more than the state


@dataclass(frozen=True)
class Circumstances:
    """Of one moment."""

    supervisor: Row | None = None
    kept_back: Sequence[Words] = ()  # accounts, budgets, holds: each says why a queued task has to wait, or None
    resumes: bool = True  # whether paused tasks go on by themselves when their limit ends
    workers: Mapping[str, Row] = field(default_factory=dict)
    alerts: Mapping[str, int] = field(default_factory=dict)  # open ones, by task
    queue: Sequence[tuple[int, bool, int]] = ()  # turns of the queued tasks, in order
    checkouts: Mapping[str, str] = field(default_factory=dict)  # repository → the task at work in its checkout itself
    at_work: int = 0

    def why(self, row: Row, now: float) -> str:
        words = _OF[row["state"]](self, row, now)
        return f"alert! {words}" if row["id"] in self.alerts else words

    # -- queued --------------------------------------------------------------------------------------------------------

    def _queued(self, row: Row, now: float) -> str:
        wait = self._waits(row, now)
        return wait if row["reason"] in _PLAIN or not row["reason"] else f"{wait}; {row['reason']}"

    def _waits(self, row: Row, now: float) -> str:
        if self.supervisor is None:
            return "no supervisor is running"
        if row["needs"]:
            return f"after {_some([f'{one} ({state})' for one, state in row['needs'].items()])}"
        if (row["not_before"] or 0) > now:
            return f"not before {at_time(row['not_before'], now)}"
        if self.supervisor["held"]:
            return f"held: {self.supervisor['held']}"
        for words in self.kept_back:
            if (said := words(row)) is not None:
                return f"held: {said}"
        if row["issue"]:
            return f"its issue {row['issue']} is not ours now"
        if row["worker"]:
            worker = self.workers.get(row["worker"])
            return f"for worker {row['worker']}, {worker['state'] if worker else 'which is not there'}"
        if row["strategy"] == "none" and row["repo_id"] in self.checkouts:
            return f"its checkout is in use by {self.checkouts[row['repo_id']]}"
        return self._in_line(row)

    def _in_line(self, row: Row) -> str:
        ahead = bisect_left(self.queue, turn(row))
        if ahead:
            return f"{ahead} ahead of it"
        places = self.supervisor["agents"] if self.supervisor else 0
        return f"next: {self.at_work} at work, room for {places}" if self.at_work >= places else "next"

    # -- others --------------------------------------------------------------------------------------------------------

    def _running(self, row: Row, _now: float) -> str:
        if self.supervisor is None:
            return "no supervisor is running: nobody looks after it"
        if not row["last_run"] or row["last_run"][0] in ("ended", "settled"):
            return "its workspace is made" if not row["runs"] else "between two runs"
        state, _started, stop_why, progress = row["last_run"]
        if state == "stopping":
            return f"it is stopped ({stop_why})"
        if progress:
            told = [f"{progress['percent']:g} %"] if progress["percent"] is not None else []
            return ": ".join([*told, progress["message"] or ""]).rstrip(": ")
        return "" if row["reason"] in _PLAIN else row["reason"] or ""

    def _paused(self, row: Row, now: float) -> str:
        if row["stage"] is not None and row["stage"]["awaits_approval"]:
            return f"approval, until you approve it: {row['reason']}"
        at = row["resume_after"]
        by_itself = at is not None and (self.resumes or row["pause_reason"] == "operator")
        until = f"until {at_time(at, now)}" if by_itself else "until you resume it"
        word = "" if row["pause_reason"] == "operator" else f"{row['pause_reason']}, "  # its reason says so
        return f"{word}{until}: {row['reason']}"

    def _over(self, row: Row, _now: float) -> str:
        said, word = row["reason"] or "", row["failure_reason"]
        return said if not word or said.startswith(word) else f"{word}: {said}"


# By state; a table of its own methods.
_OF: Mapping[str, Callable[[Circumstances, Row, float], str]] = {
    "queued": Circumstances._queued,
    "running": Circumstances._running,
    "paused": Circumstances._paused,
    "completed": Circumstances._over,
    "failed": Circumstances._over,
    "cancelled": Circumstances._over,
}


def at_time(at: float, now: float) -> str:
    """As short as it can be, and how long that is: "14:05 (in 12m 3s)"."""
    form = "%H:%M" if abs(at - now) < 20 * 3600 else "%b %d %H:%M"
    ahead = f" (in {duration(at - now)})" if at > now else ""
    return time.strftime(form, time.localtime(at)) + ahead


def _some(names: Sequence[str], most: int = 2) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


class Looker:
    """Reads circumstances, and the user's settings no more often than they matter."""

    def __init__(self) -> None:
        self._read_at = 0.0
        self._seen: tuple[list[Row], ...] = ()
        self._kept_back: tuple[Words, ...] = ()
        self._resumes = True

    def look(
        self,
        queries: Queries,
        queue: Sequence[tuple[int, bool, int]],
        running: Mapping[str, Row],
        now: float,
    ) -> Circumstances:
        seen = tuple(queries.view(name) for name in ("accounts", "spent_budgets", "holds"))
        if seen != self._seen or not 0 <= now - self._read_at < SETTINGS_HOLD:
            self._seen, self._read_at = seen, now
            self._kept_back = tuple(_kept_back(queries))
            self._resumes = _resumes()
        return Circumstances(
            supervisor=_lasting(queries.supervisor()),
            kept_back=self._kept_back,
            resumes=self._resumes,
            workers={row["name"]: row for row in queries.view("workers")},
            alerts={row["task"]: int(row["n"]) for row in queries.view("alerts_by_task")},
            queue=queue,
            checkouts={row["repo_id"]: row["id"] for row in running.values() if row["strategy"] == "none"},
            at_work=len(running),
        )


SETTINGS_HOLD = 5.0  # seconds for which settings that were read are good enough


def _kept_back(queries: Queries) -> list[Words]:
    """As `ps` has it; what is not shut, spent or held costs nothing."""
    shut, spent, holds = queries.shut_words(), queries.spent_words(), queries.hold_words()
    found: list[Words] = []
    if shut is not None:
        found.append(lambda row: shut(row["agent"], row["account"]))
    if spent is not None:
        found.append(lambda row: spent(row["labels"]))
    if holds is not None:
        found.append(lambda row: holds(row, row["account"], row["provider"]))
    return found


def _lasting(host: Row | None) -> Row | None:
    """Without what every beat changes: circumstances that are the same are equal."""
    return None if host is None else {name: host[name] for name in ("pid", "agents", "held")}


def _resumes() -> bool:
    from holdfast import config

    return bool(config.best_effort()["resume.auto"])
